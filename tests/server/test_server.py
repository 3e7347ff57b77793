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

from streamsafe.rule import rule_page
from streamsafe.server import FIX_ALL, Settings, units
from tests.cli.helpers import BUG, BUG_ROW, CLEAN

WAIT = 60.0
"""Seconds after which a test gives up: an answer takes a fraction of one."""
SAFE = '[tool.streamsafe]\nextend-safe-fixes = ["SS101"]\n'


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


def session(
    root: Path,
    body: Callable[[Client], Awaitable[None]],
    options: Any = None,
    capabilities: types.ClientCapabilities | None = None,
) -> None:
    """Start a server, talk to it, and see that it ends in order."""

    async def run() -> None:
        client = Client()
        await client.start_io(sys.executable, "-m", "streamsafe", "server", cwd=str(root))
        await client.initialize_async(
            types.InitializeParams(
                capabilities or types.ClientCapabilities(),
                root_uri=root.as_uri(),
                initialization_options=options,
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
        first, entered = found.related_information
        assert (first.location.uri, first.location.range.start.line) == (document.uri, BUG_ROW - 2)
        assert entered.message == "enters `side`"

        hover = await client.text_document_hover_async(types.HoverParams(document, found.range.start))
        assert hover is not None
        assert isinstance(hover.contents, types.MarkupContent)
        assert hover.contents.value.startswith("**SS101 unordered-read**\n\nReports a read")
        assert "Streams run at the same time unless" in hover.contents.value
        assert f"]({rule_page('unordered-read')})" in hover.contents.value
        assert "```" not in hover.contents.value  # the page has the example
        nothing = await client.text_document_hover_async(types.HoverParams(document, types.Position(0, 0)))
        assert nothing is None

        actions = await client.text_document_code_action_async(
            types.CodeActionParams(document, found.range, types.CodeActionContext([found]))
        )
        assert actions is not None
        fix, suppress = actions
        assert isinstance(fix, types.CodeAction)
        assert isinstance(suppress, types.CodeAction)
        assert not fix.is_preferred  # an editor applies what is preferred without a question
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


@pytest.mark.parametrize(
    ("table", "only", "kinds"),
    [
        ("", None, ["quickfix", "quickfix"]),
        ("", ["quickfix"], ["quickfix", "quickfix"]),
        ("", ["source.fixAll"], []),  # no repair is safe
        (SAFE, None, ["quickfix", "quickfix"]),
        (SAFE, ["source.fixAll"], [FIX_ALL]),
        (SAFE, ["source.fixAll.streamsafe"], [FIX_ALL]),
        (SAFE, ["source.fixAll.other"], []),
        (SAFE, ["source"], [FIX_ALL]),
        (SAFE, ["source.organizeImports"], []),
        (SAFE, ["refactor"], []),
    ],
)
def test_all_safe_repairs(tmp_path: Path, table: str, only: list[str] | None, kinds: list[str]) -> None:
    """The action that an editor asks for when a file is saved; only safe repairs are preferred ones."""
    (tmp_path / "pyproject.toml").write_text(table)
    twice, repaired = (
        text + text[text.index("\n\ndef") :].replace("total", "other") for text in (BUG, CLEAN)
    )

    async def body(client: Client) -> None:
        document = client.open(tmp_path / "bug.py", twice)
        found = await client.diagnostics()
        assert [each.code for each in found] == ["SS101", "SS101"]
        actions = await client.text_document_code_action_async(
            types.CodeActionParams(document, found[0].range, types.CodeActionContext(found, only))
        )
        assert [each.kind for each in actions or () if isinstance(each, types.CodeAction)] == kinds
        for each in actions or ():
            assert isinstance(each, types.CodeAction) and each.edit and each.edit.changes
            repairs = "Suppress" not in each.title
            assert bool(each.is_preferred) == (each.kind == "quickfix" and repairs and bool(table))
            if each.kind == FIX_ALL:
                text = twice
                for edit in reversed(each.edit.changes[document.uri]):
                    text = applied(text, [edit])
                assert text == repaired

    session(tmp_path, body)


def test_files_that_are_not_open(tmp_path: Path) -> None:
    """With ``workspace`` they are shown, too; what is open is shown as it is in the editor."""
    for name in ("open.py", "shut.py"):
        (tmp_path / name).write_text(BUG)

    async def body(client: Client) -> None:
        async def published(*names: str) -> dict[str, list[str]]:
            """The codes of the files, of which the server tells in any order."""
            got: dict[str, list[str]] = {}
            while not got.keys() >= set(names):
                each = await asyncio.wait_for(client.published.get(), WAIT)
                got[each.uri.rpartition("/")[2]] = [str(one.code) for one in each.diagnostics]
            return got

        assert await published("open.py", "shut.py") == {"open.py": ["SS101"], "shut.py": ["SS101"]}
        document = client.open(tmp_path / "open.py", CLEAN)
        assert await published("open.py") == {"open.py": []}
        (tmp_path / "shut.py").write_text(CLEAN)
        client.text_document_did_save(types.DidSaveTextDocumentParams(document))
        assert (await published("shut.py"))["shut.py"] == []

    session(tmp_path, body, {"workspace": True})


CELLS = [
    ("markdown", "# streams\n"),
    ("python", "import torch\ns = torch.cuda.Stream()\n%timeit 1\n"),
    ("python", "with torch.cuda.stream(s):\n    x = torch.zeros(8, device='cuda')\n"),
    ("python", "\ny = x.sum()\n"),
]


def test_a_notebook(tmp_path: Path) -> None:
    """Its cells are one program; what is found is shown in the cell, and edits of a cell count."""
    address = (tmp_path / "n.ipynb").as_uri()
    names = [f"vscode-notebook-cell:{tmp_path}/n.ipynb#{number}" for number in range(len(CELLS))]
    kinds = {"markdown": types.NotebookCellKind.Markup, "python": types.NotebookCellKind.Code}

    async def body(client: Client) -> None:
        notebook = types.NotebookDocument(
            address,
            "jupyter-notebook",
            1,
            [types.NotebookCell(kinds[kind], uri) for uri, (kind, _) in zip(names, CELLS, strict=True)],
        )
        texts = [
            types.TextDocumentItem(uri, kind, 1, text) for uri, (kind, text) in zip(names, CELLS, strict=True)
        ]
        client.notebook_document_did_open(types.DidOpenNotebookDocumentParams(notebook, texts))

        async def published() -> dict[str, list[types.Diagnostic]]:
            got = [await asyncio.wait_for(client.published.get(), WAIT) for _ in names]
            return {each.uri: list(each.diagnostics) for each in got}

        found = await published()
        assert [len(found[name]) for name in names] == [0, 0, 0, 1]
        (shown,) = found[names[3]]
        assert (shown.code, shown.range.start) == ("SS101", types.Position(1, 4))
        assert shown.related_information is not None
        where = shown.related_information[0].location
        assert (where.uri, where.range.start) == (names[2], types.Position(1, 8))

        at = types.HoverParams(types.TextDocumentIdentifier(names[3]), types.Position(1, 5))
        hover = await client.text_document_hover_async(at)
        assert hover is not None
        other = types.HoverParams(types.TextDocumentIdentifier(names[2]), types.Position(1, 5))
        assert await client.text_document_hover_async(other) is None

        repaired = types.TextDocumentContentChangeWholeDocument(
            "torch.cuda.current_stream().wait_stream(s)\ny = x.sum()\n"
        )
        cells = types.NotebookDocumentCellChanges(
            text_content=[
                types.NotebookDocumentCellContentChanges(
                    types.VersionedTextDocumentIdentifier(2, names[3]), [repaired]
                )
            ]
        )
        client.notebook_document_did_change(
            types.DidChangeNotebookDocumentParams(
                types.VersionedNotebookDocumentIdentifier(2, address),
                types.NotebookDocumentChangeEvent(cells=cells),
            )
        )
        assert not any((await published()).values())
        identifiers = [types.TextDocumentIdentifier(uri) for uri in names]
        closing = types.DidCloseNotebookDocumentParams(types.NotebookDocumentIdentifier(address), identifiers)
        client.notebook_document_did_close(closing)
        assert not any((await published()).values())

    capabilities = types.ClientCapabilities(
        notebook_document=types.NotebookDocumentClientCapabilities(
            types.NotebookDocumentSyncClientCapabilities()
        )
    )
    session(tmp_path, body, capabilities=capabilities)


def test_a_cell_alone_shows_nothing(tmp_path: Path) -> None:
    """A client that opens cells as documents does not send the notebook: a cell means nothing alone."""

    async def body(client: Client) -> None:
        cell = types.TextDocumentItem(f"vscode-notebook-cell:{tmp_path}/n.ipynb#1", "python", 1, BUG)
        client.text_document_did_open(types.DidOpenTextDocumentParams(cell))
        client.open(tmp_path / "bug.py", BUG)
        published = await asyncio.wait_for(client.published.get(), WAIT)
        assert published.uri.endswith("bug.py")

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
        ({"workspace": True}, Settings(workspace=True)),
        ({"workspace": "yes"}, Settings()),
    ],
)
def test_settings(options: Any, settings: Settings) -> None:
    assert Settings.of(options) == settings


@pytest.mark.parametrize(("encoding", "length"), [("utf-8", 9), ("utf-16", 4), ("utf-32", 3)])
def test_units(encoding: str, length: int) -> None:
    assert units("é漢😀", encoding) == length
