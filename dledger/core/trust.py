"""Which messages the core believes at all, before any rule of Raft looks at them.

A peer port without authentication takes messages from whoever reaches it, and a damaged or foreign directory makes an
honest program say what is false. So a message that no node of this group can have sent is dropped, and the operator
learns of it; it never stops this node, for then whoever can send it could stop the group.

Not here: who may connect (`dledger.peer_handshake`).
"""

from __future__ import annotations

from typing import Final

from dledger.core.events import Distrust
from dledger.core.messages import Heartbeat, Message, Push, ResetLog, SnapshotChunk, TimeoutNow
from dledger.core.state import State
from dledger.types import TERM_JUMP_MAX, TERM_MAX

# Only a leader sends these.
LEADERS_MESSAGES: Final = (Heartbeat, Push, TimeoutNow, SnapshotChunk, ResetLog)


def fault_of(state: State, sender: str, message: Message) -> Distrust | None:
    """Return why `message` is not believed; None: the rules may see it.

    - A term that is out of bounds, or too far above ours, is the work of no election. Saved, it could never be taken
      back, and in the end no higher one could be sent: the group would have no leader ever again.
    - A term has one leader. Who else claims to be it is believed in nothing; the one that was elected is followed on.
    """
    term = message.term
    if term > TERM_MAX or term - state.term > TERM_JUMP_MAX:
        return Distrust.TERM
    is_leaders = isinstance(message, LEADERS_MESSAGES)
    if is_leaders and term == state.term and state.leader_id is not None and state.leader_id != sender:
        return Distrust.SECOND_LEADER
    return None
