"""Which repair each rule has."""

from __future__ import annotations

from streamsafe.repairs.captures import (
    apart,
    before_replays,
    filled_input,
    joined_stream,
    named_temporary,
    on_a_side_stream,
    own_pool,
    registered_generator,
    warmed_up,
)
from streamsafe.repairs.copies import blocking_copy, plain_copy
from streamsafe.repairs.events import capturable, timed_events
from streamsafe.repairs.interop import exchanged
from streamsafe.repairs.outputs import kept_output
from streamsafe.repairs.place import Repair
from streamsafe.repairs.waits import without_a_wait

REPAIRS: dict[str, Repair] = {
    "SS203": named_temporary,
    "SS312": timed_events,
    "SS321": blocking_copy,
    "SS322": plain_copy,
    "SS401": without_a_wait,
    "SS402": joined_stream,
    "SS403": filled_input,
    "SS404": registered_generator,
    "SS405": on_a_side_stream,
    "SS406": warmed_up,
    "SS408": capturable,
    "SS409": own_pool,
    "SS410": before_replays,
    "SS411": apart,
    "SS412": kept_output,
    "SS501": exchanged,
}
"""By the rule's code; the other rules miss an edge, and their help is the line that adds it."""

WHOLE = ("SS312", "SS409")
"""Rules whose repair may be anywhere in the file: where an event or a pool is made."""
