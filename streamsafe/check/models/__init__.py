"""What torch, CuPy and Python do on a path, one file an area."""
