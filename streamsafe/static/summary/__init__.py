"""One summary per function: computed bottom up, instantiated at calls."""
