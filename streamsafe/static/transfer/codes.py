"""The names of the rules for violations, by code."""

from __future__ import annotations

from typing import Final

NAMES: Final = {
    "SS312": "event-timing-misuse",
    "SS321": "pageable-non-blocking",
    "SS322": "pin-memory-then-copy",
    "SS401": "sync-in-capture",
    "SS402": "unjoined-capture-stream",
    "SS403": "rebound-static-input",
    "SS404": "capture-rng",
    "SS405": "capture-on-default-stream",
    "SS406": "missing-capture-warmup",
    "SS407": "dynamic-work-in-capture",
    "SS408": "uncapturable-step",
    "SS409": "shared-pool-replay-order",
    "SS410": "host-work-in-capture",
    "SS411": "concurrent-capture",
}
