"""PyTorch watched from Python, where the native code cannot be had: a dispatch mode and torch's GPU trace.

It gives the engine in Python what the extension gives the one in C++. It is slower and sees less;
:data:`streamsafe.runtime.torch.fallback.watch.UNSEEN` says what it does not see.
"""
