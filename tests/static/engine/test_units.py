"""What is analysed together: all files of a package with stream code, and scripts that import each other."""

from __future__ import annotations

from pathlib import Path

from streamsafe.order.hazard import Access, Conflict, Facts, Memory, Missing, Note, Span
from streamsafe.static.cache import decode, encode
from streamsafe.static.units import group, package_of


def write(root: Path, **files: str) -> dict[str, str]:
    paths = {}
    for name, text in files.items():
        path = root / (name.replace("__", "/") + ".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        paths[name] = str(path)
    return paths


def test_a_package_is_one_unit_whoever_is_named(tmp_path: Path) -> None:
    package = tmp_path / "pkg"
    (package / "sub").mkdir(parents=True)
    for folder in (package, package / "sub"):
        (folder / "__init__.py").write_text("")
    (package / "one.py").write_text("stream")
    (package / "sub" / "two.py").write_text("stream")
    (package / "none.py").write_text("")
    one, two = str(package / "one.py"), str(package / "sub" / "two.py")
    for named in ([one], [two], [one, two]):
        (unit,) = group(dict.fromkeys(named, True), lambda data: b"stream" in data)
        assert unit.files == (one, two)
        assert str(package / "none.py") in unit.others


def test_scripts_that_import_each_other_are_one_unit(tmp_path: Path) -> None:
    paths = write(
        tmp_path, a="import b\nstream", b="from c import x\nstream", c="stream", d="stream", e="import a\n"
    )
    units = group({paths["b"]: True, paths["d"]: True}, lambda data: b"stream" in data)
    assert [unit.files for unit in units] == [(paths["a"], paths["b"], paths["c"]), (paths["d"],)]


def test_conflicts_survive_the_cache() -> None:
    span = Span("a.py", 1, 2, 3, 4)
    conflict = Conflict(
        Access("copy_", "`s`", "writes", span),
        Access("read", "host", "reads", None),
        Memory("x", "torch", (2, 3)),
        Facts(host="reads", ineffective_wait=True),
        Missing("a", "b", "fix"),
        notes=(Note("here", span, role="allocated"), Note("there")),
        confidence="likely",
    )
    assert decode(encode(conflict)) == conflict


def test_a_folder_without_init_in_a_package_is_part_of_it(tmp_path: Path) -> None:
    inner = tmp_path / "pkg" / "plain"
    outside = tmp_path / "pkg" / "not-a-name"
    for folder in (inner, outside):
        folder.mkdir(parents=True)
        (folder / "one.py").write_text("stream")
    (tmp_path / "pkg" / "__init__.py").write_text("")
    (tmp_path / "pkg" / "two.py").write_text("stream")
    names = ("pkg/plain/one.py", "pkg/two.py")
    inside = tuple(str(tmp_path / name) for name in names)
    units = group(dict.fromkeys(inside, True), lambda data: b"stream" in data)
    (unit,) = units
    assert unit.files == inside
    assert package_of(str(inner)) == package_of(str(tmp_path / "pkg")) == str(tmp_path / "pkg")
    assert package_of(str(outside)) is None
    assert package_of(str(tmp_path)) is None


def test_nothing_above_a_project_is_a_package(tmp_path: Path) -> None:
    project = tmp_path / "project"
    (project / "tools").mkdir(parents=True)
    (tmp_path / "__init__.py").write_text("")
    (project / "pyproject.toml").write_text("")
    assert package_of(str(project / "tools")) is None
