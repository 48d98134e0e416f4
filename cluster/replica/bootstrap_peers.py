"""The client side of the bootstrap: asks other nodes over the peer port about the base log, and fetches it.

Not here: the choice of nodes, and the decisions from their answers (`cluster.replica.bootstrap`).
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from typing import TYPE_CHECKING, Final, TypeVar

from commitlog.conversion.bootstrap_rule import Statement, statement_from
from commitlog.conversion.old_config import CONFIG_SIZE_BYTES_MAX, config_from_json
from commitlog.conversion.origin import state_message
from dledger.errors import DLedgerError
from dledger.peer.bootstrap import BootstrapConnection
from dledger.peer.origin import BootstrapMessage
from store.fs.foreign_json import foreign_json

if TYPE_CHECKING:
    from collections.abc import Callable

    from commitlog.conversion.base_log_files import BaseLogFetch, ChunkRequest
    from dledger.config import Address
    from dledger.peer.handshake import Handshake

# Chunks of 1 MiB in flight, so that the disks of both nodes work concurrently.
_WINDOW: Final = 8
# The other node may read from a slow disk, for several nodes in turn.
_ANSWER_TIMEOUT_S: Final = 20.0
Result = TypeVar("Result")


class FetchFailed(DLedgerError):
    """The other node did not send the requested data; retry, or ask another node."""


async def in_thread(work: Callable[[], Result], on_cancelled: Callable[[], None] = lambda: None) -> Result:
    """Run `work`, which uses files, in a thread; if cancelled, call `on_cancelled` and wait for its end."""
    running = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        on_cancelled()
        await asyncio.wait([running])
        raise


async def state_of(handshake: Handshake, peer_id: str, address: Address, own: Statement) -> Statement:
    """Exchange statements with a node; return that node's.

    Raises:
        OSError, DLedgerError, ValueError: it cannot be reached, or its answer is invalid.
    """
    connection = await BootstrapConnection.dial(handshake, peer_id, address)
    try:
        connection.ask(state_message(own, is_question=True))
        async with asyncio.timeout(_ANSWER_TIMEOUT_S):
            answer = await connection.answer()
        return statement_from(_object_of(answer).get("statement"), answer.payload)
    finally:
        connection.close()


async def fetch_from(
    handshake: Handshake,
    peer_id: str,
    address: Address,
    fetch: BaseLogFetch,
    *,
    bytes_per_s: int,
    on_taken: Callable[[int], None],
) -> None:
    """Fetch all chunks that `fetch` still needs from one node.

    Args:
        handshake: the handshake of this node.
        peer_id: id of the node to ask.
        address: its peer address.
        fetch: receives the chunks.
        bytes_per_s: rate limit, which leaves the source bandwidth for its other work.
        on_taken: called with the number of bytes of each fetched chunk.

    Raises:
        OSError, DLedgerError, ValueError: the node did not send all of it; received chunks are kept.
        commitlog.conversion.base_log_files.BaseLogDamaged, store.errors.StoreError: see `BaseLogFetch.take`.
    """
    loop = asyncio.get_running_loop()
    connection = await BootstrapConnection.dial(handshake, peer_id, address)
    try:
        in_flight: deque[ChunkRequest] = deque()
        begun_at, taken = loop.time(), 0
        while True:
            while len(in_flight) < _WINDOW:
                request = fetch.upcoming(in_flight[-1] if in_flight else None)
                if request is None:
                    break
                connection.ask(_chunk_question(request))
                in_flight.append(request)
            if not in_flight:
                return
            async with asyncio.timeout(_ANSWER_TIMEOUT_S):
                answer = await connection.answer()
            await _take(fetch, in_flight.popleft(), answer, peer_id)
            taken += len(answer.payload)
            on_taken(len(answer.payload))
            await asyncio.sleep(max(taken / bytes_per_s - (loop.time() - begun_at), 0))
    finally:
        connection.close()


async def fetch_config(handshake: Handshake, peer_id: str, address: Address) -> dict[str, bytes]:
    """Fetch the configuration files of the old store from a node; return their contents by name.

    Raises:
        OSError, DLedgerError, ValueError: the node did not send it.
    """
    connection = await BootstrapConnection.dial(handshake, peer_id, address)
    try:
        found = config_from_json(
            _object_of(await _answer(connection, BootstrapMessage(b'{"ask": "config"}'))).get("config")
        )
        if not 0 < sum(file.size for file in found) <= CONFIG_SIZE_BYTES_MAX:
            raise FetchFailed(f"expected 1 to {CONFIG_SIZE_BYTES_MAX} bytes of configuration, found {found!r:.200}")
        contents = {}
        for file in found:
            parts = [
                (await _answer(connection, _chunk_question(request, "config chunk"))).payload
                for request in file.requests()
            ]
            contents[file.name] = b"".join(parts)
            if not file.is_content(contents[file.name]):
                raise FetchFailed(f"config/{file.name} from {peer_id} is damaged, or was changed during the transfer")
        return contents
    finally:
        connection.close()


async def _answer(connection: BootstrapConnection, question: BootstrapMessage) -> BootstrapMessage:
    connection.ask(question)
    async with asyncio.timeout(_ANSWER_TIMEOUT_S):
        return await connection.answer()


async def _take(fetch: BaseLogFetch, request: ChunkRequest, answer: BootstrapMessage, peer_id: str) -> None:
    checksum = _object_of(answer).get("checksum")
    if not answer.payload:
        raise FetchFailed(f"{peer_id} no longer has the bytes of {request.name} at {request.position}")
    if type(checksum) is not int:
        raise ValueError(f"expected a checksum, found {checksum!r:.80}")
    if not await in_thread(lambda: fetch.take(request, answer.payload, checksum)):
        raise FetchFailed(f"the chunk of {request.name} at {request.position} from {peer_id} is damaged or too short")


def _chunk_question(request: ChunkRequest, ask: str = "chunk") -> BootstrapMessage:
    value = {"ask": ask, "name": request.name, "position": request.position, "size": request.size}
    return BootstrapMessage(json.dumps(value).encode())


def _object_of(message: BootstrapMessage) -> dict[str, object]:
    value = foreign_json(message.body)
    if not isinstance(value, dict):
        raise ValueError(f"expected an object, found {message.body[:80]!r}")  # noqa: TRY004  (bad input, not a bug)
    return value
