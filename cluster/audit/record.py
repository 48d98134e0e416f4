r"""One record of the audit log, and its line.

| key | value |
| --- | --- |
| `time` | UTC, with milliseconds |
| `node` | id of the node |
| `kind` | `admin`: a change of the broker, its users or its nodes; `admin_read`: a list of users or roles; `login`; |
| | `refusal`; `access`: of data; `lost` |
| `user` | name; empty: not authenticated, or access control is off |
| `via` | how the user was authenticated: `session`, `token`, `certificate`, `password`, `access key`; or not: empty |
| `address` | of the client; empty: it has none |
| `method` | `BrokerService/SetTopic`; `Remoting/310`: by its code; `MessagingService/Heartbeat` |
| `resources` | `Topic:orders`, `User:alice`, ...: the first eight |
| `result` | `OK`, `ADMITTED`: a request of a stream, `UNKNOWN`: the call ended early, or the reason of a refusal |
| `detail` | what a change sets, what the caller lacked, or why a login failed; only if there is something |
| `has_more` | true if there are more resources |
| `count`, `until` | only of a summary: its events, and the time of the last one (`cluster.audit.line_window`) |
| `before` | in files: hash of the line before (`cluster.audit.chain`) |

Names come from requests. JSON quotes them, and everything beyond ASCII is escaped, so no text begins another line or
controls a terminal. A text is cut where its escaped form exceeds its bound; names that a broker accepts are ASCII, and
shorter. Bodies of messages, passwords, verifiers and tokens are in no record.
"""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from enum import StrEnum
from json.encoder import encode_basestring_ascii
from typing import Any, Final, NamedTuple

OK: Final = "OK"
ADMITTED: Final = "ADMITTED"
UNKNOWN: Final = "UNKNOWN"
RESOURCES_PER_RECORD_MAX: Final = 8
# Names in requests have at most 255 characters, and the type comes in front. Also the most bytes of its escaped form.
TEXT_LENGTH_MAX: Final = 280
# The same of an address, a method, a result, and how a user was authenticated.
_SHORT_TEXT_LENGTH_MAX: Final = 100
# Of a line with the hash of the one before: the user, the node, the detail, eight resources and four short texts.
RECORD_SIZE_BYTES_MAX: Final = 4 << 10
# One character of Unicode beyond its first 65,536 is two escapes.
_ESCAPED_SIZE_MAX: Final = 12
_TIME_OF_LINE: Final = re.compile(rb'\{"time":"([0-9TZ:.-]{1,40})"')


class RecordKind(StrEnum):
    """Kinds of records; see the table of the module."""

    ADMIN = "admin"
    ADMIN_READ = "admin_read"
    LOGIN = "login"
    REFUSAL = "refusal"
    ACCESS = "access"
    LOST = "lost"


class AuditRecord(NamedTuple):
    """One record.

    Attributes:
        time_ms: since 1970.
        kind: of the record.
        user, via, address, method, resources, result, detail: see the table of the module; a ninth resource says that
            there are more.
        number: of equal events in this record; more than one in a summary.
        until_ms: time of the last of them.
    """

    time_ms: int
    kind: RecordKind
    user: str = ""
    via: str = ""
    address: str = ""
    method: str = ""
    resources: tuple[str, ...] = ()
    result: str = OK
    detail: str = ""
    number: int = 1
    until_ms: int = 0

    def line(self, node: str) -> bytes:
        """Return its line, with the line feed: with the hash of the line before at most `RECORD_SIZE_BYTES_MAX`.

        Args:
            node: id of the node.
        """
        values: dict[str, Any] = {
            "time": _time(self.time_ms),
            "node": _bounded(node),
            "kind": self.kind.value,
            "user": _bounded(self.user),
            "via": _bounded(self.via, _SHORT_TEXT_LENGTH_MAX),
            "address": _bounded(self.address, _SHORT_TEXT_LENGTH_MAX),
            "method": _bounded(self.method, _SHORT_TEXT_LENGTH_MAX),
            "resources": [_bounded(each) for each in self.resources[:RESOURCES_PER_RECORD_MAX]],
            "result": _bounded(self.result, _SHORT_TEXT_LENGTH_MAX),
        }
        if self.detail:
            values["detail"] = _bounded(self.detail)
        if len(self.resources) > RESOURCES_PER_RECORD_MAX:
            values["has_more"] = True
        if self.number != 1 or self.until_ms:
            values |= {"count": self.number, "until": _time(self.until_ms or self.time_ms)}
        return json.dumps(values, separators=(",", ":")).encode("ascii") + b"\n"


def time_of_line(line: bytes) -> int | None:
    """Return the time of a line, in milliseconds since 1970; None: it has none, because a crash cut it."""
    found = _TIME_OF_LINE.match(line)
    try:
        return None if found is None else round(datetime.fromisoformat(found[1].decode("ascii")).timestamp() * 1_000)
    except ValueError:
        return None


def _bounded(text: str, size_max: int = TEXT_LENGTH_MAX) -> str:
    """Return the start of a text whose escaped form has at most `size_max` bytes."""
    text = text[:size_max]
    # Two of them are quotes.
    while (excess := len(encode_basestring_ascii(text)) - 2 - size_max) > 0:
        # Rounded away from zero: at least one character.
        text = text[: -excess // _ESCAPED_SIZE_MAX]
    return text


def _time(time_ms: int) -> str:
    text = datetime.fromtimestamp(time_ms / 1_000, UTC).isoformat(timespec="milliseconds")
    return text.replace("+00:00", "Z")
