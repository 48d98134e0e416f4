"""The four connections between two nodes, and the messages that each carries."""

from __future__ import annotations

from typing import Final

from dledger.core.messages import (
    Heartbeat,
    HeartbeatResponse,
    Message,
    Push,
    PushAccepted,
    PushRefused,
    ReadIndexRequest,
    ReadIndexResponse,
    ResetLog,
    SnapshotChunk,
    SnapshotProgress,
    TimeoutNow,
    VoteRequest,
    VoteResponse,
)

# Slots of a link, one for each connection between the two nodes.
DIALLED_CONTROL, DIALLED_BULK, ACCEPTED_CONTROL, ACCEPTED_BULK = range(4)

SLOT_OF: Final[dict[type[Message], int]] = {
    VoteRequest: DIALLED_CONTROL,
    Heartbeat: DIALLED_CONTROL,
    TimeoutNow: DIALLED_CONTROL,
    ReadIndexRequest: DIALLED_CONTROL,
    Push: DIALLED_BULK,
    SnapshotChunk: DIALLED_BULK,
    ResetLog: DIALLED_BULK,
    VoteResponse: ACCEPTED_CONTROL,
    HeartbeatResponse: ACCEPTED_CONTROL,
    ReadIndexResponse: ACCEPTED_CONTROL,
    PushAccepted: ACCEPTED_BULK,
    PushRefused: ACCEPTED_BULK,
    SnapshotProgress: ACCEPTED_BULK,
}

# The slot in which the receiver has the connection that is in a slot of the sender.
ARRIVES_IN = {
    DIALLED_CONTROL: ACCEPTED_CONTROL,
    DIALLED_BULK: ACCEPTED_BULK,
    ACCEPTED_CONTROL: DIALLED_CONTROL,
    ACCEPTED_BULK: DIALLED_BULK,
}
