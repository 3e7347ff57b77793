"""Files that are spread over processes."""

from __future__ import annotations

from itertools import chain

import pytest

from streamsafe.check import processes
from streamsafe.check.task import Checked, Task

SIZES = {"few": [5, 1], "one large": [1, 1, 900, 1], "many": [7] * 100, "empty": [0, 0, 0]}


def _tasks(sizes: list[int]) -> list[Task]:
    return [Task(f"pkg{n % 3}/file{n}.py", size, {}) for n, size in enumerate(sizes)]


def _check(task: Task) -> Checked:
    return Checked(task.path, notes=[str(task.size)])


@pytest.mark.parametrize("name", SIZES)
def test_each_file_is_in_one_share_beside_its_neighbours(name: str) -> None:
    tasks = _tasks(SIZES[name])
    shares = processes._shares(tasks, 8)
    order = [tasks[at].path for at in chain(*shares)]
    assert order == sorted(task.path for task in tasks)
    assert len(shares) <= 9


@pytest.mark.parametrize("name", SIZES)
def test_results_come_in_the_order_of_the_files(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "PARALLEL_FROM", 0)
    tasks = _tasks(SIZES[name])
    seen: list[str] = []
    found = processes.check_all(tasks, _check, 2, finished=lambda checked: seen.append(checked.path))
    assert [(each.path, each.notes) for each in found] == [(t.path, [str(t.size)]) for t in tasks]
    assert sorted(seen) == sorted(t.path for t in tasks)
