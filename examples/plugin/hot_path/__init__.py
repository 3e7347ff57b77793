"""Rules for code that must not wait."""
