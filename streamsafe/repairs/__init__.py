"""Repairs as LibCST codemods: the one that a finding has, where a right one is known."""
