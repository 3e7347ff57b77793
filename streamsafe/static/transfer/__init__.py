"""What each instruction does to a state: one module per group of instructions.

A *transfer function* takes the analysis, a state and an instruction, changes the state, and returns the states that
follow when they are not just that one:

    @transfer(ir.Attr)
    def load_attribute(a: Analysis, s: State, i: ir.Attr) -> list[State] | None: ...

A call whose meaning is more than a row of a model can say has a *special*, a transfer function of the call:

    @special("backward")
    def backward(a: Analysis, s: State, c: CallSite) -> Value | list[State]: ...

Where a rule needs a new fact of an access, give it a tag in :mod:`domain.access` and a line in :mod:`confidence` when
it weighs on the confidence; where it needs a new fact of a path, give :class:`~domain.state.State` a field, with its
join; where a caller must know of it, give :class:`~summary.model.Exit` one, and rename it in
:mod:`summary.instantiate`. A violation (no pair of accesses) is reported by :meth:`Analysis.violation`.
"""
