"""Topics that clients and tools expect without their being created, and groups that this node does not know yet."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cluster.protocol.errors import Reason, RequestFailed
from cluster.remoting.command import Rejected, RemotingCode
from cluster.v1 import broker_pb2 as pb

if TYPE_CHECKING:
    from cluster.broker.core import BrokerCore, BrokerOptions
    from cluster.fronts.leader_link import LeaderLink

_NAME_SHOWN: Final = 80


def probe_topics(options: BrokerOptions) -> tuple[str, str]:
    """Return the topics to which tools send test messages; the first message creates them.

    Source: RocketMQ `TopicConfigManager`, `CLusterSendMsgRTCommand`, `SendMsgStatusCommand`.
    """
    return options.broker, options.cluster


def expected_topics(options: BrokerOptions) -> tuple[str, str, str]:
    """Return the topics that have a route though they are not created."""
    return (*probe_topics(options), f"{options.cluster}_REPLY_TOPIC")


async def check_group(core: BrokerCore, link: LeaderLink, group: str, limit_s: float) -> None:
    """Raise unless the group exists: here, or at the leader, which may have created it a moment ago.

    Raises:
        Rejected: SUBSCRIPTION_GROUP_NOT_EXIST.
        RequestFailed: the leader does not answer, or the caller has no right on the group.
    """
    if group in core.replica.state.groups:
        return
    try:
        await link.call(lambda stub: stub.ListGroups, pb.ListGroupsRequest(group=group), limit_s)
    except RequestFailed as failure:
        if failure.reason is not Reason.UNKNOWN_GROUP:
            raise
        shown = group[:_NAME_SHOWN]
        text = f"group {shown!r} does not exist; `mqadmin updateSubGroup` or `dledger group create` creates it"
        raise Rejected(RemotingCode.SUBSCRIPTION_GROUP_NOT_EXIST, text) from failure
