"""What ``--streamsafe=...`` and ``STREAMSAFE=...`` ask for, in the same words."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from streamsafe.runtime.session import Mode

REPORTS = "STREAMSAFE_REPORTS"
"""The variable that names the folder in which child processes tell their parent what they find."""

WORDS = ("raise", "warn", "collect", "simulate")


def asked(text: str, said: str) -> tuple[Mode, bool]:
    """The mode of sessions, and whether CUDA is simulated.

    Args:
        text: ``raise``, ``warn`` or ``collect``, ``simulate``, or both with a comma between; 1 and true say ``raise``.
        said: where it stands, for the message.

    Raises:
        ValueError: it holds another word.
    """
    words = [word.strip().lower() for word in text.split(",")]
    words = ["raise" if word in ("1", "true", "yes", "on", "") else word for word in words]
    mode: Mode = "raise"
    for word in words:
        if word not in WORDS:
            raise ValueError(f"{said} is {text!r}: it must be one of {', '.join(WORDS)}")
        if word != "simulate":
            mode = word  # type: ignore[assignment]
    return mode, "simulate" in words
