"""What each call does to streams, events and memory: rows, no code. Imports nothing of ours."""
