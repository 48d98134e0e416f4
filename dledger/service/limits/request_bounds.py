"""The bounds of all fields in requests of LogService, AdminService, health checking and reflection.

| bound | reason |
| --- | --- |
| names, ids and addresses | the settings permit only shorter ones, so a longer one cannot exist |
| bodies of an append | more than our client sends; all of them are appended in one iteration of the event loop |

The first column of each table is the field's name in `proto/`.
"""

from __future__ import annotations

from typing import Final

from dledger.entries.format.entry import MAX_BODY_BYTES
from dledger.service.limits.field_bounds import ANY_NUMBER, FIELDS, Bounds, Many, Text

NAME: Final = Text(255)
# A host name has at most 253 characters.
ADDRESS: Final = Text(261)
# Of one append, whatever the number of its callers.
APPEND_BODIES_MAX: Final = 8_192

_MEMBER: Final = {"group": NAME, "id": NAME}

LOG_BOUNDS: Final[Bounds] = {
    "dledger.v1.AppendRequest": {
        "group": NAME,
        # Larger than the largest body, so that the node itself refuses it with a message that contains the limit.
        "bodies": Many(APPEND_BODIES_MAX, Text(2 * MAX_BODY_BYTES)),
        "request_id": ANY_NUMBER,
    },
    "dledger.v1.ReadRequest": {
        "group": NAME,
        "index": ANY_NUMBER,
        "position": ANY_NUMBER,
        "max_entries": ANY_NUMBER,
        "max_bytes": ANY_NUMBER,
        "follow": ANY_NUMBER,
        "mode": ANY_NUMBER,
        "raw": ANY_NUMBER,
    },
    "dledger.v1.StatusRequest": {"group": NAME},
    "dledger.v1.ListMembersRequest": {"group": NAME},
    "dledger.v1.AddMemberRequest": {**_MEMBER, "address": ADDRESS},
    "dledger.v1.PromoteMemberRequest": _MEMBER,
    "dledger.v1.RemoveMemberRequest": _MEMBER,
    "dledger.v1.TransferLeadershipRequest": _MEMBER,
    "dledger.v1.WatchRequest": {
        "group": NAME,
        "interval_ms": ANY_NUMBER,
        "after_sequence": ANY_NUMBER,
        "process": ANY_NUMBER,
    },
}

STANDARD_BOUNDS: Final[Bounds] = {
    "grpc.health.v1.HealthCheckRequest": {"service": NAME},
    "grpc.health.v1.HealthListRequest": {},
    "grpc.reflection.v1alpha.ServerReflectionRequest": {
        "host": NAME,
        "file_by_filename": NAME,
        "file_containing_symbol": NAME,
        "file_containing_extension": FIELDS,
        "all_extension_numbers_of_type": NAME,
        "list_services": NAME,
    },
    "grpc.reflection.v1alpha.ExtensionRequest": {"containing_type": NAME, "extension_number": ANY_NUMBER},
}
