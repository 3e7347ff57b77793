"""Draw docs/pictures/*.svg: run the programs of docs/streams.md on the simulated runtime, and draw their traces.

    python docs/pictures.py

Needs CuPy, and no GPU.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

DOCS = Path(__file__).parent
PROGRAM = re.compile(r"<!-- run: (\S+) (SS\d+) -->\n```python\n(.*?)```", re.DOTALL)


def programs() -> Iterator[tuple[str, str, str]]:
    """(name, code, source) of each program of the page."""
    for match in PROGRAM.finditer((DOCS / "streams.md").read_text(encoding="utf-8")):
        yield match[1], match[2], match[3]


def trace(name: str, source: str, folder: Path) -> Path:
    """Run a program under the sanitizer, and return its trace."""
    script, recorded = folder / "program.py", folder / f"{name}.jsonl"
    script.write_text(source, encoding="utf-8")
    command = [sys.executable, "-m", "streamsafe", "run", "--simulate", "--mode", "collect"]
    subprocess.run(
        [*command, "--trace", str(recorded), str(script)], check=False, capture_output=True, cwd=folder
    )
    return recorded


def picture(recorded: Path, code: str) -> str:
    """The picture of the hazard with a code, as a file of its own.

    Raises:
        LookupError: the trace has no such hazard.
    """
    from streamsafe.view.page import page
    from streamsafe.view.timeline import Timeline

    timeline = Timeline.of(str(recorded))
    codes = [found.hazard.code for found in timeline.found]
    if code not in codes:
        raise LookupError(f"{recorded.stem} has {codes}, not {code}")
    return standalone(page(timeline, codes.index(code) + 1))


def standalone(html: str) -> str:
    """The picture of a page as a file, in the page's colours for a light background."""
    style = re.search(r"<style>(.*?)</style>", html, re.DOTALL)
    markers = re.search(r"<defs>.*?</defs>", html, re.DOTALL)
    svg = re.search(r'<div class="picture">(<svg.*?)(</svg>)', html, re.DOTALL)
    assert style is not None
    assert markers is not None
    assert svg is not None
    colours = dict(re.findall(r"(--[\w-]+): *([^;}]+);", style[1].partition("@media")[0]))
    rules = re.findall(r"^ *(svg [^\n]*)$", style[1], re.MULTILINE)
    box = re.search(r'viewBox="0 0 (\d+) (\d+)"', svg[1])
    assert box is not None
    attributes = f'xmlns="http://www.w3.org/2000/svg" width="{box[1]}" height="{box[2]}"'
    opening = re.sub(r' style="[^"]*"', "", svg[1], count=1).replace("<svg", f"<svg {attributes}", 1)
    head, _, rest = opening.partition(">")
    paper = '<rect width="100%" height="100%" rx="8" style="fill: var(--paper); stroke: none"/>'
    css = "\n".join(["", *rules, ""])
    whole = f"{head}><style>{css}</style>{markers[0]}{paper}{rest}{svg[2]}\n"
    return re.sub(r"var\((--[\w-]+)\)", lambda match: colours[match[1]], whole)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        for name, code, source in programs():
            text = picture(trace(name, source, Path(folder)), code)
            (DOCS / "pictures" / f"{name}.svg").write_text(text, encoding="utf-8")
            print(f"docs/pictures/{name}.svg")


if __name__ == "__main__":
    main()
