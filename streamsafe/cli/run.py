"""`streamsafe run`: a script or a module under the sanitizer."""

from __future__ import annotations

import os
from pathlib import Path

import click

from streamsafe.cli import Failure, output
from streamsafe.order.hazard import CONFIDENCES, Confidence
from streamsafe.project.settings import ConfigError, Configs


class _LikePython(click.Command):
    """What follows ``-m MODULE`` is the module's own, as on Python's command line."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        takes_value = {
            name for each in self.params if not getattr(each, "is_flag", False) for name in each.opts
        }
        position = 0
        while position < len(args) and args[position].startswith("-") and args[position] != "--":
            if args[position] == "-m":
                args = [*args[: position + 2], "--", *args[position + 2 :]]
                break
            position += 2 if args[position] in takes_value else 1
        return super().parse_args(ctx, args)


@click.command(
    cls=_LikePython, context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False}
)
@click.option("-m", "module", metavar="MODULE", help="Run a module instead of a script.")
@click.option(
    "--mode", type=click.Choice(["raise", "warn", "collect"]), help="What a hazard does [default: raise]."
)
@click.option("--report", metavar="FILE", help="Short for --output-format json --output-file FILE.")
@output.options
@click.option(
    "--trace", metavar="FILE", help="Record what was enqueued, for `streamsafe verify` and `trace`."
)
@click.option(
    "--simulate",
    is_flag=True,
    help="Simulate CUDA, without a GPU: CuPy's kernels and PyTorch's operators run on the CPU.",
)
@click.option(
    "--devices", type=click.IntRange(min=1), metavar="N", help="How many devices --simulate has [default: 1]."
)
@click.option("--memory", metavar="SIZE", help="How much memory each of them has [default: 8GiB].")
@click.option("--capability", metavar="X.Y", help="Their compute capability [default: 8.0].")
@click.option("--perturb", is_flag=True, help="Run twice, and delay one side of each hazard the second time.")
@click.option(
    "--threads",
    is_flag=True,
    help="Order host threads only by locks, queues and joins.",
)
@click.option(
    "--ignore",
    multiple=True,
    metavar="CODE[:FILE[::FUNCTION]]",
    help="Do not report a rule, at all or in this place.",
)
@click.option(
    "--suppressions", metavar="FILE", help="Do not report what this file lists [default: of the settings]."
)
@click.option(
    "--write-suppressions",
    metavar="FILE",
    help="Write a file that suppresses all that is found, for --suppressions; the run does not fail of it.",
)
@click.option(
    "--fail-on",
    type=click.Choice(CONFIDENCES),
    help="The least confidence of a hazard that makes the run fail [default: possible].",
)
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    metavar="N",
    help="Show the first N hazards, and count the others [default: all].",
)
@click.option(
    "--allow-idle",
    is_flag=True,
    help="Do not fail when nothing was watched, or a process could not be.",
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="[SCRIPT] [ARGS]...")
def run(
    module: str | None,
    mode: str | None,
    report: str | None,
    output_format: str | None,
    output_file: str | None,
    trace: str | None,
    simulate: bool,
    devices: int | None,
    memory: str | None,
    capability: str | None,
    perturb: bool,
    threads: bool,
    ignore: tuple[str, ...],
    suppressions: str | None,
    write_suppressions: str | None,
    fail_on: Confidence | None,
    limit: int | None,
    allow_idle: bool,
    arguments: tuple[str, ...],
) -> None:
    """Run SCRIPT, or a module, under the sanitizer. What it finds goes to standard error, or to --output-file.

    Under torchrun each process writes files of its own: out.json is out.rank0.json, out.rank1.json and so on.

    Python processes that it starts are watched, too, and the summary counts them.

    Exit status: the program's own when it is not 0, else 1 when hazards were found, else 2 when nothing was watched or
    a process could not be watched, else 0; 2 when it cannot be run.
    """
    from streamsafe.report.ranks import own
    from streamsafe.runtime.launch import Launch, LaunchError, launch
    from streamsafe.runtime.program import from_variable
    from streamsafe.simulate.hardware import from_environment, from_table

    if module is None and not arguments:
        raise click.UsageError("name a script, or a module with -m")
    asked = {"devices": devices, "memory": memory, "capability": capability}
    for word, value in asked.items():
        if value is not None and not simulate:
            raise click.UsageError(f"--{word} needs --simulate")
    try:
        settings = Configs().of_directory(os.getcwd()).run
    except ConfigError as error:
        raise Failure(str(error)) from error
    to, format_ = output.report(report, output_format, output_file)
    to, trace = to and own(to), trace and own(trace)
    target = module if module is not None else arguments[0]
    try:
        said, simulated = from_variable(os.environ.get("STREAMSAFE", ""))
        machine = from_environment(os.environ, from_table(Path("pyproject.toml"))).changed(asked)
        status = launch(
            Launch(
                target=target,
                module=module is not None,
                arguments=arguments if module is not None else arguments[1:],
                mode=said if mode is None else mode,  # type: ignore[arg-type]
                report=to,
                report_format=format_,
                trace=trace,
                simulate=machine if simulate or simulated else None,
                perturb=perturb,
                threads=threads,
                ignore=ignore,
                suppressions=suppressions or settings.suppressions,
                write_suppressions=write_suppressions or "",
                fail_on=fail_on or settings.fail_on,
                limit=limit or settings.limit,
                allow_idle=allow_idle,
            )
        )
    except (LaunchError, ValueError) as error:
        raise Failure(str(error)) from error
    raise SystemExit(status)
