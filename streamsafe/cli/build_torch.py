"""`streamsafe build-torch`: the sanitizer's native code for the installed PyTorch, ahead of its first use."""

from __future__ import annotations

import click

from streamsafe.cli import Failure


@click.command("build-torch")
@click.option("--force", is_flag=True, help="Build again what is there.")
def build_torch(force: bool) -> None:
    """Build the sanitizer's native code for the installed PyTorch and say where it is.

    For images and CI: a program's first run under the sanitizer then builds nothing. $STREAMSAFE_CACHE names the
    folder.
    """
    from streamsafe.toolchain.torch import BuildError, build, libraries
    from streamsafe.toolchain.torch_installed import TorchUnavailable, installed

    try:
        for library in libraries(installed()):
            click.echo(build(library, force=force))
    except TorchUnavailable as error:
        raise Failure(str(error)) from error
    except BuildError as error:
        raise Failure(f"{error}. Without it PyTorch programs cannot be watched") from error
