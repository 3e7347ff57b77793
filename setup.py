"""The packages: what `find_packages` finds, and `rules/`, which is installed as `streamsafe.rules`.

With `STREAMSAFE_COMPILE=1` in the environment the static analyzer and the model of order are compiled with mypyc.
"""

import os
from pathlib import Path

from setuptools import Extension, find_packages, setup
from setuptools.command.build_ext import build_ext

COMPILED = ["streamsafe/order/forks.py", "streamsafe/order/symbolic.py"]
"""What is compiled beside `streamsafe/static`."""

PURE = "__init__ analyze baseline cache checked discovery fields modules project reading relevance source".split()
"""What stays Python in `streamsafe/static`: what has cached properties, what processes send each other, and what little
time is spent in."""


def modules() -> list[str]:
    """What is compiled."""
    static = sorted(Path("streamsafe/static").rglob("*.py"))
    return [*COMPILED, *(path.as_posix() for path in static if path.stem not in PURE)]


class Compile(build_ext):
    """Translates when something is built, and not before: whoever asks what that takes need not have it."""

    def run(self) -> None:
        try:
            from mypyc.build import mypycify
        except ImportError:
            raise SystemExit("STREAMSAFE_COMPILE is set, which takes mypyc: pip install mypy") from None
        options = "--config-file= --follow-imports=silent --ignore-missing-imports"
        self.distribution.ext_modules = mypycify([*options.split(), *modules()], multi_file=True)
        self.reinitialize_command(self, inplace=self.inplace, editable_mode=self.editable_mode)
        self.ensure_finalized()
        super().run()


options = {}
if os.environ.get("STREAMSAFE_COMPILE") == "1":
    options = {
        "ext_modules": [Extension("streamsafe.static", [])],  # until `Compile` knows them
        "cmdclass": {"build_ext": Compile},
        "setup_requires": ["mypy~=2.4", "libcst>=1.8.3"],  # of which the types are needed
    }

setup(
    packages=[*find_packages(include=["streamsafe", "streamsafe.*"]), "streamsafe.rules"],
    package_dir={"streamsafe.rules": "rules"},
    **options,
)
