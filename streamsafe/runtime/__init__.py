"""The running program: what CuPy enqueues becomes a concrete stream program, checked as it happens."""
