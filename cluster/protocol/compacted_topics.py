"""Compacted topics: RocketMQ's attribute `cleanup.policy` of a topic.

| value | meaning |
| --- | --- |
| COMPACTION | at least the latest message of each key is kept, whatever the log's retention |
| DELETE, or no attribute | messages are kept as long as the log's retention keeps them |

The policy of a topic never changes. Source: RocketMQ `TopicAttributes.CLEANUP_POLICY_ATTRIBUTE`, `CleanupPolicyUtils`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cluster.protocol.errors import Reason, RequestFailed
from store.errors import IllegalMessage

if TYPE_CHECKING:
    from cluster.protocol.topic_config import Attributes, TopicConfig

CLEANUP_POLICY: Final = "cleanup.policy"
COMPACTION: Final = "COMPACTION"
_DELETE: Final = "DELETE"
_COMPACTED: Final = (CLEANUP_POLICY, COMPACTION)


def is_compacted(attributes: Attributes) -> bool:
    """Return whether a topic with these attributes is compacted."""
    return _COMPACTED in attributes


def check_cleanup_policy(topic: TopicConfig, known: TopicConfig | None) -> None:
    """Raise unless a topic may get the policy in its attributes.

    Args:
        topic: as requested.
        known: the present settings; None: the topic is new.

    Raises:
        IllegalMessage: the value is not one of RocketMQ's.
        RequestFailed: ILLEGAL_REQUEST: the topic has another policy.
    """
    value = dict(topic.attributes).get(CLEANUP_POLICY, _DELETE)
    if value not in (COMPACTION, _DELETE):
        raise IllegalMessage(f"attribute {CLEANUP_POLICY}", f"{COMPACTION} or {_DELETE}", repr(value)[:80])
    if known is not None and is_compacted(known.attributes) != is_compacted(topic.attributes):
        raise RequestFailed(
            Reason.ILLEGAL_REQUEST,
            f"the {CLEANUP_POLICY} of topic {topic.name!r} cannot be changed: create another topic with "
            f"{'the policy ' + value if value == COMPACTION else 'this policy'}, and copy the messages to it",
        )
