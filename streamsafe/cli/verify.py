"""`streamsafe verify`: a recorded trace, checked without a GPU."""

from __future__ import annotations

import sys

import click

from streamsafe.cli import Failure, output


@click.command()
@click.option("--report", metavar="FILE", help="Short for --output-format json --output-file FILE.")
@output.options
@click.argument("trace", metavar="TRACE")
def verify(report: str | None, output_format: str | None, output_file: str | None, trace: str) -> None:
    """Check TRACE, as recorded by `streamsafe run --trace`: the same hazards as in that run.

    Exit status: 0 no hazards, 1 hazards, 2 no trace, or an incomplete one without a hazard.
    """
    from streamsafe.order.trace import TraceError
    from streamsafe.report.file import ReportError, ReportFile, written
    from streamsafe.report.run_time import show
    from streamsafe.runtime.traces import replay

    to, format_ = output.report(report, output_format, output_file)
    try:
        session = replay(trace)
        if to is not None and to != "-":
            ReportFile(to, format_).finish(session.hazards)
    except TraceError as error:
        raise Failure(f"{trace}: {error}") from error
    except OSError as error:
        raise Failure(f"cannot read {trace}: {error.strerror}") from error
    except ReportError as error:
        raise Failure(str(error)) from error
    if to == "-" and format_ != "full":
        text = written(session.hazards, format_)
        click.echo(text, nl=bool(text))
    elif report is not None or output_file is None:
        for hazard in session.hazards:
            show(hazard, sys.stdout)
    click.echo(session.summary(), err=True)
    raise SystemExit(1 if session.hazards else 0 if session.complete else 2)
