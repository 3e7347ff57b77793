"""The rules: one module each. Installed as ``streamsafe.rules``; ``streamsafe.registry`` loads them."""
