"""`streamsafe trace`: a recorded trace as a timeline."""

from __future__ import annotations

import json

import click

from streamsafe.cli import Failure


@click.command()
@click.option(
    "-o", "--output", metavar="FILE", help="Write a timeline for Perfetto or chrome://tracing (JSON)."
)
@click.option("--html", metavar="FILE", help="Write a page with an index and the picture of each hazard.")
@click.option(
    "--hazard", type=click.IntRange(min=1), help="The one hazard that the page shows [default: all]."
)
@click.argument("trace", metavar="TRACE")
def trace(output: str | None, html: str | None, hazard: int | None, trace: str) -> None:
    """Draw TRACE: streams as tracks, edges as arrows, the accesses of each hazard marked."""
    from streamsafe.order.trace import TraceError
    from streamsafe.runtime.traces import TORN
    from streamsafe.view.page import page
    from streamsafe.view.timeline import Timeline

    if output is None and html is None:
        raise click.UsageError("name an output: -o FILE, --html FILE or both")
    try:
        timeline = Timeline.of(trace)
        if not timeline.complete:
            click.echo(f"streamsafe: note: {TORN}", err=True)
        if output is not None:
            with open(output, "w", encoding="utf-8") as file:
                json.dump(timeline.events(), file)
        if html is not None:
            text = page(timeline, hazard)
            with open(html, "w", encoding="utf-8") as file:
                file.write(text)
    except TraceError as error:
        raise Failure(f"{trace}: {error}") from error
    except LookupError as error:
        raise Failure(f"{trace}: {error.args[0]}") from error
    except OSError as error:
        raise Failure(f"cannot open {error.filename}: {error.strerror}") from error
