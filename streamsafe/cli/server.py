"""`streamsafe server`: a language server for editors, on standard input and output."""

from __future__ import annotations

import click

from streamsafe.cli import Failure

MISSING = "the server needs the package pygls: pip install 'streamsafe[lsp]'"


@click.command()
@click.option(
    "--stdio", is_flag=True, help="Use standard input and output (always so; for editors that pass it)."
)
def server(stdio: bool) -> None:
    """Serve editors by the Language Server Protocol, on standard input and output.

    It shows hazards as you type, a rule's page on hover, and repairs and suppressions as code actions.
    """
    try:
        import pygls  # noqa: F401
    except ImportError as error:
        raise Failure(MISSING) from error
    from streamsafe.server import server as language_server

    language_server.start_io()
