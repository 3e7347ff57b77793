"""`streamsafe rule` and `streamsafe rules`: what the rules are."""

from __future__ import annotations

import click

from streamsafe import registry
from streamsafe.cli import Failure
from streamsafe.rule import Rule


@click.command()
@click.argument("code", metavar="CODE")
def rule(code: str) -> None:
    """Explain a rule, given its code or its name."""
    _all_rules()
    found = registry.rule(code)
    if found is None:
        raise click.UsageError(f"no rule has the code or the name {code!r}; see `streamsafe rules`")
    click.echo(found.documentation())


@click.command()
@click.option(
    "--output-format", type=click.Choice(["text", "json"]), default="text", help="How they are listed."
)
def rules(output_format: str) -> None:
    """List all rules: code, name, severity, and whether they are on by default."""
    known = _all_rules()
    if output_format == "json":
        import json

        rows = [
            {
                "code": item.code,
                "name": item.name,
                "severity": item.severity,
                "default": item.default,
                "url": item.url,
            }
            for item in known
        ]
        click.echo(json.dumps(rows, indent=2))
        return
    width = max(len(item.name) for item in known)
    for item in known:
        off = "" if item.default else "  (off by default)"
        click.echo(f"{item.code}  {item.name:<{width}}  {item.severity}{off}")


def _all_rules() -> list[Rule]:
    try:
        return list(registry.all_rules().values())
    except registry.RegistryError as error:
        raise Failure(str(error)) from error
