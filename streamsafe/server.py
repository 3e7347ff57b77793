"""`streamsafe server`: a language server. Diagnostics as one types, the rule on hover, repairs as code actions.

https://microsoft.github.io/language-server-protocol/specifications/lsp/3.17/specification/
"""

from __future__ import annotations

import asyncio
import difflib
import json
import os
import sys
import threading
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

from lsprotocol import types
from pygls import uris
from pygls.lsp.server import LanguageServer

from streamsafe.findings.checking import Request
from streamsafe.findings.collect import Finding, Texts
from streamsafe.findings.edits import Edit, Fix
from streamsafe.order.hazard import CONFIDENCES
from streamsafe.project.files import File, discover
from streamsafe.project.settings import ConfigError, Configs
from streamsafe.project.version import __version__
from streamsafe.repairs.checking import check
from streamsafe.repairs.noqa import additions
from streamsafe.repairs.repair import fix_of, repair
from streamsafe.report.json import as_dict
from streamsafe.report.record import Place, Record, records
from streamsafe.rule import RegistryError, find_rule

DELAY = 0.3
"""Seconds without a keystroke after which a document is checked."""
STACK = 64 * 1024 * 1024
"""Bytes of stack of the thread that checks: nested source is analysed by nested calls."""
SOURCE = "streamsafe"
MARK = b"\xef\xbb\xbf"
"""It says that a text is UTF-8, whatever encoding its first lines declare."""
FIX_ALL = "source.fixAll.streamsafe"
"""The kind of the action that makes all safe repairs of a file; an editor can ask for it when a file is saved."""

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
    """The client's ``initializationOptions``; each stands above the configuration files.

    Attributes:
        workspace: whether files that are not open are checked, too.
    """

    select: tuple[str, ...] | None = None
    extend_select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    confidence: Any = None
    config: str | None = None
    workspace: bool = False

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
            given.get("workspace") is True,
        )

    def arguments(self) -> list[str]:
        """The same as options of ``streamsafe check``."""
        options = {
            "--select": ",".join(self.select) if self.select is not None else None,
            "--extend-select": ",".join(self.extend_select) or None,
            "--ignore": ",".join(self.ignore) or None,
            "--confidence": self.confidence,
            "--config": self.config,
        }
        return [word for name, value in options.items() if value is not None for word in (name, value)]


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
        self.closed: set[str] = set()
        """Files that are not open and have something to show."""
        self.pending: asyncio.Task[None] | None = None
        """The check of the workspace that waits, or that is under way."""
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
            data = MARK + opened.source.encode("utf-8", "replace")
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

    def schedule_workspace(self) -> None:
        """Check the files that are not open, if the client wants that; a check that is under way is given up."""
        if self.settings.workspace:
            if self.pending is not None:
                self.pending.cancel()
            self.pending = asyncio.get_running_loop().create_task(self._check_workspace())

    async def _check_workspace(self) -> None:
        """Run `streamsafe check` on the folders: a process of its own lets the open files be checked meanwhile."""
        await asyncio.sleep(DELAY)
        folders = [*self.workspace.folders] or [self.workspace.root_uri or ""]  # the older of the two
        paths = [path for uri in folders if (path := uris.to_fs_path(uri))]
        options = [*self.settings.arguments(), "--output-format", "json", "--exit-zero", "--quiet"]
        if not paths:
            return
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "streamsafe", "check", *options, "--", *paths),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            cwd=paths[0],
        )
        try:
            out, error = await process.communicate()
        except asyncio.CancelledError:
            process.terminate()
            raise
        if process.returncode:
            return self._complain(error.decode(errors="replace").strip())
        texts, found = Texts(), dict[str, list[types.Diagnostic]]()
        for record in records(json.loads(out)):
            if record.place is not None:
                uri = uris.from_fs_path(os.path.abspath(record.place.filename)) or ""
                found.setdefault(uri, []).append(self._diagnostic(record, texts, ()))
        for uri in self.closed | found.keys():
            if uri not in self.documents:
                self._publish(uri, found.get(uri, []))
        self.closed = found.keys() - self.documents.keys()

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
        self.schedule_workspace()

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
            streamsafe.rule.RegistryError: a selector names no rule.
        """
        path, request, files = self._request(path)
        report = check(request, files, {path: data})
        texts = report.texts
        if texts is None:
            return []
        found = [finding for finding in report.findings if finding.span.filename == path]
        fixes = [fix_of(finding, texts) for finding in found]
        described = records(as_dict(each, texts, fix) for each, fix in zip(found, fixes, strict=True))
        return [self._shown(*each, texts, cells) for each in zip(found, described, fixes, strict=True)]

    def repaired(self, path: str, data: bytes) -> bytes:
        """A file after all its safe repairs; as it is where there is none.

        Args:
            path: where the file is, or would be.
            data: its bytes.

        Raises:
            streamsafe.project.settings.ConfigError: a configuration file is unusable.
            streamsafe.rule.RegistryError: a selector names no rule.
        """
        path, request, files = self._request(path)
        given = {path: data}
        report = check(request, files, given)
        done = repair(report, files, lambda which, now: check(request, which, now), given, unsafe=False)
        return done.changed.get(path, data)

    def _request(self, path: str) -> tuple[str, Request, list[File]]:
        """How a document is checked: its path, and the file if no configuration excludes it."""
        path = os.path.abspath(path)
        configs = Configs((self.settings.config,) if self.settings.config else ())
        if os.path.isfile(path):
            files = discover([path], configs, force_exclude=True).files
        else:
            files = [File(path, configs.of_directory(os.path.dirname(path)), named=True)]
        layer = (self.settings.select, self.settings.extend_select, self.settings.ignore)
        return path, Request(configs, layer, self.settings.confidence, jobs=1), files

    def _shown(
        self, finding: Finding, record: Record, fix: Fix | None, texts: Texts, cells: tuple[str, ...]
    ) -> Shown:
        assert record.place is not None
        diagnostic = self._diagnostic(record, texts, cells)
        suppressing, _ = additions([finding], texts)
        edits = [edit for changes in suppressing.values() for edit in changes]
        suppression = edits[0] if edits and not record.code.startswith("SS9") else None
        cell = _address(record.place, cells) if cells else ""
        return Shown(record, cell, diagnostic, fix, suppression)

    def _diagnostic(self, record: Record, texts: Texts, cells: tuple[str, ...]) -> types.Diagnostic:
        """A finding as a client wants it, with its other places as related ones, each place once."""
        assert record.place is not None
        places = {replace(each, message=""): each for each in (*record.witness[::-1], *record.related[::-1])}
        places.pop(record.place, None)
        related = [
            types.DiagnosticRelatedInformation(
                types.Location(_address(place, cells), self._range(place, texts)), place.message
            )
            for place in (*record.related, *record.witness)
            if any(place is each for each in places.values())
        ]
        help_ = "".join(f"\nassumes that {text}" for text in record.assumptions)
        help_ += f"\nhelp: {record.help}" if record.help else ""
        return types.Diagnostic(
            range=self._range(record.place, texts),
            message=f"{record.sentence}{help_}",
            severity=_SEVERITIES[record.severity],
            code=record.code,
            code_description=types.CodeDescription(record.url) if record.url else None,
            source=SOURCE,
            related_information=related,
            tags=[types.DiagnosticTag.Unnecessary] if record.code == "SS901" else None,
        )

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


@server.feature(types.INITIALIZED)
async def _initialized(ls: Server, params: types.InitializedParams) -> None:
    ls.schedule_workspace()


@server.feature(types.SHUTDOWN)
async def _shutdown(ls: Server, params: None) -> None:
    if ls.pending is not None:
        ls.pending.cancel()


@server.feature(types.WORKSPACE_DID_CHANGE_WORKSPACE_FOLDERS)
async def _folders(ls: Server, params: types.DidChangeWorkspaceFoldersParams) -> None:
    ls.schedule_workspace()


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
    ls.schedule_workspace()


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
    pages = dict.fromkeys(_about(each.record) for each in here)
    if not here:
        return None
    text = "\n\n---\n\n".join(pages)
    return types.Hover(types.MarkupContent(types.MarkupKind.Markdown, text), here[0].diagnostic.range)


def _about(record: Record) -> str:
    """What a rule reports and why that is bad, with a link to its page, which has an example and its repair."""
    rule = find_rule(record.code)
    if rule is None:
        return f"**{record.code} {record.name}**"
    title, _, body = rule.documentation().partition("\n")
    said = body.partition("## What it does\n")[2].partition("\n## Example")[0]
    what, _, why = said.partition("## Why is this bad?\n")
    link = f"\n\n[Example, repair and limits of {record.code}]({record.url})" if record.url else ""
    return f"**{title}**\n\n{what.strip()}\n\n{why.strip()}{link}"


def _inside(position: types.Position, where: types.Range) -> bool:
    return where.start <= position <= where.end


@server.feature(
    types.TEXT_DOCUMENT_CODE_ACTION,
    types.CodeActionOptions(code_action_kinds=[types.CodeActionKind.QuickFix, FIX_ALL]),
)
async def _actions(ls: Server, params: types.CodeActionParams) -> list[types.CodeAction]:
    uri, asked = params.text_document.uri, params.context.only
    document = ls.documents.get(uri)
    if document is None or document.version != ls.workspace.get_text_document(uri).version:
        return []  # it has changed since, and the rows may be others
    actions = _single(ls, uri, document, params.range) if _wants(asked, types.CodeActionKind.QuickFix) else []
    if asked and _wants(asked, FIX_ALL):  # it takes a check: not each time the cursor moves
        actions += await _fix_all(ls, uri, document)
    return actions


def _wants(asked: Sequence[str] | None, kind: str) -> bool:
    """Whether a client asks for actions of a kind; ``source`` stands for all kinds that begin so."""
    return asked is None or any(kind == each or kind.startswith(f"{each}.") for each in asked)


def _single(ls: Server, uri: str, document: Document, here: types.Range) -> list[types.CodeAction]:
    """The repairs and suppressions of single findings at a place."""
    actions: list[types.CodeAction] = []
    for each in document.shown:
        where = each.diagnostic.range
        if here.end < where.start or where.end < here.start:
            continue
        if each.fix is not None:
            safe = each.fix.applicability == "safe"
            title = each.fix.message if safe else f"{each.fix.message} (unsafe fix)"
            actions.append(_action(ls, uri, title, each, each.fix.edits, preferred=safe))
        if each.suppression is not None:
            title = f"Suppress {each.record.code} on this line"
            actions.append(_action(ls, uri, title, each, (each.suppression,), preferred=False))
    return actions


async def _fix_all(ls: Server, uri: str, document: Document) -> list[types.CodeAction]:
    """One action that makes all safe repairs of a file, each of which ends its finding."""
    safe = [each for each in document.shown if each.fix is not None and each.fix.applicability == "safe"]
    if not safe:
        return []
    opened = ls.workspace.get_text_document(uri)
    path, version, before = uris.to_fs_path(uri) or uri, opened.version, opened.source
    data = MARK + before.encode("utf-8", "replace")
    loop = asyncio.get_running_loop()
    try:
        repaired = await loop.run_in_executor(ls.checker, ls.repaired, path, data)
    except (ConfigError, RegistryError):  # the check of the document has said so
        return []
    if repaired == data or ls.workspace.get_text_document(uri).version != version:
        return []
    edits = _line_edits(before, repaired.removeprefix(MARK).decode())
    return [
        types.CodeAction(
            title="streamsafe: Make all safe repairs of this file",
            kind=FIX_ALL,
            diagnostics=[each.diagnostic for each in safe],
            edit=types.WorkspaceEdit(changes={uri: edits}),
        )
    ]


def _line_edits(before: str, after: str) -> list[types.TextEdit]:
    """The edits of whole lines that make one text of another."""
    old, new = before.splitlines(keepends=True), after.splitlines(keepends=True)
    changes = difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes()
    return [
        types.TextEdit(
            types.Range(types.Position(start, 0), types.Position(end, 0)), "".join(new[first:last])
        )
        for kind, start, end, first, last in changes
        if kind != "equal"
    ]


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
