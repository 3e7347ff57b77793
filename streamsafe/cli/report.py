"""`streamsafe report`: what is done with written reports."""

from __future__ import annotations

import sys

import click

from streamsafe.cli import Failure, output
from streamsafe.report.colour import wanted


@click.group()
def report() -> None:
    """Work with reports that `streamsafe run --report` wrote."""


@report.command()
@output.options
@click.argument("reports", nargs=-1, required=True, metavar="REPORT...")
def merge(output_format: str | None, output_file: str | None, reports: tuple[str, ...]) -> None:
    """Show the hazards of several JSON reports, one a rank, as one list: each hazard once, with its ranks.

    The rank of a report is in its name (out.rank3.json), else its place on the command line, from 0.

    Exit status: 0 no hazards, 1 hazards, 2 a file that cannot be read or is no report.
    """
    from streamsafe.report import full
    from streamsafe.report.formats import MACHINE, render
    from streamsafe.report.ranks import MergeError, hazard_of
    from streamsafe.report.ranks import merge as merged
    from streamsafe.report.record import listed, records
    from streamsafe.report.sources import Loaded

    try:
        hazards = merged(reports)
    except MergeError as error:
        raise Failure(str(error)) from error
    format_ = output_format or "full"
    with output.Output(format_, output_file).opened() as file:
        if format_ in MACHINE:
            text = render(format_, hazards)
            click.echo(text, file=file, nl=bool(text))
        elif format_ == "concise":
            for each in records(hazards):
                click.echo(f"{f'{each.place}: ' if each.place else ''}{each.code} {each.sentence}", file=file)
        else:
            sources = Loaded()
            style, colour = click.style, wanted(file or sys.stdout)
            for data in hazards:
                facts = [("ranks", listed(data["ranks"]))]
                click.echo(
                    full.render(hazard_of(data), sources, style, facts) + "\n", file=file, color=colour
                )
    ranks = output.count(len(reports), "report")
    kinds = output.count(len(hazards), "hazard") if hazards else "no hazards"
    click.echo(f"streamsafe: {kinds} in {ranks}", err=True)
    raise SystemExit(1 if hazards else 0)
