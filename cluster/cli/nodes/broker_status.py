"""The table of `dledger status` with the message stores of a broker's nodes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from types import MappingProxyType
from typing import TYPE_CHECKING

import grpc
from rich import box
from rich.markup import escape
from rich.table import Table

from cluster.cli.nodes.certificate_expiry import expiry_text
from cluster.protocol.errors import RequestFailed
from cluster.protocol.wire.answers import check_answer
from cluster.replica.port import NO_DIVIDE
from cluster.v1.broker_pb2 import BrokerStatusRequest, BrokerStatusResponse
from cluster.v1.broker_pb2_grpc import BrokerServiceStub
from dledger.client.failures import CHANNEL_OPTIONS
from dledger.security.channels import open_channel
from dledger.security.settings import PLAIN

if TYPE_CHECKING:
    from grpc import Future

    from dledger.security.settings import Security

BrokerStatuses = Mapping[str, BrokerStatusResponse]


def broker_statuses(
    endpoints: Iterable[str], timeout_s: float, security: Security = PLAIN
) -> dict[str, BrokerStatusResponse]:
    """Return the status of each node with a message store; nodes that do not answer are omitted."""
    channels = {endpoint: open_channel(endpoint, security, CHANNEL_OPTIONS) for endpoint in endpoints}
    try:
        asked: dict[str, Future[BrokerStatusResponse]] = {
            endpoint: BrokerServiceStub(channel).Status.future(BrokerStatusRequest(), timeout=timeout_s)
            for endpoint, channel in channels.items()
        }
        found = {}
        for endpoint, future in asked.items():
            try:
                found[endpoint] = future.result()
                check_answer(found[endpoint].answer, endpoint)
            except (grpc.RpcError, RequestFailed):
                # A log of raw entries has no such service; nodes that do not answer are shown in the other table.
                found.pop(endpoint, None)
        return found
    finally:
        for channel in channels.values():
            channel.close()


def broker_table(statuses: BrokerStatuses, expiries: Mapping[str, datetime] = MappingProxyType({})) -> Table:
    """Return the table: one row per node, ordered by id; with a column of certificates if there are any."""
    first = next(iter(statuses.values()))
    table = Table(title=f"broker {first.broker}", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("node", no_wrap=True)
    for name in ("topics", "groups", "queues", "divide", "log end", "undispatched"):
        table.add_column(name, justify="right", no_wrap=True)
    if expiries:
        table.add_column("certificate", justify="right", no_wrap=True)
    table.add_column("puts", overflow="fold")
    now = datetime.now(UTC)
    for endpoint, status in sorted(statuses.items(), key=lambda each: each[1].self_id):
        table.add_row(
            status.self_id,
            str(status.topics_count),
            str(status.groups_count),
            str(status.queues_count),
            "-" if status.divided_offset == NO_DIVIDE else str(status.divided_offset),
            str(status.max_physical_offset),
            str(undispatched_bytes(status)),
            *([expiry_text(expiries.get(endpoint), now)] if expiries else []),
            puts_of(status),
        )
    return table


def undispatched_bytes(status: BrokerStatusResponse) -> int:
    """Return the number of bytes of the committed log that are not in queues and index yet."""
    return max(status.max_physical_offset - status.dispatched_physical_offset, 0)


def puts_of(status: BrokerStatusResponse) -> str:
    """Return whether a node accepts puts; for a leader that does not, the reason and the bytes left to dispatch."""
    if status.is_serving_puts:
        return "[green]taken[/]"
    if status.role not in ("LEADER", "STANDALONE"):
        return "at the leader" if status.leader.id else "[yellow]no leader[/]"
    lag = f" ({status.behind_bytes} bytes to go)" if status.behind_bytes else ""
    return f"[yellow]{escape(status.not_serving_reason or 'not yet')}{lag}[/]"
