"""C++ that all front ends of the run-time half share."""
