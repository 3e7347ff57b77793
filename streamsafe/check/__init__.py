"""The check as a run: paths of the user's source as operations of the order engine."""
