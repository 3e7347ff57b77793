"""`streamsafe server`: a language server. Diagnostics as one types, the rule's page on hover, repairs as code actions.

https://microsoft.github.io/language-server-protocol/specifications/lsp/3.17/specification/
"""

from __future__ import annotations

import asyncio
import json
import os
import threading
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from lsprotocol import types
from pygls import uris
from pygls.lsp.server import LanguageServer

from streamsafe import __version__, registry
from streamsafe.findings.checking import Request
from streamsafe.findings.collect import Finding, Texts
from streamsafe.findings.edits import Edit, Fix
from streamsafe.order.hazard import CONFIDENCES
from streamsafe.project.files import File, discover
from streamsafe.project.settings import ConfigError, Configs
from streamsafe.registry import RegistryError
from streamsafe.repairs.checking import check
from streamsafe.repairs.noqa import additions
from streamsafe.repairs.repair import fix_of
from streamsafe.report.json import as_dict
from streamsafe.report.record import Place, Record, records

DELAY = 0.3
"""Seconds without a keystroke after which a document is checked."""
STACK = 64 * 1024 * 1024
"""Bytes of stack of the thread that checks: nested source is analysed by nested calls."""
SOURCE = "streamsafe"

_SEVERITIES = {
    "error": types.DiagnosticSeverity.Error,
    "warning": types.DiagnosticSeverity.Warning,
    "advice": types.DiagnosticSeverity.Information,
}


NOTEBOOKS = types.NotebookDocumentSyncOptions(
    [types.NotebookDocumentFilterWithNotebook(types.NotebookDocumentFilterNotebookType("jupyter-notebook"))],
    save=True,
)
"""Notebooks are sent whole, with all their cells: code of one cell uses what another one defines."""


@dataclass(frozen=True, slots=True)
class Shown:
    """One finding as a client knows it, with what can be done about it.

    Attributes:
        cell: the address of the notebook cell that it is shown in; empty in a file.
    """

    record: Record
    cell: str
    diagnostic: types.Diagnostic
    fix: Fix | None
    suppression: Edit | None


@dataclass(slots=True)
class Document:
    """What is known of an open document, or of an open notebook.

    Attributes:
        version: the one that was checked.
        cells: of a notebook, the addresses of the cells that were checked.
        shown: its findings.
        pending: the check that waits for the next pause.
    """

    version: int | None = None
    cells: tuple[str, ...] = ()
    shown: list[Shown] = field(default_factory=list)
    pending: asyncio.Task[None] | None = None


@dataclass(frozen=True, slots=True)
class Settings:
    """The client's ``initializationOptions``; each stands above the configuration files."""

    select: tuple[str, ...] | None = None
    extend_select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    confidence: Any = None
    config: str | None = None

    @classmethod
    def of(cls, options: object) -> Settings:
        """From the client's options; what is not known or of the wrong kind is left out."""
        given = options if isinstance(options, dict) else {}
        given = given.get("settings", given) if isinstance(given.get("settings", {}), dict) else given

        def words(name: str) -> tuple[str, ...] | None:
            value = given.get(name)
            return tuple(map(str, value)) if isinstance(value, list) else None

        confidence, config = given.get("confidence"), given.get("configuration")
        return cls(
            words("select"),
            words("extendSelect") or (),
            words("ignore") or (),
            confidence if confidence in CONFIDENCES else None,
            config if isinstance(config, str) else None,
        )


class Server(LanguageServer):
    """The server. Documents are checked one after the other in a thread of their own."""

    def __init__(self) -> None:
        super().__init__(
            "streamsafe",
            __version__,
            text_document_sync_kind=types.TextDocumentSyncKind.Incremental,
            notebook_document_sync=NOTEBOOKS,
        )
        self.settings = Settings()
        self.documents: dict[str, Document] = {}
        before = threading.stack_size(STACK)
        self.checker = ThreadPoolExecutor(1, thread_name_prefix="streamsafe")
        self.checker.submit(int).result()  # the thread is made now, with this stack
        threading.stack_size(before)
        self.complained: set[str] = set()

    @property
    def encoding(self) -> str:
        """In what a column counts, as agreed with the client."""
        return str(getattr(self.server_capabilities.position_encoding, "value", None) or "utf-16")

    def schedule(self, uri: str, delay: float = DELAY) -> None:
        """Check a document or a notebook after a pause; a check that waits already is put off."""
        document = self.documents.setdefault(uri, Document())
        if document.pending is not None:
            document.pending.cancel()
        document.pending = asyncio.get_running_loop().create_task(self._check_after(uri, delay))

    async def _check_after(self, uri: str, delay: float) -> None:
        await asyncio.sleep(delay)
        path = uris.to_fs_path(uri) or uri
        notebook = self.workspace.get_notebook_document(notebook_uri=uri)
        if notebook is not None:
            version, cells = notebook.version, tuple(cell.document for cell in notebook.cells)
            path, data = f"{path.removesuffix('.ipynb')}.ipynb", self._notebook(notebook)
        else:
            opened = self.workspace.get_text_document(uri)
            version, cells = opened.version or 0, ()
            data = b"\xef\xbb\xbf" + opened.source.encode("utf-8", "replace")  # whatever encoding it declares
        loop = asyncio.get_running_loop()
        try:
            shown = await loop.run_in_executor(self.checker, self.check, path, data, cells)
        except (ConfigError, RegistryError) as error:
            return self._complain(str(error))
        except Exception as error:
            return self._complain(f"internal error, {path} was not checked: {error!r}; please report it")
        document = self.documents.get(uri)
        if document is None:  # closed meanwhile
            return
        gone = set(document.cells) - set(cells)
        document.version, document.cells, document.shown = version, cells, shown
        for each in cells or (uri,):
            here = [one.diagnostic for one in shown if one.cell in ("", each)]
            self._publish(each, here, None if cells else version)
        for each in gone:
            self._publish(each, [])

    def _notebook(self, notebook: types.NotebookDocument) -> bytes:
        """A notebook as its file would be, with the text of its cells as it is in the editor."""
        cells = []
        for cell in notebook.cells:
            text = self.workspace.get_text_document(cell.document)
            code = cell.kind == types.NotebookCellKind.Code and text.language_id in (None, "python")
            cells.append({"cell_type": "code" if code else "markdown", "source": text.source})
        return json.dumps({"cells": cells}).encode("utf-8", "surrogatepass")

    def close(self, uri: str) -> None:
        """Forget a document or a notebook, and what is shown of it."""
        document = self.documents.pop(uri, None)
        if document is not None and document.pending is not None:
            document.pending.cancel()
        for each in (document.cells if document is not None else ()) or (uri,):
            self._publish(each, [])

    def known(self, uri: str) -> Document:
        """The document that a place is in: a file, or the notebook of a cell."""
        notebook = self.workspace.get_notebook_document(cell_uri=uri)
        return self.documents.get(notebook.uri if notebook is not None else uri, Document())

    def _publish(self, uri: str, diagnostics: list[types.Diagnostic], version: int | None = None) -> None:
        self.text_document_publish_diagnostics(types.PublishDiagnosticsParams(uri, diagnostics, version))

    def _complain(self, message: str) -> None:
        """Show a mistake of the configuration, once."""
        if message not in self.complained:
            self.complained.add(message)
            self.window_show_message(
                types.ShowMessageParams(types.MessageType.Error, f"streamsafe: {message}")
            )

    def check(self, path: str, data: bytes, cells: tuple[str, ...] = ()) -> list[Shown]:
        """The findings of a document as it is in the editor.

        Args:
            path: where its file is, or would be.
            data: the file's bytes.
            cells: the addresses of a notebook's cells.

        Raises:
            streamsafe.project.settings.ConfigError: a configuration file is unusable.
            streamsafe.registry.RegistryError: a selector names no rule.
        """
        path = os.path.abspath(path)
        configs = Configs((self.settings.config,) if self.settings.config else ())
        if os.path.isfile(path):
            files = discover([path], configs, force_exclude=True).files
        else:
            files = [File(path, configs.of_directory(os.path.dirname(path)), named=True)]
        layer = (self.settings.select, self.settings.extend_select, self.settings.ignore)
        request = Request(configs, layer, self.settings.confidence, jobs=1)
        report = check(request, files, {path: data})
        texts = report.texts
        if texts is None:
            return []
        found = [finding for finding in report.findings if finding.span.filename == path]
        fixes = [fix_of(finding, texts) for finding in found]
        described = records(as_dict(each, texts, fix) for each, fix in zip(found, fixes, strict=True))
        return [self._shown(*each, texts, cells) for each in zip(found, described, fixes, strict=True)]

    def _shown(
        self, finding: Finding, record: Record, fix: Fix | None, texts: Texts, cells: tuple[str, ...]
    ) -> Shown:
        assert record.place is not None
        related = [
            types.DiagnosticRelatedInformation(
                types.Location(_address(place, cells), self._range(place, texts)), place.message
            )
            for place in (*record.related, *record.witness)
        ]
        help_ = "".join(f"\nassumes that {text}" for text in record.assumptions)
        help_ += f"\nhelp: {record.help}" if record.help else ""
        diagnostic = types.Diagnostic(
            range=self._range(record.place, texts),
            message=f"{record.sentence}{help_}",
            severity=_SEVERITIES[record.severity],
            code=record.code,
            code_description=types.CodeDescription(record.url) if record.url else None,
            source=SOURCE,
            related_information=related,
            tags=[types.DiagnosticTag.Unnecessary] if record.code == "SS901" else None,
        )
        suppressing, _ = additions([finding], texts)
        edits = [edit for changes in suppressing.values() for edit in changes]
        suppression = edits[0] if edits and not record.code.startswith("SS9") else None
        cell = _address(record.place, cells) if cells else ""
        return Shown(record, cell, diagnostic, fix, suppression)

    def _range(self, place: Place, texts: Texts) -> types.Range:
        text = texts[place.filename]
        above = dict(text.cells).get(place.cell or 0, 1) - 1
        return types.Range(
            self._position(text.lines[above:], place.row, place.column),
            self._position(text.lines[above:], place.end_row, place.end_column),
        )

    def _position(self, lines: list[str], row: int, column: int) -> types.Position:
        line = lines[row - 1] if 0 < row <= len(lines) else ""
        return types.Position(row - 1, units(line[: column - 1], self.encoding))

    def text_edits(self, uri: str, edits: Iterable[Edit]) -> list[types.TextEdit]:
        """Edits as the client wants them."""
        lines = self.workspace.get_text_document(uri).source.splitlines()
        return [
            types.TextEdit(
                types.Range(
                    self._position(lines, edit.row, edit.column),
                    self._position(lines, edit.end_row, edit.end_column),
                ),
                edit.content,
            )
            for edit in edits
        ]


def _address(place: Place, cells: tuple[str, ...]) -> str:
    """The document of a place: a cell of the notebook, or a file."""
    if cells and place.cell is not None and place.cell <= len(cells):
        return cells[place.cell - 1]
    return uris.from_fs_path(place.filename) or ""


def units(text: str, encoding: str) -> int:
    """How long a text is as the protocol counts: in code units of ``utf-8``, ``utf-16`` or ``utf-32``."""
    if encoding == "utf-32":
        return len(text)
    if encoding == "utf-8":
        return len(text.encode("utf-8", "replace"))
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


server = Server()


@server.feature(types.INITIALIZE)
def _initialize(ls: Server, params: types.InitializeParams) -> None:
    ls.settings = Settings.of(params.initialization_options)


@server.feature(types.TEXT_DOCUMENT_DID_OPEN)
async def _opened(ls: Server, params: types.DidOpenTextDocumentParams) -> None:
    if _is_file(params.text_document.uri):
        ls.schedule(params.text_document.uri, 0.0)


@server.feature(types.TEXT_DOCUMENT_DID_CHANGE)
async def _changed(ls: Server, params: types.DidChangeTextDocumentParams) -> None:
    if _is_file(params.text_document.uri):
        ls.schedule(params.text_document.uri)


def _is_file(uri: str) -> bool:
    """Not a cell of a notebook, which means nothing alone; a client that does not send the notebook sees nothing."""
    return not (uris.to_fs_path(uri) or uri).partition("#")[0].endswith(".ipynb")


@server.feature(types.TEXT_DOCUMENT_DID_SAVE)
@server.feature(types.NOTEBOOK_DOCUMENT_DID_SAVE)
async def _saved(ls: Server, params: object) -> None:
    for uri in ls.documents:  # what one file says may matter to another
        ls.schedule(uri, 0.0)


@server.feature(types.TEXT_DOCUMENT_DID_CLOSE)
async def _closed(ls: Server, params: types.DidCloseTextDocumentParams) -> None:
    ls.close(params.text_document.uri)


@server.feature(types.NOTEBOOK_DOCUMENT_DID_OPEN)
async def _notebook_opened(ls: Server, params: types.DidOpenNotebookDocumentParams) -> None:
    ls.schedule(params.notebook_document.uri, 0.0)


@server.feature(types.NOTEBOOK_DOCUMENT_DID_CHANGE)
async def _notebook_changed(ls: Server, params: types.DidChangeNotebookDocumentParams) -> None:
    ls.schedule(params.notebook_document.uri)


@server.feature(types.NOTEBOOK_DOCUMENT_DID_CLOSE)
async def _notebook_closed(ls: Server, params: types.DidCloseNotebookDocumentParams) -> None:
    ls.close(params.notebook_document.uri)


@server.feature(types.TEXT_DOCUMENT_HOVER)
def _hover(ls: Server, params: types.HoverParams) -> types.Hover | None:
    uri = params.text_document.uri
    here = [
        each
        for each in ls.known(uri).shown
        if each.cell in ("", uri) and _inside(params.position, each.diagnostic.range)
    ]
    pages = dict.fromkeys(_page(each.record) for each in here)
    if not here:
        return None
    text = "\n\n---\n\n".join(pages)
    return types.Hover(types.MarkupContent(types.MarkupKind.Markdown, text), here[0].diagnostic.range)


def _page(record: Record) -> str:
    rule = registry.rule(record.code)
    title, _, body = (rule.documentation() if rule is not None else record.name).partition("\n")
    return f"**[{title}]({record.url})**\n{body}" if record.url else f"**{title}**\n{body}"


def _inside(position: types.Position, where: types.Range) -> bool:
    return where.start <= position <= where.end


@server.feature(
    types.TEXT_DOCUMENT_CODE_ACTION,
    types.CodeActionOptions(code_action_kinds=[types.CodeActionKind.QuickFix]),
)
def _actions(ls: Server, params: types.CodeActionParams) -> list[types.CodeAction]:
    uri = params.text_document.uri
    document = ls.documents.get(uri)
    if document is None or document.version != ls.workspace.get_text_document(uri).version:
        return []  # it has changed since, and the rows may be others
    actions: list[types.CodeAction] = []
    for each in document.shown:
        where = each.diagnostic.range
        if params.range.end < where.start or where.end < params.range.start:
            continue
        if each.fix is not None:
            unsafe = "" if each.fix.applicability == "safe" else " (unsafe fix)"
            actions.append(
                _action(ls, uri, f"{each.fix.message}{unsafe}", each, each.fix.edits, preferred=True)
            )
        if each.suppression is not None:
            title = f"Suppress {each.record.code} on this line"
            actions.append(_action(ls, uri, title, each, (each.suppression,), preferred=False))
    return actions


def _action(
    ls: Server, uri: str, title: str, shown: Shown, edits: Iterable[Edit], *, preferred: bool
) -> types.CodeAction:
    return types.CodeAction(
        title=f"streamsafe: {title}",
        kind=types.CodeActionKind.QuickFix,
        diagnostics=[shown.diagnostic],
        is_preferred=preferred,
        edit=types.WorkspaceEdit(changes={uri: ls.text_edits(uri, edits)}),
    )
