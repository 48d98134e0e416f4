"""The options of a requester."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypedDict

from cluster.protocol.request_reply import DEFAULT_CLUSTER, reply_topic
from store.model.topics import check_group, check_topic


class RequesterSettings(TypedDict, total=False):
    """The fields of `RequesterOptions`, each a keyword argument of `Requester`; a test keeps the two in step."""

    cluster: str
    group: str
    pending_max: int


@dataclass(frozen=True, slots=True)
class RequesterOptions:
    """The settings of a requester.

    Attributes:
        cluster: the cluster of the brokers; replies come by its topic `<cluster>_REPLY_TOPIC`.
        group: group as whose consumer it reads replies; with access control it needs the right to consume. No offsets
            are stored.
        pending_max: maximum number of requests that wait for a reply.
    """

    cluster: str = DEFAULT_CLUSTER
    group: str = "requesters"
    pending_max: int = 1_000

    def __post_init__(self) -> None:
        """Check the values.

        Raises:
            ValueError: `pending_max` is below 1.
            IllegalMessage: the name of the cluster or of the group is invalid.
        """
        if self.pending_max < 1:
            raise ValueError(f"pending_max: expected at least 1, found {self.pending_max}")
        check_topic(reply_topic(self.cluster))
        check_group(self.group)
