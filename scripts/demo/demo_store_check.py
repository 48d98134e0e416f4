"""Reads all messages of a broker node by queue, by key and by message id, and compares them with the sent ones.

Reads the node's own copy, not the leader's.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from demo_writer import DemoError

from cluster import MessageAppended, RequestFailed
from cluster.client.broker_calls import BrokerCalls
from cluster.protocol.errors import Reason
from cluster.v1 import broker_pb2 as pb
from dledger.v1.log_pb2 import READ_MODE_LOCAL

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from dledger.security.settings import Security

LAG_S = 30.0
_CALL_S = 10.0
_POLL_S = 0.02
_READ_MAX = 1_000
_SAMPLES_MAX = 200

# The acknowledged location, the body and the key.
Expected = tuple[MessageAppended, bytes, str]


@dataclass(slots=True)
class StoreResult:
    """The result of reading one node.

    Attributes:
        read: messages in all queues.
        missing: sent messages that are not at their queue offset.
        doubled: messages at queue offsets that were not acknowledged.
        altered: messages with another body.
        asked: number of queries by key, and by id.
        found_by_key, found_by_id: queries that returned the right body.
    """

    node_id: str
    read: int = 0
    missing: int = 0
    doubled: int = 0
    altered: int = 0
    asked: int = 0
    found_by_key: int = 0
    found_by_id: int = 0

    @property
    def is_exact(self) -> bool:
        """Whether every message is stored exactly once and unaltered, and all queries found theirs."""
        is_found = self.asked == self.found_by_key == self.found_by_id > 0
        return is_found and not (self.missing or self.doubled or self.altered)


def status_of(endpoint: str, security: Security) -> pb.BrokerStatusResponse | None:
    """Return the status of a node; None if it does not answer."""
    with BrokerCalls(endpoint, 1.0, security=security) as calls:
        try:
            return calls.ask(lambda stub: stub.Status, pb.BrokerStatusRequest())
        except RequestFailed:
            return None


def wait_level(endpoints: Mapping[str, str], timeout_s: float, security: Security) -> None:
    """Wait until all nodes have the same log and have dispatched all of it.

    Raises: DemoError: the time limit is exceeded.
    """
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        statuses = [status_of(endpoint, security) for endpoint in endpoints.values()]
        offsets = {(each.max_physical_offset, each.dispatched_physical_offset) for each in statuses if each is not None}
        is_served = any(each is not None and each.is_serving_puts for each in statuses)
        if is_served and None not in statuses and len(offsets) == 1 and len(set(*offsets)) == 1:
            return
        time.sleep(_POLL_S)
    raise DemoError(f"{', '.join(endpoints)} do not have the same log within {timeout_s:.0f} s")


def check_store(node_id: str, endpoint: str, sent: Sequence[Expected], security: Security) -> StoreResult:
    """Read the node's own copy of all messages and compare it with `sent`.

    Args:
        node_id: the node.
        endpoint: its address.
        sent: all messages.
        security: of an administrator's connections, because others may not query by message id.

    Raises:
        RequestFailed: the node does not answer.
    """
    topic = sent[0][0].topic
    expected = {(place.queue_id, place.queue_offset): body for place, body, _ in sent}
    result = StoreResult(node_id)
    with BrokerCalls(endpoint, _CALL_S, security=security) as calls:
        for queue_id in sorted({place.queue_id for place, _, _ in sent}):
            compare(result, queue_id, _read_queue(calls, topic, queue_id), expected)
        result.missing = len(expected)
        samples = sent[:: max(1, len(sent) // _SAMPLES_MAX)]
        result.asked = len(samples)
        for place, body, key in samples:
            by_key = pb.QueryByKeyRequest(topic=topic, key=key)
            result.found_by_key += body in _bodies(calls.ask(lambda stub: stub.QueryByKey, by_key))
            result.found_by_id += _bodies_of_id(calls, place.message_id) == [body]
    return result


def compare(
    result: StoreResult, queue_id: int, found: Iterable[tuple[int, bytes]], expected: dict[tuple[int, int], bytes]
) -> None:
    """Compare the (queue offset, body) pairs of one queue; matches are removed from `expected`."""
    for offset, body in found:
        result.read += 1
        wanted = expected.pop((queue_id, offset), None)
        result.doubled += wanted is None
        result.altered += wanted is not None and wanted != body


def _bodies(response: pb.QueryResponse) -> list[bytes]:
    return list(response.columns.bodies)


def _bodies_of_id(calls: BrokerCalls, message_id: str) -> list[bytes]:
    try:
        return _bodies(calls.ask(lambda stub: stub.QueryById, pb.QueryByIdRequest(message_id=message_id)))
    except RequestFailed as error:
        # A message that is not found is counted in the table and does not end the demo.
        if error.reason is Reason.NO_MESSAGE:
            return []
        raise


def _read_queue(calls: BrokerCalls, topic: str, queue_id: int) -> Iterator[tuple[int, bytes]]:
    """Yield (queue offset, body) of all messages of a queue."""
    offset = 0
    while True:
        request = pb.GetRequest(
            topic=topic, queue_id=queue_id, offset=offset, max_messages=_READ_MAX, mode=READ_MODE_LOCAL
        )
        response = calls.ask(lambda stub: stub.Get, request)
        if response.status != pb.GET_STATUS_FOUND:
            return
        yield from zip(response.columns.queue_offsets, response.columns.bodies, strict=True)
        offset = response.next_offset
