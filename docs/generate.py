"""Write docs/rules.md and docs/rules/*.md from the rules' own documentation: ``python docs/generate.py``."""

from __future__ import annotations

from pathlib import Path

from streamsafe.registry import all_rules
from streamsafe.rule import Rule

DOCS = Path(__file__).parent
FAMILIES = {
    "SS1": "Order between streams",
    "SS2": "Memory handed out too early",
    "SS3": "The host",
    "SS4": "Graph captures",
    "SS5": "Between libraries",
    "SS9": "Housekeeping",
}


def pages() -> dict[Path, str]:
    """Every generated file and its content."""
    rules = list(all_rules().values())
    written = {DOCS / "rules" / f"{rule.name}.md": page(rule) for rule in rules}
    written[DOCS / "rules.md"] = index(rules)
    return written


def page(rule: Rule) -> str:
    """One rule's page: what `streamsafe rule CODE` prints."""
    state = "on by default" if rule.default else "off by default"
    title, _, body = rule.documentation().partition("\n")
    sides = " and ".join(f"`streamsafe {side}`" for side in rule.sides)
    return f"# {title}\n\nSeverity: {rule.severity}, {state}. Found by {sides}.\n{body}\n"


def index(rules: list[Rule]) -> str:
    """The list of all rules."""
    lines = ["# Rules", "", "A code is never reused. `streamsafe rule CODE` prints a rule's page.", ""]
    for prefix, title in FAMILIES.items():
        lines += [
            f"## {title} ({prefix})",
            "",
            "| code | name | severity | what it reports |",
            "|---|---|---|---|",
        ]
        for rule in rules:
            if rule.code.startswith(prefix):
                link = f"[{rule.name}](rules/{rule.name}.md)"
                lines.append(f"| {rule.code} | {link} | {rule.severity} | {summary(rule)} |")
        lines.append("")
    return "\n".join(lines)


def summary(rule: Rule) -> str:
    """The first sentence under "What it does", without its verb."""
    body = rule.documentation().split("## What it does\n", 1)[1].split("\n\n", 1)[0].replace("\n", " ")
    sentence = body.split(". ", 1)[0].rstrip(".").removeprefix("Reports ").removeprefix(", ")
    return sentence.replace("|", "\\|")


if __name__ == "__main__":
    for path, text in pages().items():
        path.write_text(text, encoding="utf-8")
