"""What the simulated machine is: how many devices, how much memory, what they can do; and how that is asked for.

The same three words everywhere: options of pytest and of ``streamsafe run``, ``[tool.streamsafe]``, and variables of
the environment, through which child processes get the devices of their parent.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass, replace
from pathlib import Path

DEVICES, MEMORY, CAPABILITY = "STREAMSAFE_DEVICES", "STREAMSAFE_MEMORY", "STREAMSAFE_CAPABILITY"
"""Variables of the environment."""

_UNITS = {
    "": 1,
    "k": 10**3,
    "m": 10**6,
    "g": 10**9,
    "t": 10**12,
    "ki": 1 << 10,
    "mi": 1 << 20,
    "gi": 1 << 30,
    "ti": 1 << 40,
}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]i?)?b?", re.IGNORECASE)


@dataclass(frozen=True)
class Hardware:
    """The machine.

    Attributes:
        devices: how many there are.
        memory: bytes of each.
        capability: major and minor number, as ``torch.cuda.get_device_capability`` gives them.
    """

    devices: int = 1
    memory: int = 8 << 30
    capability: tuple[int, int] = (8, 0)

    def changed(self, asked: Mapping[str, object]) -> Hardware:
        """With what is asked for.

        Args:
            asked: by ``devices``, ``memory`` and ``capability``, as text or numbers; None where nothing is asked.

        Raises:
            ValueError: what is no number of devices, no size, or no capability; the message names the word.
        """
        made = self
        if asked.get("devices") is not None:
            made = replace(made, devices=_count(asked["devices"]))
        if asked.get("memory") is not None:
            made = replace(made, memory=size_of(asked["memory"]))
        if asked.get("capability") is not None:
            made = replace(made, capability=_capability(asked["capability"]))
        return made

    def announce(self, environment: MutableMapping[str, str]) -> None:
        """Says so to child processes."""
        environment[DEVICES], environment[MEMORY] = str(self.devices), str(self.memory)
        environment[CAPABILITY] = f"{self.capability[0]}.{self.capability[1]}"


def from_environment(environment: Mapping[str, str], default: Hardware | None = None) -> Hardware:
    """The machine that the variables ask for.

    Raises:
        ValueError: one of them means nothing.
    """
    names = {"devices": DEVICES, "memory": MEMORY, "capability": CAPABILITY}
    asked = {word: environment[name] for word, name in names.items() if environment.get(name)}
    return (default or Hardware()).changed(asked)


def from_table(path: Path) -> Hardware:
    """The machine of the table ``[tool.streamsafe]`` of a file; the usual one where the file or the table is missing.

    Raises:
        ValueError: an entry means nothing, or the file is not valid TOML.
    """
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError:
        return Hardware()
    table = data.get("tool", {}).get("streamsafe", {})
    return Hardware().changed({word: table.get(word) for word in ("devices", "memory", "capability")})


def size_of(text: object) -> int:
    """Bytes: a number, or a number with a unit (``80GiB``, ``512 MB``).

    Raises:
        ValueError: it is neither.
    """
    found = _SIZE.fullmatch(str(text).strip())
    size = int(float(found[1]) * _UNITS[(found[2] or "").lower()]) if found else 0
    if size < 1:
        raise ValueError(f"memory is {text!r}: it must be a number of bytes, such as 80GiB")
    return size


def _count(text: object) -> int:
    if not str(text).strip().isdecimal():
        raise ValueError(f"devices is {text!r}: it must be a number")
    if int(str(text)) < 1:
        raise ValueError("a simulated machine has at least one device")
    return int(str(text))


def _capability(text: object) -> tuple[int, int]:
    found = re.fullmatch(r"(\d+)\.(\d+)", str(text).strip())
    if found is None:
        raise ValueError(f"capability is {text!r}: it must be two numbers, such as 9.0")
    return int(found[1]), int(found[2])
