"""The host's reads and writes of pinned memory."""
