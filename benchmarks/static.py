"""How fast is ``streamsafe check``? Against ruff, torchfix, fixit and flake8-async, on published wheels.

    python benchmarks/static.py                      everything: about 20 minutes on two processors
    python benchmarks/static.py --quick              one round of each
    python benchmarks/static.py --only streamsafe ruff-all
    python benchmarks/static.py --check-prefilter    does --no-prefilter find the same? (accelerate, timm)

The wheels and the peers come from the package index through pip, once, into ``--cache``. What cannot be had
is named and left out. Rounds are interleaved: a machine that slows down slows every tool down alike.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import statistics
import subprocess
import sys
import venv
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from measure import Run, machine, python_files, run, streamsafe_command

WHEELS = {
    "diffusers": "0.42.1",
    "accelerate": "1.15.0",
    "transformers": "5.23.0",
    "pytorch-lightning": "2.6.6",
    "torchrec": "1.9.2",
    "megatron-core": "0.7.0",
    "sglang": "0.5.10.post1",
    "torchao": "0.18.0",
    "trl": "1.16.0",
    "peft": "0.21.2",
    "timm": "1.0.31",
}
# One fixed target, so that every machine measures the same files (two of the wheels are built for one).
TARGET = [
    "--python-version=3.11",
    "--implementation=cp",
    *("--abi=cp311", "--abi=abi3", "--abi=none"),
    *("--platform=manylinux_2_28_x86_64", "--platform=manylinux_2_24_x86_64"),
    *("--platform=manylinux_2_17_x86_64", "--platform=manylinux2014_x86_64", "--platform=any"),
]
# Each peer lives in its own environment: torchfix pins an old LibCST, fixit an old click.
PEERS = {
    "ruff": ["ruff==0.17.5"],
    "torchfix": ["torchfix==0.7.0"],
    "fixit": ["fixit==2.2.1"],
    "flake8-async": ["flake8==7.5.0", "flake8-async==26.8.1"],
}
# Files of sglang that change between two checks, as in a commit.
CHANGED = ("mem_cache/memory_pool.py", "models/llama.py", "managers/io_struct.py")
# A file with none of these words has no stream code.
STREAM_WORDS = re.compile(rb"[Ss]tream|non_blocking|[Gg]raph|elapsed_time|pin_memory|capture|perf_counter")
PREFILTER_WHEELS = ("accelerate", "timm")
PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]


@dataclass
class Tool:
    """One row of the table: a command on a tree, and its measurements."""

    name: str
    tree: str
    command: list[str]
    ok_codes: frozenset[int]
    rounds: int
    folder: Path | None = None  # where it runs
    before: Callable[[], object] | None = None  # what comes before each round, and is not measured
    runs: list[Run] = field(default_factory=list)

    def failed(self, result: Run) -> bool:
        """Whether a run did not do its work. A traceback ends with 1, as findings do."""
        return result.timed_out or result.returncode not in self.ok_codes or b"Traceback" in result.stderr


def say(text: str) -> None:
    """Progress goes to standard error; the table alone is on standard output."""
    print(text, file=sys.stderr, flush=True)


def default_cache() -> Path:
    """A folder of our own under the user's cache directory."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "streamsafe-benchmarks"


def fetch_wheel(name: str, version: str, cache: Path) -> Path | None:
    """Download and unpack one wheel's Python files, unless they are there already."""
    tree = cache / "wheels" / f"{name}-{version}"
    if tree.is_dir():
        return tree
    downloads = cache / "downloads"
    command = [*PIP, "download", "--no-deps", "--only-binary=:all:", *TARGET, "-d", str(downloads)]
    say(f"downloading {name} {version}")
    result = subprocess.run([*command, f"{name}=={version}"], capture_output=True, text=True, check=False)
    found = sorted(downloads.glob(f"{name.replace('-', '_')}-{version}-*.whl"))
    if result.returncode or not found:
        say(f"left out: {name} {version} could not be downloaded\n{result.stderr.strip()}")
        return None
    unfinished = tree.with_name(tree.name + ".part")
    with zipfile.ZipFile(found[0]) as wheel:
        wheel.extractall(unfinished, [entry for entry in wheel.namelist() if entry.endswith(".py")])
    unfinished.rename(tree)
    return tree


def peer_bin(name: str, cache: Path) -> Path | None:
    """The ``bin`` of the environment that holds one peer, made on first use."""
    home = cache / "venvs" / "-".join(PEERS[name]).replace("==", "-")
    folder = home / ("Scripts" if os.name == "nt" else "bin")
    ready = home / "ready"
    if ready.exists():
        return folder
    say(f"installing {', '.join(PEERS[name])}")
    venv.create(home, with_pip=True, clear=True)
    pip = [str(folder / "python"), "-m", "pip", "--disable-pip-version-check", "--quiet", "install"]
    result = subprocess.run([*pip, *PEERS[name]], capture_output=True, text=True, check=False)
    if result.returncode:
        say(f"left out: {', '.join(PEERS[name])} could not be installed\n{result.stderr.strip()}")
        return None
    ready.touch()
    return folder


def stream_free_tree(source: Path, cache: Path) -> Path:
    """A project without stream code: the files of ``source`` that hold none of the words."""
    tree = cache / "stream-free"
    if not tree.is_dir():
        unfinished = tree.with_name(tree.name + ".part")
        for path in python_files(source):
            data = path.read_bytes()
            if not STREAM_WORDS.search(data):
                copy = unfinished / path.relative_to(source)
                copy.parent.mkdir(parents=True, exist_ok=True)
                copy.write_bytes(data)
        unfinished.rename(tree)
    return tree


def warm_rows(kept: list[str], trees: dict[str, Path], cache: Path, rounds: int) -> list[Tool]:
    """With what earlier checks found: everything as it was, and three files of a large project that have changed."""
    folder = cache / "warm"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    command = [*kept, *map(str, trees.values())]
    codes = frozenset({0, 1})
    say("checking all wheels once, to have results to use")
    run(command, timeout=3600, keep_output=False, folder=folder)
    rows = [Tool("streamsafe, warm", "all wheels", command, codes, 3 * rounds, folder)]
    if "sglang" in trees:
        project = folder / "project"
        shutil.copytree(trees["sglang"], project)
        changed = [project / "sglang" / "srt" / name for name in CHANGED]
        say("checking a copy of sglang once, to have results to use")
        run([*kept, str(project)], timeout=3600, keep_output=False, folder=folder)

        def change() -> None:
            for path in changed:
                with path.open("a", encoding="utf-8") as file:
                    file.write("\n_changed = True\n")

        command = [*kept, *map(str, changed)]
        rows.append(
            Tool("streamsafe, 3 changed files", "sglang", command, codes, 3 * rounds, folder, before=change)
        )
    return rows


def tools(args: argparse.Namespace, trees: dict[str, Path]) -> list[Tool]:
    """The rows that were asked for and can be had."""
    everything = [str(tree) for tree in trees.values()]
    kept = [*streamsafe_command(), "check", "--isolated"]
    ours = [*kept, "--no-cache"]
    rounds, slow_rounds = (1, 1) if args.quick else (args.rounds, 3)
    wanted: Callable[[str], bool] = lambda name: not args.only or name in args.only  # noqa: E731
    rows: list[Tool] = []

    def add(name: str, tree: str, command: Sequence[str], codes: set[int], rounds: int) -> None:
        rows.append(Tool(name, tree, list(command), frozenset(codes), rounds))

    if wanted("streamsafe"):
        add("streamsafe", "all wheels", [*ours, *everything], {0, 1}, rounds)
        rows += warm_rows(kept, trees, args.cache, rounds)
    ruff = peer_bin("ruff", args.cache) if wanted("ruff") or wanted("ruff-all") else None
    if ruff:
        base = [str(ruff / "ruff"), "check", "--isolated", "--no-cache", "--no-respect-gitignore"]
        if wanted("ruff"):
            add("ruff", "all wheels", [*base, *everything], {0, 1}, rounds)
        if wanted("ruff-all"):
            # In its own format ruff spends most of its time printing; `concise` is the harder bar.
            for name, form in (("", []), (" --output-format concise", ["--output-format=concise"])):
                command = [*base, "--select=ALL", *form, *everything]
                add(f"ruff --select ALL{name}", "all wheels", command, {0, 1}, rounds)
    if "accelerate" in trees:
        one = str(trees["accelerate"])
        jobs = str(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count())
        if wanted("streamsafe"):
            add("streamsafe", "accelerate", [*ours, one], {0, 1}, max(rounds, slow_rounds))
        if wanted("torchfix") and (folder := peer_bin("torchfix", args.cache)):
            command = [str(folder / "torchfix"), "--select", "ALL", "-j", jobs, one]
            add("torchfix --select ALL", "accelerate", command, {0, 1}, slow_rounds)
        if wanted("fixit") and (folder := peer_bin("fixit", args.cache)):
            add("fixit lint", "accelerate", [str(folder / "fixit"), "lint", one], {0, 1}, slow_rounds)
        if wanted("flake8-async") and (folder := peer_bin("flake8-async", args.cache)):
            command = [str(folder / "flake8"), "--isolated", "--select=ASYNC", "-j", jobs, one]
            add("flake8 --select ASYNC", "accelerate", command, {0, 1}, slow_rounds)
    if wanted("stream-free") and "peft" in trees:
        clean = stream_free_tree(trees["peft"], args.cache)
        trees["stream-free"] = clean
        add("streamsafe", "stream-free", [*ours, str(clean)], {0}, 2 * rounds + 1)
    return rows


def measure(rows: list[Tool], timeout: float) -> None:
    """Run every row, one after the other, round by round."""
    for number in range(max((row.rounds for row in rows), default=0)):
        for row in rows:
            if number >= row.rounds:
                continue
            if row.before is not None:
                row.before()
            result = run(row.command, timeout=timeout, keep_output=False, folder=row.folder)
            if result.timed_out:
                say(f"{row.name} on {row.tree}: stopped after {timeout:.0f} s")
            elif row.failed(result):
                say(f"{row.name} on {row.tree}: exit code {result.returncode}")
                say(result.stderr.decode(errors="replace")[-2000:])
            row.runs.append(result)
            say(f"round {number + 1}: {row.name} on {row.tree}: {result.seconds:.2f} s")


def version_of(command: Sequence[str]) -> str:
    """What a tool says of its version, on one line."""
    result = subprocess.run([*command, "--version"], capture_output=True, text=True, check=False)
    return " ".join((result.stdout or result.stderr).split())


def table(rows: list[Tool], trees: dict[str, Path]) -> str:
    """The measurements as a Markdown table; the ratio is to streamsafe on the same files."""
    sizes = {
        name: (len(paths), sum(path.stat().st_size for path in paths))
        for name, paths in ((name, python_files(tree)) for name, tree in trees.items())
    }
    wheels = [size for name, size in sizes.items() if name != "stream-free"]
    sizes["all wheels"] = (sum(count for count, _ in wheels), sum(size for _, size in wheels))
    medians = {id(row): statistics.median(result.seconds for result in row.runs) for row in rows}
    base = {row.tree: medians[id(row)] for row in rows if row.name == "streamsafe"}
    lines = [
        "| tool | files of | files | MB | rounds | median s | fastest to slowest s | peak MB | times streamsafe |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row in sorted(rows, key=lambda row: (row.tree, medians[id(row)])):
        seconds = [result.seconds for result in row.runs]
        peak = max(result.peak_bytes for result in row.runs) / 1e6
        ratio = f"{medians[id(row)] / base[row.tree]:.2f}" if row.tree in base else ""
        failed = any(map(row.failed, row.runs))
        files, size = sizes[row.tree]
        lines.append(
            f"| {row.name}{' (failed)' if failed else ''} | {row.tree} | {files:,} | {size / 1e6:.1f} | "
            f"{len(seconds)} | {medians[id(row)]:.2f} | {min(seconds):.2f} to {max(seconds):.2f} | "
            f"{peak:.0f} | {ratio} |"
        )
    return "\n".join(lines)


def check_prefilter(trees: dict[str, Path], timeout: float) -> bool:
    """Compare the findings with and without the prefilter, byte for byte."""
    same = True
    for name, tree in trees.items():
        command = [*streamsafe_command(), "check", "--isolated", "--no-cache", "--confidence=possible"]
        command += ["--output-format=json", str(tree)]
        with_filter = run(command, timeout=timeout)
        without = run([*command, "--no-prefilter"], timeout=timeout)
        equal = (with_filter.stdout, with_filter.returncode) == (without.stdout, without.returncode)
        # a traceback ends with 1, too, and leaves no JSON
        worked = {with_filter.returncode, without.returncode} <= {0, 1} and bool(with_filter.stdout)
        same = same and equal and worked
        verdict = "the same" if equal else "DIFFERENT"
        print(
            f"{name}: {verdict if worked else 'FAILED'}: {len(with_filter.stdout):,} bytes in "
            f"{with_filter.seconds:.2f} s with the prefilter, {len(without.stdout):,} bytes in "
            f"{without.seconds:.2f} s (peak {without.peak_bytes / 1e6:.0f} MB) without"
        )
        for result in (with_filter, without):
            if result.returncode not in (0, 1) or not result.stdout:
                say(result.stderr.decode(errors="replace")[-2000:])
    return same


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = ["streamsafe", "ruff", "ruff-all", "torchfix", "fixit", "flake8-async", "stream-free"]
    parser.add_argument("--cache", type=Path, default=default_cache(), help="default: %(default)s")
    parser.add_argument("--quick", action="store_true", help="one round of each")
    parser.add_argument("--rounds", type=int, default=5, help="default: %(default)s")
    parser.add_argument("--only", nargs="+", choices=names, metavar="TOOL", help=", ".join(names))
    parser.add_argument("--timeout", type=float, default=600, help="seconds a run may take")
    parser.add_argument(
        "--check-prefilter",
        nargs="*",
        choices=WHEELS,
        metavar="WHEEL",
        help=f"compare findings with and without --no-prefilter (default: {', '.join(PREFILTER_WHEELS)})",
    )
    args = parser.parse_args()
    args.cache = args.cache.expanduser().resolve()
    args.cache.mkdir(parents=True, exist_ok=True)
    chosen = WHEELS if args.check_prefilter is None else args.check_prefilter or PREFILTER_WHEELS
    fetched = {name: fetch_wheel(name, WHEELS[name], args.cache) for name in chosen}
    trees = {name: tree for name, tree in fetched.items() if tree}
    if not trees:
        say("no wheel could be had: nothing to measure")
        return 2
    if args.check_prefilter is not None:
        return 0 if check_prefilter(trees, args.timeout) and len(trees) == len(fetched) else 1
    rows = tools(args, trees)
    for tree in trees.values():  # warm the page cache: the tools are compared, not the disk
        for path in python_files(tree):
            path.read_bytes()
    measure(rows, args.timeout)
    print(f"Machine: {machine()}\n")
    print("Wheels: " + ", ".join(f"{name} {WHEELS[name]}" for name in trees if name in WHEELS))
    peers = ", ".join(requirement for name in PEERS for requirement in PEERS[name])
    print(f"\nstreamsafe: {version_of(streamsafe_command())}; peers: {peers}\n")
    print(table(rows, trees))
    return 0


if __name__ == "__main__":
    sys.exit(main())
