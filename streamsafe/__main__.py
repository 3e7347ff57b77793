"""`python -m streamsafe`."""

from __future__ import annotations

from streamsafe.cli import main

main(prog_name="streamsafe")
