"""The project that is checked: its settings, files, text and suppressions."""
