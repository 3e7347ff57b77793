"""The torch that is installed: its version, the flags it was built with, its headers. torch is not imported for it."""

from __future__ import annotations

import ast
import importlib.util
import os
import re
import sys
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

OLDEST, NEWEST = (2, 6), (2, 14)
"""The releases that the sanitizer's native code is written for."""


class TorchUnavailable(Exception):
    """There is no torch that the sanitizer can work with; the message says why."""


@dataclass(frozen=True)
class Torch:
    """An installed torch.

    Attributes:
        root: the package's folder.
        version: as in ``torch.__version__``.
        git: the commit it was built from, or "".
        cuda: the CUDA version it was built for, or None.
        hip: the ROCm version it was built for, or None.
        abi: the value of ``_GLIBCXX_USE_CXX11_ABI``.
    """

    root: Path
    version: str
    git: str
    cuda: str | None
    hip: str | None
    abi: int

    @property
    def release(self) -> tuple[int, int]:
        """Major and minor version."""
        found = re.match(r"(\d+)\.(\d+)", self.version)
        return (int(found[1]), int(found[2])) if found else (0, 0)

    @property
    def standard(self) -> str:
        """The C++ standard of its headers, as a compiler option."""
        return "-std=c++20" if self.release >= (2, 12) else "-std=c++17"

    @property
    def supported(self) -> bool:
        """Whether the native code is written for this release."""
        return OLDEST <= self.release <= NEWEST

    @property
    def includes(self) -> list[Path]:
        """Folders of its headers."""
        return [self.root / "include", self.root / "include/torch/csrc/api/include"]

    @property
    def libraries(self) -> Path:
        """The folder of its libraries."""
        return self.root / "lib"


def installed() -> Torch:
    """The torch that ``import torch`` finds.

    Raises:
        TorchUnavailable: there is none, or it has no version file.
    """
    module = sys.modules.get("torch")
    origin = getattr(module, "__file__", None)
    if origin is None:
        spec = importlib.util.find_spec("torch") if module is None else None
        origin = spec.origin if spec is not None else None
    if origin is None:
        raise TorchUnavailable(
            "PyTorch is not installed: pip install torch --index-url https://download.pytorch.org/whl/cpu "
            "brings a build that needs no GPU"
        )
    return _read(Path(os.path.realpath(origin)).parent)


@lru_cache(maxsize=4)
def _read(root: Path) -> Torch:
    try:
        facts = _constants((root / "version.py").read_text(encoding="utf-8"))
    except (OSError, SyntaxError, ValueError) as error:
        raise TorchUnavailable(f"{root} has no readable version.py: {error}") from error
    return Torch(
        root=root,
        version=str(facts.get("__version__", "unknown")),
        git=str(facts.get("git_version") or ""),
        cuda=_text(facts.get("cuda")),
        hip=_text(facts.get("hip")),
        abi=_abi(root),
    )


def _text(value: object) -> str | None:
    return None if value is None else str(value)


def _constants(source: str) -> dict[str, object]:
    found: dict[str, object] = {}
    for node in ast.parse(source).body:
        if isinstance(node, ast.Assign):
            targets: list[ast.expr] = node.targets
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            targets = [node.target]
        else:
            continue
        if isinstance(node.value, ast.Constant):
            found.update({each.id: node.value.value for each in targets if isinstance(each, ast.Name)})
    return found


def _abi(root: Path) -> int:
    """The C++ library's ABI: what torch's CMake file says; the new one where it says nothing (all wheels from 2.7)."""
    try:
        text = (root / "share/cmake/Torch/TorchConfig.cmake").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return 1
    found = re.search(r"_GLIBCXX_USE_CXX11_ABI=(\d)", text)
    return int(found[1]) if found else 1
