"""`streamsafe rule` and `streamsafe rules`: what the rules are."""

from __future__ import annotations

import sys

import click

from streamsafe.cli import Failure
from streamsafe.report.colour import linked, links_wanted
from streamsafe.rule import RegistryError, Rule, all_rules, find_rule


@click.command()
@click.argument("code", metavar="CODE", required=False)
@click.option("--all", "every", is_flag=True, help="Explain every rule.")
@click.option(
    "--output-format", type=click.Choice(["text", "json"]), default="text", help="How it is explained."
)
def rule(code: str | None, every: bool, output_format: str) -> None:
    """Explain a rule, given its code or its name."""
    known = _known_rules()
    if every == (code is not None):
        raise click.UsageError("name one rule, or all with --all")
    if code is not None:
        found = find_rule(code)
        if found is None:
            raise click.UsageError(f"no rule has the code or the name {code!r}; see `streamsafe rules`")
        known = [found]
    if output_format == "json":
        objects = [{**_described(item), "documentation": item.documentation()} for item in known]
        return _print_json(objects if every else objects[0])
    click.echo("\n\n\n".join(_text(item) for item in known))


def _text(item: Rule) -> str:
    title, _, body = item.documentation().partition("\n")
    state = "on by default" if item.default else "off by default"
    state += f", {item.fix} fix" if item.fix is not None else ""
    address = f"\n\n{item.url}" if item.url else ""
    return f"{title} ({item.severity}, {state})\n{body}{address}"


@click.command()
@click.option(
    "--output-format", type=click.Choice(["text", "json"]), default="text", help="How they are listed."
)
def rules(output_format: str) -> None:
    """List all rules: code, name, severity, and whether they are on by default."""
    known = _known_rules()
    if output_format == "json":
        return _print_json([_described(item) for item in known])
    width = max(len(item.name) for item in known)
    links = links_wanted(sys.stdout)
    for item in known:
        code = linked(item.code, item.url) if links and item.url else item.code
        click.echo(f"{code}  {item.name:<{width}}  {item.severity:<7}  {'on' if item.default else 'off'}")
    on = sum(item.default for item in known)
    click.echo(
        f"\n{on} of {len(known)} rules are on by default. --select, --extend-select and --ignore change that; "
        "`streamsafe rule CODE` explains one.",
        err=True,
    )


def _described(item: Rule) -> dict[str, object]:
    return {
        "code": item.code,
        "name": item.name,
        "severity": item.severity,
        "default": item.default,
        "fix": item.fix,
        "url": item.url,
    }


def _print_json(data: object) -> None:
    import json

    click.echo(json.dumps(data, indent=2))


def _known_rules() -> list[Rule]:
    try:
        return list(all_rules().values())
    except RegistryError as error:
        raise Failure(str(error)) from error
