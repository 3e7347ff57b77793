"""What a kernel does with its parameters, read from its source."""
