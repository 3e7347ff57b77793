"""The command line: thin commands, each in a module that is imported only when it is used."""

from __future__ import annotations

import difflib
import importlib
import os
from typing import Any

import click

from streamsafe.project.version import __version__

# command -> module attribute, short help. The help stands here so that `streamsafe --help` imports no command.
COMMANDS: dict[str, tuple[str, str]] = {
    "check": ("streamsafe.cli.check:check", "Find stream hazards in source files."),
    "rule": ("streamsafe.cli.rule:rule", "Explain one rule."),
    "rules": ("streamsafe.cli.rule:rules", "List all rules."),
    "run": ("streamsafe.cli.run:run", "Run a script or module under the sanitizer."),
    "verify": ("streamsafe.cli.verify:verify", "Check a recorded trace."),
    "trace": ("streamsafe.cli.trace:trace", "Draw a recorded trace as a timeline."),
    "report": ("streamsafe.cli.report:report", "Merge the reports of several ranks."),
    "server": ("streamsafe.cli.server:server", "Serve editors by the Language Server Protocol."),
    "clean": ("streamsafe.cli.clean:clean", "Remove the results that earlier checks keep."),
    "build-torch": ("streamsafe.cli.build_torch:build_torch", "Build native code for the installed PyTorch."),
}


class Failure(click.ClickException):
    """What stops a command, in one sentence: exit status 2."""

    exit_code = 2


class LazyGroup(click.Group):
    """A group whose commands are imported when they are asked for.

    Attributes:
        owns_process: whether the process ends with the command.
    """

    owns_process = False

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """What the console script does."""
        self.owns_process = True
        return super().__call__(*args, **kwargs)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, _, attribute = COMMANDS[cmd_name][0].partition(":")
        command: Any = getattr(importlib.import_module(module), attribute)
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """A word that is no command may be a path to check, or a command with a mistake."""
        word = args[0]
        if word not in COMMANDS and not word.startswith("-"):
            near = difflib.get_close_matches(word, COMMANDS, 1)
            hint = f"check {word}" if os.path.exists(word) else near[0] if near else ""
            end = f" Did you mean `streamsafe {hint}`?" if hint else ""
            ctx.fail(f"No such command {word!r}.{end}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="streamsafe", message="%(prog)s %(version)s")
def main() -> None:
    """Find CUDA stream bugs: before the program runs (check), and while it runs (run)."""
