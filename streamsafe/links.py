"""Addresses of the documentation: one base, from which every other is made."""

from __future__ import annotations

from typing import Final

DOCUMENTATION: Final = "https://streamsafe.readthedocs.io/en/latest/"
"""Where the site is published; `site_url` in mkdocs.yml is the same address."""


def rule_page(name: str) -> str:
    """The address of a rule's page, by the rule's name."""
    return f"{DOCUMENTATION}rules/{name}/"
