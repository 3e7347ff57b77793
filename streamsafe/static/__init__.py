"""Source to stream program: which files, which functions, what they do, and in which order."""
