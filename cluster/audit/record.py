r"""One record of the audit log, and its line.

| key | value |
| --- | --- |
| `time` | UTC, with milliseconds |
| `node` | id of the node |
| `kind` | `admin`: a change of the broker, its users or its nodes; `login`; `refusal`; `access`: of data; `lost` |
| `user` | name; empty: not authenticated, or access control is off |
| `via` | how the user was authenticated: `session`, `token`, `certificate`, `password`; empty: it was not |
| `address` | of the client; empty: it has none |
| `method` | `BrokerService/SetTopic` |
| `resources` | `Topic:orders`, `User:alice`, ...: the first eight |
| `result` | `OK`, `ADMITTED`: a request of a stream, `UNKNOWN`: the call ended early, or the reason of a refusal |
| `detail` | what a change sets, what the caller lacked, or why a login failed; only if there is something |
| `has_more` | true if there are more resources |
| `count`, `until` | only of a summary: equal refusals, and the time of the last one |
| `before` | in files: hash of the line before (`cluster.audit.chain`) |

Names come from requests. JSON quotes them, and everything beyond ASCII is escaped, so no text begins another line or
controls a terminal. Bodies of messages, passwords, verifiers and tokens are in no record.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Final, NamedTuple

OK: Final = "OK"
ADMITTED: Final = "ADMITTED"
UNKNOWN: Final = "UNKNOWN"
RESOURCES_PER_RECORD_MAX: Final = 8
# Names in requests have at most 255 characters, and the type comes in front.
TEXT_LENGTH_MAX: Final = 280


class RecordKind(StrEnum):
    """Kinds of records; see the table of the module."""

    ADMIN = "admin"
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
        """Return its line, with the line feed.

        Args:
            node: id of the node.
        """
        values: dict[str, Any] = {
            "time": _time(self.time_ms),
            "node": node,
            "kind": self.kind.value,
            "user": self.user[:TEXT_LENGTH_MAX],
            "via": self.via,
            "address": self.address,
            "method": self.method,
            "resources": [each[:TEXT_LENGTH_MAX] for each in self.resources[:RESOURCES_PER_RECORD_MAX]],
            "result": self.result,
        }
        if self.detail:
            values["detail"] = self.detail[:TEXT_LENGTH_MAX]
        if len(self.resources) > RESOURCES_PER_RECORD_MAX:
            values["has_more"] = True
        if self.number != 1 or self.until_ms:
            values |= {"count": self.number, "until": _time(self.until_ms or self.time_ms)}
        return json.dumps(values, separators=(",", ":")).encode("ascii") + b"\n"


def _time(time_ms: int) -> str:
    text = datetime.fromtimestamp(time_ms / 1_000, UTC).isoformat(timespec="milliseconds")
    return text.replace("+00:00", "Z")
