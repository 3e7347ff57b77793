"""The settings: what is selected, excluded and hidden, which repairs are made, and models of the user's own wrappers.

The nearest `.streamsafe.toml`, `streamsafe.toml` or pyproject.toml with a `[tool.streamsafe]` table counts for a file,
in this order in one folder, as with ruff; a table takes in another one only where it says so with `extend`.
"""

from __future__ import annotations

import operator
import os
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal, get_args

from streamsafe.order.hazard import CONFIDENCES, SEVERITIES, Confidence, Severity
from streamsafe.project.version import __version__

Returns = Literal["unknown", "none", "tensor", "pinned", "stream", "current-stream", "event", "context"]
Allocator = Literal["torch", "cupy", "pinned"]

KEYS = (
    "extend",
    "select",
    "extend-select",
    "ignore",
    "per-file-ignores",
    "fixable",
    "unfixable",
    "extend-safe-fixes",
    "include",
    "exclude",
    "extend-exclude",
    "confidence",
    "per-file-confidence",
    "severity",
    "rule-severity",
    "output-format",
    "cache-dir",
    "required-version",
    "run",
    "models",
    "devices",
    "memory",
    "capability",
)
"""The keys of the table. The last three are the machine of a simulated run (`streamsafe/simulate/hardware.py`)."""

OWN_FILES = (".streamsafe.toml", "streamsafe.toml")
"""Files of which the whole is the table."""

RETURNS: tuple[str, ...] = get_args(Returns)
OWNERS: tuple[str, ...] = get_args(Allocator)


class ConfigError(Exception):
    """A configuration file that cannot be read, or an entry that means nothing; the message names both."""


@dataclass(frozen=True, slots=True)
class Model:
    """What one function, method or class of the user's does, in terms of streams. docs/models.md has an example.

    Wherever an argument is meant it is given by its parameter's name; ``self`` is a method's receiver.

    Attributes:
        parameters: names of the parameters in order, without ``self``; maps positional arguments to names.
        stream: the parameter that holds the stream it works on; ``current`` for the caller's current stream.
        reads, writes: arguments whose memory it reads or writes on that stream.
        waits: streams and events that that stream waits for.
        records: events that it records on that stream, and tensors that it records there (``record_stream``).
        synchronizes: streams and events that the host waits for; ``device`` for all streams of the device.
        allocates: whose pool its result comes from, allocated on that stream; None when it allocates nothing.
        host: whether ``reads`` and ``writes`` are done by the host instead of that stream.
        returns: what its result is: one of RETURNS, or the name of the parameter that it returns (a view counts).
    """

    parameters: tuple[str, ...] = ()
    stream: str = "current"
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    waits: tuple[str, ...] = ()
    records: tuple[str, ...] = ()
    synchronizes: tuple[str, ...] = ()
    allocates: Allocator | None = None
    host: bool = False
    returns: str = "unknown"


@dataclass(frozen=True, slots=True)
class Run:
    """`[tool.streamsafe.run]`: how programs and tests are watched.

    Attributes:
        suppressions: a suppression file (an absolute path); "" for none.
        fail_on: the least confidence of a hazard that makes a run fail.
        limit: how many hazards are shown; 0 for all.
    """

    suppressions: str = ""
    fail_on: Confidence = "possible"
    limit: int = 0


Models = Mapping[str, Model]
"""Models by the dotted name of what they describe, as it is imported: ``mylib.streams.copy_async``."""


@dataclass(frozen=True, slots=True)
class Config:
    """One `[tool.streamsafe]` table, checked.

    Attributes:
        path: the file it was read from; None for the defaults.
        root: the directory that patterns are relative to.
        select: selectors, or None when the default rules are on.
        per_file_ignores: (pattern, selectors) pairs; patterns as in .gitignore.
        fixable: selectors of the rules whose repairs are made; None for all.
        unfixable: selectors of the rules whose repairs are not made.
        extend_safe_fixes: selectors of the rules whose repairs count as safe.
        include: patterns of the files that are checked, as in .gitignore; none for Python files and notebooks.
        exclude: patterns, as in .gitignore, in addition to the usual directories; with those of `extend-exclude`.
        confidence: the least confidence that is shown.
        per_file_confidence: (pattern, confidence) pairs; of several that match, the last counts.
        severity: the least severity that is shown.
        rule_severity: (selector, severity) pairs: the severity of these rules, instead of their own.
        output_format: the format of the output where the command line names none; "" for the usual one.
        run: how programs and tests are watched.
        cache_dir: the folder in which results are kept (an absolute path); "" for the usual one.
    """

    path: str | None = None
    root: str = field(default_factory=os.getcwd)
    select: tuple[str, ...] | None = None
    extend_select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    per_file_ignores: tuple[tuple[str, tuple[str, ...]], ...] = ()
    fixable: tuple[str, ...] | None = None
    unfixable: tuple[str, ...] = ()
    extend_safe_fixes: tuple[str, ...] = ()
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    confidence: Confidence = "certain"
    per_file_confidence: tuple[tuple[str, Confidence], ...] = ()
    severity: Severity = "advice"
    rule_severity: tuple[tuple[str, Severity], ...] = ()
    output_format: str = ""
    cache_dir: str = ""
    run: Run = field(default_factory=Run)
    models: Models = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """As plain values, under the keys of the table, for `--show-settings`."""
        return {
            "path": self.path,
            "root": self.root,
            "select": list(self.select) if self.select is not None else None,
            "extend-select": list(self.extend_select),
            "ignore": list(self.ignore),
            "per-file-ignores": {pattern: list(codes) for pattern, codes in self.per_file_ignores},
            "fixable": list(self.fixable) if self.fixable is not None else None,
            "unfixable": list(self.unfixable),
            "extend-safe-fixes": list(self.extend_safe_fixes),
            "include": list(self.include),
            "exclude": list(self.exclude),
            "confidence": self.confidence,
            "per-file-confidence": dict(self.per_file_confidence),
            "severity": self.severity,
            "rule-severity": dict(self.rule_severity),
            "output-format": self.output_format or None,
            "cache-dir": self.cache_dir or None,
            "run": {
                "suppressions": self.run.suppressions or None,
                "fail-on": self.run.fail_on,
                "limit": self.run.limit or None,
            },
            "models": {
                name: {item.name: getattr(model, item.name) for item in fields(Model)}
                for name, model in sorted(self.models.items())
            },
        }


class Configs:
    """The configuration of each directory, found once.

    Args:
        given: what `--config` names: a file that counts for everything, and entries as TOML (``severity = "error"``),
            which are stronger than those of any file.
        isolated: look at no file (`--isolated`).
        exclude: patterns instead of those of the files (`--exclude`).
        extend_exclude: patterns in addition (`--extend-exclude`).

    Raises:
        ConfigError: on construction when ``given`` is unusable, later when a file that is found is.
    """

    def __init__(
        self,
        given: Sequence[str] = (),
        *,
        isolated: bool = False,
        exclude: tuple[str, ...] | None = None,
        extend_exclude: tuple[str, ...] = (),
    ) -> None:
        self._given, self._isolated = tuple(given), isolated
        self._exclude, self._extend_exclude = exclude, extend_exclude
        self._known: dict[str, Config] = {}
        self._fixed: Config | None = None
        files, self._entries = _given(self._given)
        if len(files) > 1:
            raise ConfigError(f"--config: two files, {files[0]} and {files[1]}; only one can count")
        if files and isolated:
            raise ConfigError(f"--config: --isolated reads no file, so not {files[0]}")
        if files:
            config = load(files[0], entries=self._entries)
            if config is None:
                raise ConfigError(f"{files[0]}: has no [tool.streamsafe] table")
            self._fixed = self._excluding(config)
        elif isolated:
            self._fixed = self._excluding(self._defaults())

    def of_directory(self, directory: str) -> Config:
        """The configuration that counts for the files of a directory (an absolute path)."""
        if self._fixed is not None:
            return self._fixed
        config = self._known.get(directory)
        if config is None:
            own = self._own(directory)
            parent = os.path.dirname(directory)
            if own is None and parent != directory:
                config = self.of_directory(parent)
            else:
                config = self._excluding(own or self._defaults())
            self._known[directory] = config
        return config

    def again(self) -> Configs:
        """The same, read anew: the files may have changed."""
        return Configs(
            self._given, isolated=self._isolated, exclude=self._exclude, extend_exclude=self._extend_exclude
        )

    def _own(self, directory: str) -> Config | None:
        """The configuration that a directory itself has; of several files the first that has a table."""
        for name in (*OWN_FILES, "pyproject.toml"):
            found = load(os.path.join(directory, name), missing_ok=True, entries=self._entries)
            if found is not None:
                return found
        return None

    def _defaults(self) -> Config:
        """What counts where no file does."""
        return parse(self._entries, None) if self._entries else Config()

    def _excluding(self, config: Config) -> Config:
        """A configuration with the patterns of the command line, which are relative to its root like its own."""
        if self._exclude is None and not self._extend_exclude:
            return config
        own = config.exclude if self._exclude is None else self._exclude
        return replace(config, exclude=(*own, *self._extend_exclude))


def _given(texts: Sequence[str]) -> tuple[list[str], dict[str, Any]]:
    """The files among the values of `--config`, and its entries; of two entries with one key the last counts."""
    files: list[str] = []
    entries: dict[str, Any] = {}
    for text in texts:
        if "=" not in text or os.path.isfile(text):
            files.append(text)
        else:
            entries = _merged(entries, _toml(text.encode(), f"--config {text!r}"))
    return files, entries


def load(path: str, *, missing_ok: bool = False, entries: Mapping[str, Any] | None = None) -> Config | None:
    """Read one file; None when it has no `[tool.streamsafe]` table (or, if allowed, does not exist).

    Args:
        entries: of the command line, stronger than those of the file.

    Raises:
        ConfigError: it cannot be read or is not TOML, or an entry means nothing.
    """
    try:
        with open(path, "rb") as file:
            data = file.read()
    except OSError as error:
        if missing_ok and isinstance(error, (FileNotFoundError, NotADirectoryError, PermissionError)):
            return None
        raise ConfigError(f"{path}: {error.strerror or error}") from error
    table = _own_table(data, path)
    if table is None:
        return None
    extended = _extended(table, path, ())
    return parse(_merged(extended, entries) if entries and isinstance(extended, dict) else extended, path)


def _own_table(data: bytes, path: str) -> Any:
    """The table of a file: the whole of a `streamsafe.toml`, `[tool.streamsafe]` of any other; None for none."""
    whole = _toml(data, path)
    if os.path.basename(path) in OWN_FILES:
        return whole
    tool = whole.get("tool", {})
    return tool["streamsafe"] if isinstance(tool, dict) and "streamsafe" in tool else None


def _extended(table: Any, path: str, extending: tuple[str, ...]) -> Any:
    """The table with what it takes in by `extend`: lists that begin with `extend-` add up, tables are merged."""
    where = f"{path}: tool.streamsafe"
    if not isinstance(table, dict) or "extend" not in table:
        return table
    own = {key: value for key, value in table.items() if key != "extend"}
    if not isinstance(table["extend"], str):
        raise ConfigError(f"{where}.extend: must be a string")
    chain = (*extending, os.path.abspath(path))
    target = os.path.abspath(os.path.join(os.path.dirname(chain[-1]), os.path.expanduser(table["extend"])))
    if target in chain:
        raise ConfigError(f"{where}.extend: {table['extend']} extends this file again")
    base = _raw(target, f"{where}.extend")
    base = _extended(base, target, chain)
    parse(base, target)  # an error there names that file
    return _merged(base, own)


def _merged(base: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """Two tables, of which the second is stronger: lists that begin with `extend-` add up, tables are merged."""
    merged = {**base, **own}
    for key in base.keys() & own.keys():
        if isinstance(base[key], dict) and isinstance(own[key], dict):
            merged[key] = {**base[key], **own[key]}
        elif key.startswith("extend-") and isinstance(base[key], list) and isinstance(own[key], list):
            merged[key] = [*base[key], *own[key]]
    return merged


def _raw(path: str, where: str) -> Any:
    """The `[tool.streamsafe]` table of a file that is extended."""
    try:
        with open(path, "rb") as file:
            data = file.read()
    except OSError as error:
        raise ConfigError(f"{where}: {path}: {error.strerror or error}") from error
    table = _own_table(data, path)
    if table is None:
        raise ConfigError(f"{where}: {path} has no [tool.streamsafe] table")
    return table


def _toml(data: bytes, path: str) -> dict[str, Any]:
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        return tomllib.loads(data.decode())
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path}: not valid TOML: {error}") from error


def parse(table: Any, path: str | None) -> Config:
    """Check a table.

    Args:
        path: the file that it stands in; None for entries of the command line alone.

    Raises:
        ConfigError: an unknown key, a value of the wrong kind, or a version that is not this one.
    """
    own = path is not None and os.path.basename(path) in OWN_FILES
    where = "--config" if path is None else path if own else f"{path}: tool.streamsafe"
    root = os.getcwd() if path is None else os.path.dirname(os.path.abspath(path))
    table = _table(table, where)
    _no_others(table, KEYS, where)
    confidence = table.get("confidence", "certain")
    _one_of(confidence, CONFIDENCES, f"{where}.confidence")
    severity = table.get("severity", "advice")
    _one_of(severity, SEVERITIES, f"{where}.severity")
    ignores = _table(table.get("per-file-ignores", {}), f"{where}.per-file-ignores")
    models = _table(table.get("models", {}), f"{where}.models")
    exclude = _strings(table.get("exclude", []), f"{where}.exclude")
    if "required-version" in table:
        _is_required(_string(table, "required-version", where), f"{where}.required-version")
    cache = os.path.expanduser(_string(table, "cache-dir", where))
    return Config(
        path=os.path.abspath(path) if path is not None else None,
        root=root,
        select=_strings(table["select"], f"{where}.select") if "select" in table else None,
        extend_select=_strings(table.get("extend-select", []), f"{where}.extend-select"),
        ignore=_strings(table.get("ignore", []), f"{where}.ignore"),
        per_file_ignores=tuple(
            (pattern, _strings(codes, f"{where}.per-file-ignores.{pattern!r}"))
            for pattern, codes in ignores.items()
        ),
        fixable=_strings(table["fixable"], f"{where}.fixable") if "fixable" in table else None,
        unfixable=_strings(table.get("unfixable", []), f"{where}.unfixable"),
        extend_safe_fixes=_strings(table.get("extend-safe-fixes", []), f"{where}.extend-safe-fixes"),
        include=_strings(table.get("include", []), f"{where}.include"),
        exclude=(*exclude, *_strings(table.get("extend-exclude", []), f"{where}.extend-exclude")),
        confidence=confidence,
        per_file_confidence=_choices(table, "per-file-confidence", CONFIDENCES, where),
        severity=severity,
        rule_severity=_choices(table, "rule-severity", SEVERITIES, where),
        output_format=_string(table, "output-format", where),
        cache_dir=os.path.join(root, cache) if cache else "",
        run=_run(_table(table.get("run", {}), f"{where}.run"), f"{where}.run", root),
        models={name: _model(entry, f'{where}.models."{name}"') for name, entry in models.items()},
    )


def _string(table: Mapping[str, Any], key: str, where: str) -> str:
    """A string of a table; "" where it has none."""
    value = table.get(key, "")
    if not isinstance(value, str):
        raise ConfigError(f"{where}.{key}: must be a string")
    return value


def _is_required(wanted: str, where: str) -> None:
    """See that this version is one that a project asks for: a version, or specifiers (``>=0.2,<1``)."""
    for text in wanted.split(","):
        found = _SPECIFIER.fullmatch(text.strip())
        if found is None:
            raise ConfigError(f"{where}: {wanted!r} is no version and no version specifier")
        asked, own = _release(found[2]), _release(__version__)
        if not _COMPARE[found[1] or "=="](own, asked):
            raise ConfigError(f"{where}: the project asks for streamsafe {wanted}, and this is {__version__}")


_SPECIFIER = re.compile(r"(==|!=|>=|<=|>|<)?\s*([0-9]+(?:\.[0-9]+)*)")
_COMPARE = {
    "==": operator.eq,
    "!=": operator.ne,
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
}


def _release(version: str) -> tuple[int, ...]:
    """The numbers of a version, without zeros at its end."""
    numbers = [int(each) for each in re.findall(r"[0-9]+", version)]
    while numbers and not numbers[-1]:
        numbers.pop()
    return tuple(numbers)


def _choices(table: dict[str, Any], key: str, allowed: tuple[str, ...], where: str) -> tuple[Any, ...]:
    """The pairs of a table whose values are each one of a few words."""
    entries = _table(table.get(key, {}), f"{where}.{key}")
    for name, value in entries.items():
        _one_of(value, allowed, f"{where}.{key}.{name!r}")
    return tuple(entries.items())


def _run(table: dict[str, Any], where: str, root: str) -> Run:
    _no_others(table, ("suppressions", "fail-on", "limit"), where)
    file = os.path.expanduser(_string(table, "suppressions", where))
    fail_on, limit = table.get("fail-on", "possible"), table.get("limit", 0)
    _one_of(fail_on, CONFIDENCES, f"{where}.fail-on")
    if type(limit) is not int or limit < 0:
        raise ConfigError(f"{where}.limit: must be a number, 0 for all")
    return Run(os.path.join(root, file) if file else "", fail_on, limit)


def _model(entry: Any, where: str) -> Model:
    entry = _table(entry, where)
    _no_others(entry, tuple(item.name for item in fields(Model)), where)
    lists = ("parameters", "reads", "writes", "waits", "records", "synchronizes")
    values: dict[str, Any] = {key: _strings(entry[key], f"{where}.{key}") for key in lists if key in entry}
    for key in ("stream", "returns"):
        if key in entry:
            if not isinstance(entry[key], str):
                raise ConfigError(f"{where}.{key}: must be a string")
            values[key] = entry[key]
    if "host" in entry:
        if not isinstance(entry["host"], bool):
            raise ConfigError(f"{where}.host: must be true or false")
        values["host"] = entry["host"]
    if "allocates" in entry:
        _one_of(entry["allocates"], OWNERS, f"{where}.allocates")
        values["allocates"] = entry["allocates"]
    model = Model(**values)
    names = {*model.parameters, "self"}
    used = {key: getattr(model, key) for key in lists[1:]}
    used["stream"] = (model.stream,)
    used["returns"] = (model.returns,)
    words = {"stream": {"current"}, "synchronizes": {"device"}, "returns": set(RETURNS)}
    for key, arguments in used.items():
        for argument in arguments:
            if argument not in names and argument not in words.get(key, set()):
                allowed = ", ".join(sorted(names | words.get(key, set())))
                raise ConfigError(f"{where}.{key}: {argument!r} is none of {allowed}; list it in parameters")
    return model


def _table(value: Any, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ConfigError(f"{where}: must be a table")
    return value


def _strings(value: Any, where: str) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise ConfigError(f"{where}: must be a list of strings")
    return tuple(value)


def _one_of(value: Any, allowed: tuple[str, ...], where: str) -> None:
    if value not in allowed:
        raise ConfigError(f"{where}: must be one of {', '.join(allowed)}, not {value!r}")


def _no_others(table: Mapping[str, Any], known: tuple[str, ...], where: str) -> None:
    for key in table:
        if key not in known:
            raise ConfigError(f"{where}: unknown key {key!r}; known are {', '.join(known)}")
