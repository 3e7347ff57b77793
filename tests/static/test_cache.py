"""Results kept between runs: what was found comes back, nothing stale does, a broken cache costs time only."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from streamsafe.static.analyze import analyze
from streamsafe.static.cache import Cache, Result

TEXT = """
import torch

def bad(x, path):
    side = torch.cuda.Stream()
    y = x.cuda() + 1
    with torch.cuda.stream(side):
        z = y * 2
    y.record_stream(side)
    torch.tensor([1, 2]).to("cuda", non_blocking=True)
    return x.to("cpu", non_blocking=True).tolist()
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "main.py"
    path.write_text(TEXT)
    return path


def found_in(file: Path) -> Result:
    analysis = analyze(file.read_text(), str(file))
    assert len(analysis.conflicts) == 3
    return Result(analysis.conflicts, ["bad: too many statements"], [str(file)])


def entries(folder: Path) -> list[Path]:
    return sorted(folder.glob("*/*.json"))


def test_what_was_found_comes_back(file: Path, tmp_path: Path) -> None:
    found, cache = found_in(file), Cache(str(tmp_path / "cache"))
    assert cache.get("main") is None
    cache.put("main", found)
    assert Cache(str(tmp_path / "cache")).get("main") == found
    assert cache.get("another") is None
    assert (tmp_path / "cache" / ".gitignore").read_text() == "*\n"
    assert not cache.problems


def test_a_file_that_was_parsed_has_changed(file: Path, tmp_path: Path) -> None:
    Cache(str(tmp_path / "cache")).put("main", found_in(file))
    file.write_text(TEXT.replace("y * 2", "y * 3"))
    assert Cache(str(tmp_path / "cache")).get("main") is None
    file.write_text(TEXT)
    assert Cache(str(tmp_path / "cache")).get("main") is not None
    file.unlink()
    assert Cache(str(tmp_path / "cache")).get("main") is None


def test_a_file_that_was_looked_through_has_changed(file: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.py"
    other.write_text("import main\n")
    Cache(str(tmp_path / "cache")).put("main", Result(looked=[str(other)]))
    assert Cache(str(tmp_path / "cache")).get("main") is not None
    other.write_text("import main as m\n")
    assert Cache(str(tmp_path / "cache")).get("main") is None


def test_a_module_that_was_not_there_is(tmp_path: Path) -> None:
    Cache(str(tmp_path / "cache")).put("main", Result(absent=[str(tmp_path / "helper")]))
    assert Cache(str(tmp_path / "cache")).get("main") is not None
    (tmp_path / "helper").mkdir()
    assert Cache(str(tmp_path / "cache")).get("main") is None


def test_other_options_have_other_results(file: Path, tmp_path: Path) -> None:
    Cache(str(tmp_path / "cache"), ["wrappers"]).put("main", found_in(file))
    assert Cache(str(tmp_path / "cache")).get("main") is None
    assert Cache(str(tmp_path / "cache"), ["wrappers"]).get("main") is not None


@pytest.mark.parametrize("damage", ["not JSON", "{}", "[]", ""])
def test_a_broken_entry_is_made_again(file: Path, tmp_path: Path, damage: str) -> None:
    found, cache = found_in(file), Cache(str(tmp_path / "cache"))
    cache.put("main", found)
    (entry,) = entries(tmp_path / "cache")
    entry.write_text(damage)
    assert cache.get("main") is None
    (problem,) = cache.problems
    assert problem.startswith(f"an entry of {tmp_path / 'cache'} cannot be used (")
    cache.put("main", found)
    assert cache.get("main") == found


def test_a_cache_that_cannot_be_written_is_a_problem(file: Path, tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file, not a directory")
    cache = Cache(str(tmp_path / "cache"))
    assert cache.get("main") is None
    cache.put("main", found_in(file))
    assert f"{tmp_path / 'cache'} cannot be written: Not a directory" in cache.problems


WRITER = """
import sys
from streamsafe.static.cache import Cache, Result
for number in range(50):
    cache = Cache(sys.argv[1])
    cache.put("main", Result(notes=["a note"] * 100))
    result = cache.get("main")
    assert result is not None and len(result.notes) == 100 and not cache.problems, cache.problems
"""


def test_runs_at_the_same_time_do_not_disturb_each_other(tmp_path: Path) -> None:
    running = [
        subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path)], stderr=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    assert [process.communicate()[1] for process in running] == [""] * 3
    assert len(entries(tmp_path)) == 1
    assert not list(tmp_path.rglob("tmp*"))
