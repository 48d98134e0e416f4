"""Converts the status of a node and of its group to messages of the gRPC services."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dledger.errors import ResponseCode
from dledger.types import NO_GROUP, NO_INDEX
from dledger.v1 import log_pb2, member_pb2

if TYPE_CHECKING:
    from google.protobuf.message import Message

    from dledger.node.status import KnownLeader, NodeStatus
    from dledger.types import Member
    from store.errors import IllegalRequest


def hint(leader: KnownLeader) -> log_pb2.LeaderHint:
    """Return the leader's id and client address."""
    return log_pb2.LeaderHint(id=leader.id, address=leader.client_address)


def members_of(status: NodeStatus) -> list[member_pb2.Member]:
    """Return the members as the node knows them."""
    return [member_of(member) for member in status.membership.membership.members]


def member_of(member: Member) -> member_pb2.Member:
    """Return one member."""
    return member_pb2.Member(
        id=member.id, address=member.address, is_voter=member.is_voter, incarnation=member.incarnation
    )


def peers_of(status: NodeStatus) -> list[log_pb2.PeerStatus]:
    """Return the leader's view of the other members; nothing on other nodes."""
    return [
        log_pb2.PeerStatus(
            id=peer.id,
            address=peer.address,
            client_address=peer.client_address,
            match_index=peer.match_index,
            lag_entries=peer.lag_entries,
            lag_bytes=peer.lag_bytes,
            is_live=peer.is_live,
            is_voter=peer.is_voter,
            is_disk_unhealthy=not peer.is_healthy,
            is_counted=peer.is_counted,
            is_refusing_corrupt=peer.is_refusing_corrupt,
            is_contradicting=peer.is_contradicting,
        )
        for peer in status.peers
    ]


def status_response(status: NodeStatus) -> log_pb2.StatusResponse:
    """Return the answer to Status."""
    return log_pb2.StatusResponse(
        code=ResponseCode.SUCCESS,
        group=status.group,
        self_id=status.self_id,
        role=status.role.value,
        term=status.term,
        leader=hint(status.leader),
        begin_index=status.begin_index,
        begin_position=status.begin_position,
        end_index=status.end_index,
        end_position=status.end_position,
        commit_index=status.commit_index,
        commit_position=status.commit_position,
        peers=peers_of(status),
        is_disk_full=status.is_disk_full,
        is_disk_stalled=status.is_disk_stalled,
        members=members_of(status),
        membership_index=status.membership.index,
        is_membership_committed=status.is_membership_committed,
        is_founding=status.is_founding,
        incarnation=status.incarnation,
        applied_index=status.applied_index,
        snapshot_index=status.snapshot_index,
        aside_files=status.aside_files,
        aside_last_index=NO_INDEX if status.aside is None else status.aside.last_index,
        aside_caught_up_index=NO_INDEX if status.aside is None else status.aside.caught_up_index,
        group_id=group_id_of(status),
    )


def group_id_of(status: NodeStatus) -> str:
    """Return the group id as in logs and error messages; empty while the group has none."""
    group_id = status.membership.membership.group_id
    return "" if group_id == NO_GROUP else f"{group_id:016x}"


def refuse_log_request(error: IllegalRequest, response: Any, request: Any) -> Message:
    """Return the response to a request that breaks a bound: see `dledger.service.guarded_method.Refuse`."""
    response.code = ResponseCode.UNEXPECTED_ARGUMENT
    response.message = str(error)
    if isinstance(response, log_pb2.AppendResponse):
        response.first_index = response.term = -1
        response.request_id = 0 if request is None else request.request_id
    filled: Message = response
    return filled
