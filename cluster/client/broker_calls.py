"""A simple client of one broker for the command line: one call at a time, without routes.

It calls the leader, and retries while the broker has no leader that is ready. Programs use `cluster.client` instead. A
refusal, or an unreachable broker, is raised as `RequestFailed`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

import grpc

from cluster.protocol.errors import Reason, RequestFailed
from cluster.protocol.wire.answers import check_answer, failure_of_call
from cluster.v1 import broker_pb2 as pb
from cluster.v1.access_pb2_grpc import AccessServiceStub
from cluster.v1.broker_pb2_grpc import BrokerServiceStub
from commitlog.record.record import Record, decode
from dledger.client.endpoints import parse_endpoints
from dledger.client.failures import CHANNEL_OPTIONS
from dledger.client.reaching import PATIENCE_S, next_to_ask, reached_soon
from dledger.client.retry import Backoff
from dledger.security.channels import is_private, open_channel
from dledger.security.settings import PLAIN

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from dledger.security.settings import Security

_SIZE_BYTES_MAX: Final = 16 << 20
_OPTIONS: Final = (*CHANNEL_OPTIONS, ("grpc.max_receive_message_length", _SIZE_BYTES_MAX))

Response = TypeVar("Response")
# Creates the stub of one service of a broker.
Service = Callable[[grpc.Channel], Any]


class BrokerCalls:
    """Calls the nodes of one broker: first any node that answers, then the leader that it names.

    Args:
        brokers: `host:port`, comma separated.
        timeout_s: limit of each call, and of the wait for a leader.
        security: of the connections, and the token that is sent with each call.

    Raises:
        ValueError: an address is not `host:port`.
    """

    def __init__(self, brokers: str, timeout_s: float, *, security: Security = PLAIN) -> None:
        self._addresses = list(parse_endpoints(brokers))
        self._timeout_s = timeout_s
        self._security = security
        self._channels: dict[str, grpc.Channel] = {}
        self._answered: set[str] = set()

    def __enter__(self) -> Self:
        """Return itself; connections are opened at the first call."""
        return self

    def __exit__(self, *_error: object) -> None:
        """Close all connections."""
        for channel in self._channels.values():
            channel.close()

    def exposed_addresses(self) -> list[str]:
        """Return the addresses of other machines to which connections are plain: the network can read them."""
        return [address for address in self._addresses if not is_private(address, self._security)]

    def ask(self, method: Callable[[BrokerServiceStub], Callable[..., Response]], request: Any) -> Response:
        """Return the response to a unary request; `method` selects the call from the stub.

        Raises:
            RequestFailed: see its message.
        """
        return self._ask_leader(BrokerServiceStub, method, request)

    def ask_access(self, method: Callable[[AccessServiceStub], Callable[..., Response]], request: Any) -> Response:
        """Return the response to a unary request of the access service: users, roles, policies or logins.

        Raises:
            RequestFailed: see its message.
        """
        return self._ask_leader(AccessServiceStub, method, request)

    def _ask_leader(self, service: Service, method: Callable[[Any], Callable[..., Response]], request: Any) -> Response:
        deadline, backoff = time.monotonic() + self._timeout_s, Backoff()
        while True:
            try:
                return self._try_each(lambda address: self._ask(address, service, method, request))
            except RequestFailed as failure:
                pause_s = backoff.next_s(failure.repeat_after_s)
                is_retriable = failure.is_worth_trying and failure.reason is not Reason.NOT_REACHED
                if not is_retriable or time.monotonic() + pause_s >= deadline:
                    raise
            time.sleep(pause_s)

    def _ask(
        self, address: str, service: Service, method: Callable[[Any], Callable[..., Response]], request: Any
    ) -> Response:
        try:
            stub = service(self._channel(address))
            response = method(stub)(request, timeout=self._timeout_s)
        except grpc.RpcError as error:
            raise failure_of_call(address, error.code(), error.details() or "", "BrokerService") from error
        check_answer(response.answer, address)  # type: ignore[attr-defined]
        return response

    def subscribe(self, request: pb.SubscribeRequest) -> Iterator[pb.SubscribeResponse]:
        """Yield the responses of a subscription, endlessly: each message once, across changes of the leader.

        Raises:
            RequestFailed: the stream ended, and no node continued it in time; see its message.
        """
        wanted = pb.SubscribeRequest()
        wanted.CopyFrom(request)
        row_of = {queue_id: row for row, queue_id in enumerate(wanted.queue_ids)}
        lost_s, backoff = 0.0, Backoff()
        while True:
            try:
                for response in self._try_each(lambda address: self._subscribed(address, wanted)):
                    yield response
                    wanted.offsets[row_of[response.queue_id]] = response.next_offset
                    lost_s = 0.0
                    backoff.reset()
            except RequestFailed as failure:
                lost_s = lost_s or time.monotonic()
                pause_s = backoff.next_s(failure.repeat_after_s)
                if not failure.is_worth_repeating or time.monotonic() + pause_s >= lost_s + self._timeout_s:
                    raise
                time.sleep(pause_s)
            else:
                return

    def _subscribed(self, address: str, request: pb.SubscribeRequest) -> Iterator[pb.SubscribeResponse]:
        """Wait for the first response of one node, which shows whether it serves; return all of its responses."""
        responses = self._responses(address, request)
        return chain(list(islice(responses, 1)), responses)

    def _responses(self, address: str, request: pb.SubscribeRequest) -> Iterator[pb.SubscribeResponse]:
        stub: Any = BrokerServiceStub(self._channel(address))
        stream = stub.Subscribe(request)
        try:
            for response in stream:
                check_answer(response.answer, address)
                yield response
        except grpc.RpcError as error:
            raise failure_of_call(address, error.code(), error.details() or "", "BrokerService") from error
        finally:
            stream.cancel()

    def _try_each(self, work: Callable[[str], Response]) -> Response:
        failures: list[RequestFailed] = []
        tried: set[str] = set()
        waiting = list(self._addresses)
        while waiting:
            address = self._next(waiting, has_answer=any(each.reason is Reason.NOT_LEADER for each in failures))
            if address is None:
                break
            waiting = [each for each in waiting if each != address]
            tried.add(address)
            try:
                result = work(address)
            except RequestFailed as failure:
                # Try another node only if this one did nothing: a second answer may differ.
                if failure.reason not in (Reason.NOT_LEADER, Reason.NOT_REACHED):
                    raise
                failures.append(failure)
                if failure.leader and failure.leader not in tried:
                    waiting.insert(0, failure.leader)
                continue
            # A node that has answered is tried first in later calls.
            self._answered.add(address)
            with suppress(ValueError):
                self._addresses.remove(address)
            self._addresses.insert(0, address)
            return result
        # If one node answers and names another leader, the cause may be only an election.
        raise next((each for each in failures if each.reason is not Reason.NOT_REACHED), failures[-1])

    def _next(self, waiting: Sequence[str], *, has_answer: bool) -> str | None:
        """Return the node to call; None: all of these are silent, and a node that answered will soon have a leader."""
        if waiting[0] in self._answered:
            return waiting[0]
        channels = {self._channel(address): address for address in waiting}
        if has_answer:
            reached = reached_soon([*channels], PATIENCE_S)
            return None if reached is None else channels[reached]
        return channels[next_to_ask([*channels])]

    def _channel(self, address: str) -> grpc.Channel:
        if address not in self._channels:
            self._channels[address] = open_channel(address, self._security, _OPTIONS)
        return self._channels[address]


def records_in(data: bytes) -> Iterator[Record]:
    """Yield the records of an answer in the format RECORDS, without checking their checksums.

    Raises:
        commitlog.record.record.BadRecord: the answer is damaged.
    """
    view, position = memoryview(data), 0
    while position < len(view):
        record = decode(view, position)
        yield record
        position += record.size
