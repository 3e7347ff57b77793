"""The language server, driven by a real client over its standard input and output."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pygls")
from lsprotocol import types
from pygls.lsp.client import LanguageClient

from streamsafe.links import rule_page
from streamsafe.server import Settings, units
from tests.cli.helpers import BUG, BUG_ROW, CLEAN

WAIT = 60.0
"""Seconds after which a test gives up: an answer takes a fraction of one."""


class Client(LanguageClient):
    def __init__(self) -> None:
        super().__init__("test", "1")
        self.published: asyncio.Queue[types.PublishDiagnosticsParams] = asyncio.Queue()
        self.messages: asyncio.Queue[types.ShowMessageParams] = asyncio.Queue()

        @self.feature(types.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS)  # type: ignore[untyped-decorator]
        def _published(client: Client, params: types.PublishDiagnosticsParams) -> None:
            client.published.put_nowait(params)

        @self.feature(types.WINDOW_SHOW_MESSAGE)  # type: ignore[untyped-decorator]
        def _message(client: Client, params: types.ShowMessageParams) -> None:
            client.messages.put_nowait(params)

    async def diagnostics(self) -> list[types.Diagnostic]:
        """Those that are published next."""
        published = await asyncio.wait_for(self.published.get(), WAIT)
        return list(published.diagnostics)

    def open(self, path: Path, text: str) -> types.TextDocumentIdentifier:
        item = types.TextDocumentItem(path.as_uri(), "python", 1, text)
        self.text_document_did_open(types.DidOpenTextDocumentParams(item))
        return types.TextDocumentIdentifier(item.uri)

    def change(self, document: types.TextDocumentIdentifier, version: int, text: str) -> None:
        whole = types.TextDocumentContentChangeWholeDocument(text)
        identifier = types.VersionedTextDocumentIdentifier(version, document.uri)
        self.text_document_did_change(types.DidChangeTextDocumentParams(identifier, [whole]))


def session(root: Path, body: Callable[[Client], Awaitable[None]], options: Any = None) -> None:
    """Start a server, talk to it, and see that it ends in order."""

    async def run() -> None:
        client = Client()
        await client.start_io(sys.executable, "-m", "streamsafe", "server", cwd=str(root))
        await client.initialize_async(
            types.InitializeParams(
                types.ClientCapabilities(), root_uri=root.as_uri(), initialization_options=options
            )
        )
        client.initialized(types.InitializedParams())
        await body(client)
        await client.shutdown_async(None)
        client.exit(None)
        await client.stop()  # type: ignore[no-untyped-call]

    asyncio.run(asyncio.wait_for(run(), 2 * WAIT))


def applied(text: str, edits: list[types.TextEdit]) -> str:
    (edit,) = edits
    lines = text.splitlines(keepends=True)
    start, end = edit.range.start, edit.range.end
    before = "".join(lines[: start.line]) + lines[start.line][: start.character]
    after = lines[end.line][end.character :] + "".join(lines[end.line + 1 :])
    return before + edit.new_text + after


def test_a_session(tmp_path: Path) -> None:
    """Open, hover, repair, suppress, edit and close: what an editor does."""
    path = tmp_path / "bug.py"

    async def body(client: Client) -> None:
        document = client.open(path, BUG)  # it is not on disk
        (found,) = await client.diagnostics()
        assert (found.code, found.source, found.severity) == (
            "SS101",
            "streamsafe",
            types.DiagnosticSeverity.Error,
        )
        assert (found.range.start.line, found.range.start.character) == (BUG_ROW - 1, 11)
        assert found.code_description is not None
        assert found.code_description.href == rule_page("unordered-read")
        assert found.related_information is not None
        first = found.related_information[0]
        assert (first.location.uri, first.location.range.start.line) == (document.uri, BUG_ROW - 2)

        hover = await client.text_document_hover_async(types.HoverParams(document, found.range.start))
        assert hover is not None
        assert isinstance(hover.contents, types.MarkupContent)
        assert "## Why is this bad?" in hover.contents.value
        nothing = await client.text_document_hover_async(types.HoverParams(document, types.Position(0, 0)))
        assert nothing is None

        actions = await client.text_document_code_action_async(
            types.CodeActionParams(document, found.range, types.CodeActionContext([found]))
        )
        assert actions is not None
        fix, suppress = actions
        assert isinstance(fix, types.CodeAction)
        assert isinstance(suppress, types.CodeAction)
        assert fix.edit is not None
        assert fix.edit.changes is not None
        assert applied(BUG, list(fix.edit.changes[document.uri])) == CLEAN
        assert suppress.title == "streamsafe: Suppress SS101 on this line"
        assert suppress.edit is not None
        assert suppress.edit.changes is not None
        suppressed = applied(BUG, list(suppress.edit.changes[document.uri]))
        assert suppressed == BUG.replace("x.sum()", "x.sum()  # noqa: SS101")

        client.change(document, 2, CLEAN)
        assert await client.diagnostics() == []
        client.change(document, 3, "def f(:  # stream\n")
        (broken,) = await client.diagnostics()
        assert broken.code == "SS900"
        client.text_document_did_close(types.DidCloseTextDocumentParams(document))
        assert await client.diagnostics() == []

    session(tmp_path, body)


def test_configuration_and_characters(tmp_path: Path) -> None:
    """The nearest table counts, a mistake in it is shown, and columns count UTF-16 units."""
    table = tmp_path / "pyproject.toml"
    table.write_text('[tool.streamsafe]\nignore = ["SS101"]\n')
    path = tmp_path / "bug.py"
    text = BUG.replace("return x.sum()", 'return "é漢😀", x.sum()')
    path.write_text(text, encoding="utf-8")

    async def body(client: Client) -> None:
        document = client.open(path, text)
        assert await client.diagnostics() == []
        table.write_text("[tool.streamsafe\n")
        saved = types.DidSaveTextDocumentParams(document)
        client.text_document_did_save(saved)
        message = await asyncio.wait_for(client.messages.get(), WAIT)
        assert "not valid TOML" in message.message
        table.write_text('[tool.streamsafe]\nconfidence = "certain"\n')
        client.text_document_did_save(saved)
        (found,) = await client.diagnostics()
        assert found.range.start.character == 19, "the last of the three characters counts twice"

    session(tmp_path, body)


def test_options_of_the_client(tmp_path: Path) -> None:
    async def body(client: Client) -> None:
        client.open(tmp_path / "bug.py", BUG)
        assert await client.diagnostics() == []

    session(tmp_path, body, {"settings": {"ignore": ["SS1"]}})


@pytest.mark.parametrize(
    ("options", "settings"),
    [
        (None, Settings()),
        ({"select": ["SS1"]}, Settings(select=("SS1",))),
        (
            {"settings": {"extendSelect": ["SS1"], "confidence": "possible"}},
            Settings(None, ("SS1",), (), "possible"),
        ),
        ({"confidence": "sure", "select": "SS1", "configuration": 3}, Settings()),
        ({"settings": 3}, Settings()),
    ],
)
def test_settings(options: Any, settings: Settings) -> None:
    assert Settings.of(options) == settings


@pytest.mark.parametrize(("encoding", "length"), [("utf-8", 9), ("utf-16", 4), ("utf-32", 3)])
def test_units(encoding: str, length: int) -> None:
    assert units("é漢😀", encoding) == length
