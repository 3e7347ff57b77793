"""Which of torch and CuPy the code of a file is written for: each has a current stream of its own (CI-02)."""

from __future__ import annotations

from collections import defaultdict

from streamsafe.static.source import SourceFile

_PACKAGES = {"torch": "torch", "cupy": "cupy", "cupyx": "cupy"}


class Libraries:
    """Tells for a function whose arrays, events and streams the objects of unknown origin are that it uses.

    In a file that imports one library they are that library's. In a file that imports both, a function goes by the one
    that it names, so what the rest of the file imports has no say.
    """

    def __init__(self, file: SourceFile) -> None:
        self._file = file
        self._names: dict[str, str] = {}
        for name, imported in file.imports.items():
            library = _PACKAGES.get(imported.partition(".")[0])
            if library is not None:
                self._names[name] = library
        self.imported = frozenset(self._names.values())
        """Those that the file imports."""
        self._by_function: dict[str, frozenset[str]] = {}
        self._by_top: dict[str, frozenset[str]] = {}

    def around(self, qualname: str) -> frozenset[str]:
        """What a function names of the libraries; if nothing, what the top-level function or class around it names."""
        own = self._by_function.get(qualname)
        if own is None:
            own = self._by_function[qualname] = self._named_by(qualname) or self._named_in(qualname)
        return own

    def _named_by(self, qualname: str) -> frozenset[str]:
        definitions = self._file.definitions.get(qualname, ())
        mentioned: frozenset[str] = frozenset().union(*(d.calls for d in definitions))
        return frozenset(library for name, library in self._names.items() if name in mentioned)

    def _named_in(self, qualname: str) -> frozenset[str]:
        if not self._by_top:
            found: dict[str, set[str]] = defaultdict(set)
            for inner, definitions in self._file.definitions.items():
                found[definitions[0].top] |= self._named_by(inner)
            self._by_top = {top: frozenset(libraries) for top, libraries in found.items()}
        return self._by_top.get(qualname.partition(".")[0], frozenset())
