"""The blocking interface of the client: `LogClient`. Safe to share between threads.

The path of an append: `append_many` → `Combiner` (alone or with other threads' bodies) → `_append_with_retries`
(tenacity, if the first attempt is refused) → `_attempt` (the leader, or the node that it names) → one call, by frames
or else by gRPC, in the caller's own thread.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Self

import grpc

from dledger.client.blocking.combining import Combiner
from dledger.client.blocking.nodes import GroupConnections
from dledger.client.endpoints import parse_endpoints
from dledger.client.failures import failure_of_append
from dledger.client.framing import FrameCallFailed
from dledger.client.limits import check_bodies
from dledger.client.outcomes import Appended, NotAppended, ReadFailed, Refused, checked_status, raise_outcome
from dledger.client.reading import ReadMode, ReadSession
from dledger.client.retry import HOPS_MAX, retrying
from dledger.entries.format.codec import RAW_ENTRY_CODEC, EntryChecks
from dledger.errors import ResponseCode
from dledger.security.settings import PLAIN
from dledger.v1.log_pb2 import AppendRequest, AppendResponse, StatusResponse

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from types import TracebackType

    from dledger.entries.format.entry import Entry
    from dledger.security.settings import Security

_TOO_LATE = "the deadline passed before the append could be sent"


class LogClient:
    """Appends to and reads from one replicated log.

    Example:
        with LogClient("127.0.0.1:20921,127.0.0.1:20922,127.0.0.1:20923") as log:
            done = log.append(b"hello")
            for entry in log.read(begin=done.index):
                print(entry.index, entry.body)

    Args:
        endpoints: `host:port` of the nodes' LogService, comma separated or as an iterable; one live node is enough.
        group: the replication group.
        deadline_s: how long an append may take, retries included, and how long a read may go without an entry.
        answer_timeout_s: how long to wait for one node's answer to an append; above its `max_wait_ack_time_ms`. A node
            that is silent for this time is considered lost, and the outcome of the append is unknown.
        checks: which of the entries read may be a leader's own; others count as damaged.
        security: plain connections, or `Tls` with the certificates that the nodes need.
        may_use_frames: appends go to the nodes' frame ports, if they have some; otherwise, and without it, to gRPC.

    Raises:
        ValueError: an endpoint is not `host:port`.
    """

    def __init__(
        self,
        endpoints: str | Iterable[str],
        *,
        group: str = "default",
        deadline_s: float = 10.0,
        answer_timeout_s: float = 4.0,
        checks: EntryChecks = RAW_ENTRY_CODEC,
        security: Security = PLAIN,
        may_use_frames: bool = True,
    ) -> None:
        self._nodes = GroupConnections(endpoints, group, security, may_use_frames=may_use_frames)
        self._group = group
        self._deadline_s = deadline_s
        self._answer_timeout_s = answer_timeout_s
        self._checks = checks
        self._combiner = Combiner(self._append_with_retries)

    def close(self) -> None:
        """Close all connections. Appends and reads still in progress in other threads fail."""
        self._nodes.close()

    def __enter__(self) -> Self:
        """Return the client itself."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Close the client."""
        self.close()

    # --------------------------------------------------------------------------------------------------- appending

    def append(self, body: bytes) -> Appended:
        """Append one entry; return its place once it is committed.

        Args:
            body: at most `dledger.entries.format.entry.MAX_BODY_BYTES`; may be empty.

        Raises:
            NotAppended: nothing was written; append again when the cause is gone.
            AppendUnknown: it may have been written; read the log's end before appending it again.
        """
        return self.append_many((body,))[0]

    def append_many(self, bodies: Sequence[bytes]) -> list[Appended]:
        """Append one entry a body, consecutive in the log, as one batch with one outcome.

        Args:
            bodies: at least one; together at most 8 MiB and 8,000 bodies.

        Raises:
            NotAppended: none was written; append again when the cause is gone.
            AppendUnknown: some may have been written; read the log's end before appending them again.
        """
        size_bytes = check_bodies(bodies)
        return self._combiner.append(bodies, size_bytes, time.monotonic() + self._deadline_s)

    def _append_with_retries(self, bodies: Sequence[bytes], deadline: float) -> AppendResponse:
        """Append until it succeeds, the outcome is unknown, or the deadline passes."""
        request = AppendRequest(group=self._group, bodies=bodies)
        # The usual case, without what retries need.
        try:
            return self._attempt(request, deadline)
        except Refused as refusal:
            return self._append_again(request, deadline, refusal)

    def _append_again(self, request: AppendRequest, deadline: float, first: Refused) -> AppendResponse:
        """Repeat an append whose first attempt was refused, with pauses, as long as that can help."""
        failure = "the leader accepted nothing"
        earlier = [first]

        def attempt() -> AppendResponse:
            nonlocal failure
            try:
                if earlier:
                    raise earlier.pop()
                return self._attempt(request, deadline)
            except Refused as refusal:
                if refusal.message != _TOO_LATE:
                    failure = refusal.message
                raise

        try:
            return retrying(deadline - time.monotonic())(attempt)
        except Refused as refusal:
            # A timeout has no cause of its own; the attempt before it does.
            message = f"{_TOO_LATE}; {failure}" if refusal.message == _TOO_LATE else refusal.message
            raise NotAppended(refusal.code, message) from refusal

    def _attempt(self, request: AppendRequest, deadline: float) -> AppendResponse:
        """Send the request to the leader, or to the leader that its answer names, without a pause."""
        tracker = self._nodes.tracker
        address = self._nodes.leader()
        for _ in range(HOPS_MAX):
            response = self._call(address, request, deadline)
            if response.code != ResponseCode.NOT_LEADER or tracker.leader in (None, address):
                break
            address = tracker.leader
        else:
            response = self._call(address, request, deadline)
        raise_outcome(response, address)
        return response

    def _call(self, address: str, request: AppendRequest, deadline: float) -> AppendResponse:
        self._reach(address, deadline)
        try:
            response = self._nodes.append_by_frames(address, request, self._time_left(deadline))
            if response is None:
                response = self._nodes.stub(address).Append(request, timeout=self._time_left(deadline))
        except FrameCallFailed as error:
            self._nodes.tracker.failed(address)
            raise failure_of_append(address, error.code, error.details) from None
        except grpc.RpcError as error:
            self._nodes.tracker.failed(address)
            raise failure_of_append(address, error.code(), error.details() or "") from None
        self._nodes.tracker.observe(address, response.code, response.leader.address)
        return response

    def _reach(self, address: str, deadline: float) -> None:
        try:
            self._nodes.reach(address, min(self._nodes.status_timeout_s, self._time_left(deadline)))
        except Refused:
            self._time_left(deadline)  # If only the time ran out, the error reports that instead.
            raise

    def _time_left(self, deadline: float) -> float:
        """Return the time limit of one call, in seconds.

        Raises:
            Refused: the deadline has passed.
        """
        timeout_s = min(deadline - time.monotonic(), self._answer_timeout_s)
        if timeout_s <= 0:
            raise Refused(ResponseCode.NETWORK_ERROR, _TOO_LATE)
        return timeout_s

    # ----------------------------------------------------------------------------------------------------- reading

    def read(
        self,
        begin: int = 0,
        *,
        position: int | None = None,
        max_entries: int = 0,
        max_bytes: int = 0,
        follow: bool = False,
        mode: ReadMode = "linearizable",
        endpoint: str | None = None,
        prefer_followers: bool = False,
        include_internal: bool = False,
    ) -> Iterator[Entry]:
        """Read committed entries in order of index; checksums are checked here. Nothing is skipped or repeated.

        Args:
            begin: first index. At the end index nothing is delivered (with `follow`: the read waits); a larger one is
                refused with 410, in mode "local" also by a node that lags.
            position: byte position at which to begin instead; an entry must begin there.
            max_entries: the most entries to deliver; 0 = all that is committed when the read begins.
            max_bytes: the same in encoded bytes; at least one entry is delivered.
            follow: continue with entries that are committed later, across leader changes; ends only by a limit or by
                closing the iterator.
            mode: "linearizable" (sees every append acknowledged before), "lease" (the same with less latency on the
                leader, as long as clocks keep to the nodes' `max_clock_drift_ppm`) or "local" (may lag).
            endpoint: read from this node and no other, in any mode.
            prefer_followers: read from a follower if there is one; the leader only provides the read index.
            include_internal: also deliver the leaders' own entries: no-ops (magic 2, empty body) and memberships (magic
                3).

        Raises:
            ReadFailed: the read could not begin or continue; `next_index` says where to resume.
            ValueError: a bad argument.
        """
        session = ReadSession(
            group=self._group,
            begin=begin,
            position=position,
            max_entries=max_entries,
            max_bytes=max_bytes,
            is_follow=follow,
            mode=mode,
            is_internal_included=include_internal,
            patience_s=self._deadline_s,
            is_follower_preferred=prefer_followers,
            checks=self._checks,
        )
        return self._read(session, parse_endpoints(endpoint)[0] if endpoint else None)

    def _read(self, session: ReadSession, endpoint: str | None) -> Iterator[Entry]:
        while not session.is_done:
            try:
                address = endpoint or self._node_to_read(session)
                yield from self._stream(session, address)
            except Refused as refusal:
                time.sleep(session.pause_after(refusal))

    def _node_to_read(self, session: ReadSession) -> str:
        if session.is_follower_preferred:
            address = self._nodes.follower()
        else:
            address = self._nodes.any_node() if session.is_local else self._nodes.leader()
        session.node_found()
        return address

    def _stream(self, session: ReadSession, address: str) -> Iterator[Entry]:
        """Deliver the entries of one stream.

        Raises:
            Refused: the stream broke or was refused.
        """
        with self._nodes.stream_stub(address) as stub:
            call = stub.Read(session.request(), timeout=session.timeout_s())
            try:
                for response in call:
                    self._nodes.tracker.observe(address, response.code, response.leader.address)
                    yield from session.take(response, address)
                session.ended()
            except grpc.RpcError as error:
                self._nodes.tracker.failed(address)
                session.broke(address, error.code(), error.details() or "")
            finally:
                call.cancel()

    # ------------------------------------------------------------------------------------------------------- status

    def find_leader(self) -> str | None:
        """Ask the nodes for the leader; return the leader's `host:port`, None while none of them knows."""
        return self._nodes.find_leader()

    def status(self, endpoint: str | None = None) -> StatusResponse:
        """Return the status of a node and of its peers.

        Args:
            endpoint: the node to ask; None asks the leader.

        Raises:
            ReadFailed: the node does not answer or refuses, or no node knows a leader.
        """
        if endpoint:
            address = parse_endpoints(endpoint)[0]
            return checked_status(address, self._nodes.ask(address, self._deadline_s))
        try:
            return checked_status(*self._nodes.status_of_leader(self._deadline_s))
        except Refused as refusal:
            raise ReadFailed(refusal.code, refusal.message) from refusal

    def statuses(self, timeout_s: float | None = None) -> dict[str, StatusResponse | str]:
        """Ask all nodes at once; return each endpoint's status, or the reason why there is none."""
        return self._nodes.ask_all(self._nodes.status_timeout_s if timeout_s is None else timeout_s)
