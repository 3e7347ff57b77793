"""Write the pages that come from the code: ``python docs/generate.py``.

The rules' pages, their list and their lines in the menu of mkdocs.yml come from the rules' modules, the command line's
page from its options. In pages that are written by hand, a block after one of these comments is filled in:

* ``<!-- output: streamsafe check ... -->``: what the command prints, in the project's root or, if the page has any,
  beside the blocks that are marked ``<!-- source: NAME CODES -->``;
* ``<!-- file: PATH -->``: the file;
* ``<!-- install EXTRA -->``: how to install, which depends on whether the changelog has a released version.
"""

from __future__ import annotations

import ast
import importlib
import json
import os
import re
import shlex
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from streamsafe.rule import Rule, all_rules

if TYPE_CHECKING:
    import click

DOCS = Path(__file__).parent
ROOT = DOCS.parent
SOURCE = re.compile(r"<!-- source: (\S+)((?: SS\d+)*) -->\n```python\n(.*?)```", re.DOTALL)
OUTPUT = re.compile(r"(<!-- output: streamsafe ([^\n]*) -->\n```text\n)(.*?)(```)", re.DOTALL)
FILE = re.compile(r"(<!-- file: (\S+) -->\n(````?)\w+\n)(.*?)(^\3$)", re.DOTALL | re.MULTILINE)
INSTALL = re.compile(r"(<!-- install ?(\w*) -->\n)(.*?)(<!-- end -->)", re.DOTALL)
MENU = re.compile(r"(?: +- \w+ [\w-]+: rules/[\w-]+\.md\n)+")
FAMILIES = {
    "SS1": ("Order between streams", "Two streams use one tensor, and nothing orders them."),
    "SS2": ("Memory reused too early", "An allocator reuses memory while a stream still uses it."),
    "SS3": ("The host", "The host reads or writes memory, or reads a clock, before a stream has finished."),
    "SS4": ("Graph captures", "A CUDA graph does not record what the program is meant to do."),
    "SS5": (
        "Between libraries",
        "Two libraries share memory, and neither waits for the stream of the other.",
    ),
    "SS9": ("Housekeeping", "Files that cannot be checked, and suppressions."),
}
FIXES = {
    None: "No repair: it depends on what the program is meant to do.",
    "safe": "Safe: `--fix` removes it. The program does the same as before.",
    "unsafe": "Unsafe: `--fix --unsafe-fixes` adds the missing wait or synchronize, where one place is certain. The "
    "program may become slower. `--diff --unsafe-fixes` shows the change first.",
}
FOUND_BY = {"check": "`streamsafe check`", "run": "`streamsafe run`"}


def pages() -> dict[Path, str]:
    """Every generated file and its content."""
    rules = list(all_rules().values())
    written = {DOCS / "rules" / f"{rule.name}.md": page(rule) for rule in rules}
    written[DOCS / "rules.md"] = index(rules)
    written[DOCS / "cli.md"] = command_line()
    menu = "".join(f"      - {rule.code} {rule.name}: rules/{rule.name}.md\n" for rule in rules)
    site = ROOT / "mkdocs.yml"
    written[site] = MENU.sub(menu, site.read_text(encoding="utf-8"), count=1)
    for path in (ROOT / "README.md", *sorted(DOCS.rglob("*.md"))):
        if path not in written:
            text = path.read_text(encoding="utf-8")
            if OUTPUT.search(text) or FILE.search(text) or INSTALL.search(text):
                written[path] = filled(text)
    return written


def filled(text: str) -> str:
    """A page with its outputs and files as they are now."""
    with tempfile.TemporaryDirectory() as folder:
        sources = SOURCE.findall(text)
        for name, _, source in sources:
            Path(folder, name).write_text(source, encoding="utf-8")
        where = Path(folder) if sources else ROOT
        text = INSTALL.sub(lambda match: match[1] + install(match[2]) + match[4], text)
        text = OUTPUT.sub(lambda match: match[1] + output(match[2], where) + match[4], text)
    return FILE.sub(lambda match: match[1] + (ROOT / match[2]).read_text(encoding="utf-8") + match[5], text)


def released() -> bool:
    """Whether the changelog has a version that is released."""
    versions = re.findall(r"^## .*$", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    return any("unreleased" not in version.lower() for version in versions)


def install(extra: str) -> str:
    """How to install streamsafe: from the package index, or from a checkout before the first release."""
    name = f"'streamsafe[{extra}]'" if extra else "streamsafe"
    if released():
        return f"```sh\npip install {name}\n```\n"
    here = f"'./streamsafe[{extra}]'" if extra else "./streamsafe"
    return (
        f"```sh\ngit clone https://github.com/streamsafe/streamsafe\npip install {here}\n```\n\n"
        f"streamsafe is not released yet. After the first release, `pip install {name}` is enough.\n"
    )


def output(command: str, where: Path) -> str:
    """What a command prints in a folder."""
    from click.testing import CliRunner

    from streamsafe.cli import main

    before = Path.cwd()
    os.chdir(where)
    try:
        return CliRunner().invoke(main, shlex.split(command)).stdout
    finally:
        os.chdir(before)


def page(rule: Rule) -> str:
    """One rule's page: what `streamsafe rule CODE` prints, with what the code knows of the rule."""
    title, _, body = rule.documentation().partition("\n")
    facts = [
        f"**Severity** {rule.severity}",
        f"**Default** {'on' if rule.default else 'off'}",
        f"**Found by** {' and '.join(FOUND_BY[side] for side in rule.sides)}",
        f"**Fix** {rule.fix or 'none'}",
    ]
    own = "## Fix safety" in body
    before, references, after = body.partition("## References")
    problems = (
        ""
        if "## Known problems" in body
        else "## Known problems\nNone beyond the general [limits](../limits.md).\n\n"
    )
    safety = "" if own else f"## Fix safety\n{FIXES[rule.fix]}\n\n"
    example, known, limits = before.partition("## Known problems")
    shown = f"{example}{report(rule)}{wrong_data(rule.code)}{known}{limits}"
    return f"# {title}\n\n{' · '.join(facts)}\n{shown}{problems}{safety}{references}{after}\n"


def report(rule: Rule) -> str:
    """A program with the hazard, what the check prints of it, and the repair; empty where only a run finds it."""
    if rule.code.startswith(
        "SS9"
    ):  # what is said of a file that does not parse depends on the version of Python
        return ""
    source = re.sub(r"  # expect: [\w ]+$", "", getattr(rule, "bad", ""), flags=re.MULTILINE)
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "program.py").write_text(source, encoding="utf-8")
        command = f"check program.py --isolated --quiet --no-cache --select {rule.code}"
        for confidence in ("", " --confidence likely"):
            printed = output(command + confidence, Path(folder)).rstrip()
            if printed:
                break
        else:
            return ""
        repair = output(f"{command}{confidence} --diff --fix-only --unsafe-fixes", Path(folder)).rstrip()
    said = f"streamsafe check program.py{confidence}" + ("" if rule.default else f" --select {rule.code}")
    parts = [f"## What the check prints\n`program.py`:\n```python\n{source.rstrip()}\n```\n"]
    parts += [f"`{said}`:\n```text\n{printed}\n```\n"]
    if repair:
        unsafe = "" if rule.fix == "safe" else " --unsafe-fixes"
        parts += [f"`{said} --diff{unsafe}`:\n```diff\n{repair}\n```\n"]
    return "\n".join(parts) + "\n"


def wrong_data(code: str) -> str:
    """What the bug does on a GPU, as `wrong_data.py` has measured it; empty where that has no case."""
    measured = json.loads((DOCS / "wrong_data.json").read_text(encoding="utf-8"))
    found = measured["outcomes"].get(code)
    if found is None:
        return ""
    source = (DOCS / "wrong_data.py").read_text(encoding="utf-8")
    tree = ast.parse(source)
    case = next(f for f in tree.body if isinstance(f, ast.FunctionDef) and f.name == code.lower())
    program = ast.get_source_segment(source, case) or ""
    bug, fixed = found["bug"], found["fixed"]
    if "error" in bug:
        seen = f"the program stops: `{bug['error']}`"
    else:
        value, right = (f"{bug[which]:,.10g}" for which in ("value", "right"))
        seen = f"`{bug['name']}` was {value} instead of {right} in {bug['wrong']} of {bug['of']} runs"
    long = " `busy()` keeps the stream at work for some milliseconds." if "busy(" in program else ""
    return (
        "## What the bug gives\n"
        f"On an {measured['device']} (PyTorch {measured['torch']}, {measured['date']}), {seen}. With `fixed`, "
        f"{fixed['wrong']} of {fixed['of']} runs were wrong.{long} `python docs/wrong_data.py` measures it again.\n"
        f"```python\n{program}\n```\n\n"
    )


def index(rules: list[Rule]) -> str:
    """The list of all rules."""
    lines = [
        "# Rules",
        "",
        "Every hazard has a code and a name. A code never gets another meaning. `streamsafe rule CODE` prints a page.",
        "",
    ]
    for prefix, (title, about) in FAMILIES.items():
        lines += [f"## {title} ({prefix})", "", about, ""]
        lines += ["| code | name | severity | fix | what it reports |", "|---|---|---|---|---|"]
        for rule in rules:
            if rule.code.startswith(prefix):
                link = f"[{rule.name}](rules/{rule.name}.md)"
                fix = rule.fix or ""
                lines.append(f"| {rule.code} | {link} | {rule.severity} | {fix} | {summary(rule)} |")
        lines.append("")
    return "\n".join(lines)


def summary(rule: Rule) -> str:
    """The first sentence under "What it does", without its verb."""
    body = rule.documentation().split("## What it does\n", 1)[1].split("\n\n", 1)[0].replace("\n", " ")
    sentence = body.split(". ", 1)[0].rstrip(".").removeprefix("Reports ").removeprefix(", ")
    return sentence.replace("|", "\\|")


def command_line() -> str:
    """All commands with their options."""
    from streamsafe.cli import COMMANDS

    parts = [
        "# Command line",
        "This page is generated from the commands themselves. `streamsafe COMMAND --help` prints the same.",
    ]
    for name, (target, _) in COMMANDS.items():
        module, _, attribute = target.partition(":")
        command = getattr(importlib.import_module(module), attribute)
        members = getattr(command, "commands", {})
        parts += [_command(f"{name} {each}", member) for each, member in members.items()]
        parts += [] if members else [_command(name, command)]
    return "\n\n".join((*parts, COMPLETION)) + "\n"


def _command(name: str, command: click.Command) -> str:
    import click

    arguments = [each for each in command.params if isinstance(each, click.Argument)]
    options = [each for each in command.params if isinstance(each, click.Option) and not each.hidden]
    usage = " ".join(["streamsafe", name, *(["[OPTIONS]"] if options else []), *map(_argument, arguments)])
    rows = [f"| {_names(each)} | {_cell(each.help or '')} |" for each in options]
    table = "\n".join(["| option | meaning |", "|---|---|", *rows]) if rows else ""
    text = "\n\n".join(" ".join(part.split()) for part in (command.help or "").split("\n\n"))
    return "\n\n".join(filter(None, (f"## `{usage}`", text, table)))


def _argument(argument: click.Argument) -> str:
    name = argument.metavar or argument.human_readable_name
    if argument.metavar:
        return name
    return f"[{name}]..." if argument.nargs == -1 else name if argument.required else f"[{name}]"


def _names(option: click.Option) -> str:
    import click

    names = ", ".join(f"`{name}`" for name in (*option.opts, *option.secondary_opts))
    if isinstance(option.type, click.Choice):
        return f"{names} {_cell('|'.join(option.type.choices))}"
    return f"{names} {option.metavar}" if option.metavar else names


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


COMPLETION = """\
## Shell completion

```sh
eval "$(_STREAMSAFE_COMPLETE=bash_source streamsafe)"          # in ~/.bashrc
eval "$(_STREAMSAFE_COMPLETE=zsh_source streamsafe)"           # in ~/.zshrc
_STREAMSAFE_COMPLETE=fish_source streamsafe | source           # in ~/.config/fish/completions/streamsafe.fish
```"""


if __name__ == "__main__":
    for path, text in pages().items():
        path.write_text(text, encoding="utf-8")
