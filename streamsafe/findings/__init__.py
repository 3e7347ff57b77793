"""From conflicts to what is shown."""
