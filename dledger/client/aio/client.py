"""The asyncio interface of the client: `AsyncLogClient`. For use by the tasks of one event loop.

The path of an append: `append` → `AppendSender` (joins queued bodies into a batch) → `FramedStream`, or `RequestStream`
(a bidirectional gRPC call), up to four batches in flight → the answer completes one future per caller.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Self

import grpc
import grpc.aio

from dledger.client.aio.host import ClientHost, secured_host
from dledger.client.aio.nodes import AsyncNodes
from dledger.client.aio.sender import AppendSender
from dledger.client.endpoints import parse_endpoints
from dledger.client.limits import check_bodies
from dledger.client.outcomes import Appended, ReadFailed, Refused, checked_status
from dledger.client.reading import ReadMode, ReadSession
from dledger.entries.format.codec import RAW_ENTRY_CODEC, EntryChecks
from dledger.security.settings import PLAIN

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Sequence
    from types import TracebackType

    from dledger.entries.format.entry import Entry
    from dledger.security.settings import Security
    from dledger.v1.log_pb2 import StatusResponse


class AsyncLogClient:
    """Appends to and reads from one replicated log; appends of concurrent tasks are batched automatically.

    Example:
        async with AsyncLogClient("127.0.0.1:20921,127.0.0.1:20922,127.0.0.1:20923") as log:
            done = await asyncio.gather(*(log.append(b"%d" % number) for number in range(1000)))
            async for entry in log.read(begin=done[0].index):
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
        host: clock, randomness and connections; a simulation passes its own, which ignore the two above.

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
        host: ClientHost | None = None,
    ) -> None:
        self._host = host or secured_host(security, may_use_frames=may_use_frames)
        self._nodes = AsyncNodes(endpoints, group, self._host)
        self._group = group
        self._checks = checks
        self._deadline_s = deadline_s
        self._sender = AppendSender(self._nodes, group, answer_timeout_s, self._host)

    async def close(self) -> None:
        """Close all connections: queued appends fail with `NotAppended`, those in flight with `AppendUnknown`."""
        await self._sender.close()
        await self._nodes.close()

    async def __aenter__(self) -> Self:
        """Return the client itself."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        """Close the client."""
        await self.close()

    # --------------------------------------------------------------------------------------------------- appending

    async def append(self, body: bytes) -> Appended:
        """Append one entry; return its place once it is committed.

        Concurrent appends have no guaranteed order. Cancelling does not undo an append.

        Args:
            body: at most `dledger.entries.format.entry.MAX_BODY_BYTES`; may be empty.

        Raises:
            NotAppended: nothing was written; append again when the cause is gone.
            AppendUnknown: it may have been written; read the log's end before appending it again.
        """
        return (await self.append_many((body,)))[0]

    async def append_many(self, bodies: Sequence[bytes]) -> list[Appended]:
        """Append one entry a body, consecutive in the log, as one batch with one outcome.

        Args:
            bodies: at least one; together at most 8 MiB and 8,000 bodies.

        Raises:
            NotAppended: none was written; append again when the cause is gone.
            AppendUnknown: some may have been written; read the log's end before appending them again.
        """
        size_bytes = check_bodies(bodies)
        deadline = self._host.now_s() + self._deadline_s
        if not self._sender.has_space:
            await self._sender.wait_for_space(deadline)
        return await self._sender.put(bodies, size_bytes, deadline)

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
    ) -> AsyncIterator[Entry]:
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
            now_s=self._host.now_s,
            random=self._host.random,
        )
        return self._read(session, parse_endpoints(endpoint)[0] if endpoint else None)

    async def _read(self, session: ReadSession, endpoint: str | None) -> AsyncIterator[Entry]:
        while not session.is_done:
            try:
                address = endpoint or await self._node_to_read(session)
                async for entry in self._stream(session, address):
                    yield entry
            except Refused as refusal:
                await asyncio.sleep(session.pause_after(refusal))

    async def _node_to_read(self, session: ReadSession) -> str:
        if session.is_follower_preferred:
            address = await self._nodes.follower()
        else:
            address = await (self._nodes.any_node() if session.is_local else self._nodes.leader())
        session.node_found()
        return address

    async def _stream(self, session: ReadSession, address: str) -> AsyncIterator[Entry]:
        """Deliver the entries of one stream.

        Raises:
            Refused: the stream broke or was refused.
        """
        with self._nodes.stream_stub(address) as stub:
            call = stub.Read(session.request(), timeout=session.timeout_s())
            try:
                async for response in call:
                    self._nodes.tracker.observe(address, response.code, response.leader.address)
                    for entry in session.take(response, address):
                        yield entry
                session.ended()
            except grpc.aio.AioRpcError as error:
                self._nodes.tracker.failed(address)
                session.broke(address, error.code(), error.details() or "")
            finally:
                call.cancel()

    # ------------------------------------------------------------------------------------------------------- status

    async def find_leader(self) -> str | None:
        """Ask the nodes for the leader; return the leader's `host:port`, None while none of them knows."""
        return await self._nodes.find_leader()

    async def status(self, endpoint: str | None = None) -> StatusResponse:
        """Return the status of a node and of its peers.

        Args:
            endpoint: the node to ask; None asks the leader.

        Raises:
            ReadFailed: the node does not answer or refuses, or no node knows a leader.
        """
        if endpoint:
            address = parse_endpoints(endpoint)[0]
            return checked_status(address, await self._nodes.ask(address, self._deadline_s))
        try:
            return checked_status(*await self._nodes.status_of_leader(self._deadline_s))
        except Refused as refusal:
            raise ReadFailed(refusal.code, refusal.message) from refusal

    async def statuses(self, timeout_s: float | None = None) -> dict[str, StatusResponse | str]:
        """Ask all nodes at once; return each endpoint's status, or the reason why there is none."""
        return await self._nodes.ask_all(self._nodes.status_timeout_s if timeout_s is None else timeout_s)
