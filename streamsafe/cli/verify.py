"""`streamsafe verify`: a recorded trace, checked without a GPU."""

from __future__ import annotations

import sys

import click

from streamsafe.cli import Failure


@click.command()
@click.option("--report", metavar="FILE", help="Write the hazards as JSON.")
@click.argument("trace", metavar="TRACE")
def verify(report: str | None, trace: str) -> None:
    """Check TRACE, as recorded by `streamsafe run --trace`: the same hazards as in that run.

    Exit status: 0 no hazards, 1 hazards, 2 no trace.
    """
    from streamsafe.order.trace import TraceError
    from streamsafe.runtime.launcher import LaunchError, output, write_report
    from streamsafe.runtime.present import show
    from streamsafe.runtime.replay import replay

    try:
        session = replay(trace)
        if report:
            with output(report) as file:
                write_report(session.hazards, file)
    except TraceError as error:
        raise Failure(f"{trace}: {error}") from error
    except OSError as error:
        raise Failure(f"cannot read {trace}: {error.strerror}") from error
    except LaunchError as error:
        raise Failure(str(error)) from error
    for hazard in session.hazards:
        show(hazard, sys.stdout)
    click.echo(session.summary(), err=True)
    raise SystemExit(1 if session.hazards else 0)
