"""The rules: one module each. Installed as ``streamsafe.rules``; ``streamsafe.rule`` loads them."""
