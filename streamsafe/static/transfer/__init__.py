"""The parts of the interpreter: what statements, expressions and calls do to a state.

Each part is a class of its own, in a module of the same name. `streamsafe/static/interpreter.py` connects them.
"""
