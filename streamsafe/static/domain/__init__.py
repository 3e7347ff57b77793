"""The abstract domain of the static engine: bounded lattices, each in a module of its own.

A value is a set of atoms (:mod:`atoms`, :mod:`values`), an order relation says who knows what (:mod:`order`), a guard
is a set of literals (:mod:`guards`), and a state is their product for one trace partition (:mod:`state`). The bounds
stand in :mod:`limits`.
"""
