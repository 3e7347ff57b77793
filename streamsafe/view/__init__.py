"""A trace as a picture."""
