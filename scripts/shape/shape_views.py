"""How each axis is shown: title, label and scale of the axis, and a sentence for the page."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

if TYPE_CHECKING:
    from collections.abc import Callable

_KIB: Final = 1024


@dataclass(frozen=True, slots=True)
class View:
    """How one axis is shown.

    Attributes:
        name: name of the axis.
        title: heading, and title of the picture.
        label: label of the x axis, with its unit.
        first_column: heading of the first column of the table.
        text_of: returns the text of a value.
        scale: `log`, or `even` for values with equal distances.
        note: text below the heading.
        rate: the rate of the axis.
    """

    name: str
    title: str
    label: str
    first_column: str
    text_of: Callable[[float], str]
    scale: Literal["log", "even"]
    note: str
    rate: str = "appends/s"


def size_text(size_bytes: float) -> str:
    """Return a size in bytes with its unit; 4 MiB less a header is 4 MiB."""
    for unit, factor in (("MiB", _KIB * _KIB), ("KiB", _KIB)):
        if size_bytes >= factor:
            return f"{round(size_bytes / factor, 1):g} {unit}"
    return f"{size_bytes:g} B"


def count_text(count: float) -> str:
    """Return a number, with commas."""
    return f"{count:,.0f}"


def gib_text(gib: float) -> str:
    """Return the size of a log."""
    return f"{gib:g} GiB" if gib else "empty"


def percent_text(percent: float) -> str:
    """Return a percentage."""
    return f"{percent:g} %"


VIEWS: Final = (
    View(
        "body",
        "Body size",
        "body size",
        "body",
        size_text,
        "log",
        "64 callers of one client append to three nodes; at most 32 MiB are in flight, so 32 callers of 1 MiB, and 8 "
        "of 4 MiB (less the 56 bytes of an entry's header).",
    ),
    View(
        "callers",
        "Concurrent callers",
        "concurrent callers",
        "callers",
        count_text,
        "log",
        "Bodies of 1 KiB, three nodes. A single fsync covers all appends that arrived during the one before, so the "
        "CPU time of an append falls as their number grows.",
    ),
    View(
        "log-size",
        "Size of the log",
        "bodies in the log before the load",
        "log",
        gib_text,
        "even",
        "64 callers, bodies of 1 KiB, three nodes; the log is filled in batches, then the same load is measured.",
    ),
    View(
        "nodes",
        "Number of nodes",
        "nodes",
        "nodes",
        count_text,
        "even",
        "64 callers, bodies of 1 KiB. All nodes share the cores and the disk of one machine.",
    ),
    View(
        "queues",
        "Queues of a broker",
        "queues",
        "queues",
        count_text,
        "log",
        "64 callers of one producer send bodies of 1 KiB, each message to the next queue. Every queue has a message "
        "before; queues are written to their files every 10 s, six times as often as by default.",
        "messages/s",
    ),
    View(
        "consumers",
        "Consumers of a broker",
        "consumers",
        "consumers",
        count_text,
        "log",
        "Each consumer receives all messages, and all are in one process. Rate and CPU time are those of deliveries to "
        "consumers that read a full topic of 1 KiB bodies from its start; latencies are from a send to a delivery at "
        "100 sends a second.",
        "deliveries/s",
    ),
    View(
        "open-loop",
        "Constant rates",
        "calls a second, as a share of the highest rate",
        "rate",
        percent_text,
        "even",
        "Calls begin at a constant rate, whether or not earlier ones have ended; bodies of 1 KiB, three nodes. The "
        "highest rate is that of 64 callers on the same nodes. All latencies are kept, so percentiles are exact.",
        "calls/s",
    ),
)
