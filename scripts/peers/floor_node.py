"""A node of the floor: what three processes of Python do at least for an append, without Raft.

Node 0 is always the leader: it encodes entries, sends them to both followers, and acknowledges them once they are
synced on a majority. There are no terms, elections, checks of followers or catch-up of nodes that were away; a follower
that is not connected misses the entries. So its figures are a limit for comparisons, and it is no log to store data in.

    python floor_node.py NUMBER PORT,PORT,PORT FOLDER
"""

from __future__ import annotations

import asyncio
import sys
from collections import deque
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final

from floor_frames import HEAD, FrameProtocol, OnFrame, answer, bodies_of
from floor_log import FloorLog, encode_entries

from dledger.allocator import keep_large_blocks
from dledger.event_loop import run

_LOOPBACK: Final = "127.0.0.1"
_CONNECT_EVERY_S: Final = 0.02


class Follower:
    """Writes what the leader sends, and answers with the index after the last durable entry."""

    def __init__(self, folder: Path) -> None:
        self._log = FloorLog(folder, self._answer)
        self._leader: FrameProtocol | None = None

    def on_push(self, connection: FrameProtocol, _count: int, mark: int, body: bytes) -> None:
        """Write a push of the leader."""
        self._leader = connection
        self._log.add(body, mark)

    def _answer(self, end: int) -> None:
        if self._leader is not None:
            self._leader.send(answer(end))


class Leader:
    """Encodes requests of clients, replicates them, and acknowledges them once a majority has synced them.

    Args:
        folder: of its log.
        followers: connections, by the number of the follower; they are added while they are being opened.
    """

    def __init__(self, folder: Path) -> None:
        self.followers: dict[int, FrameProtocol] = {}
        self._log = FloorLog(folder, partial(self.acknowledge, 0))
        self._end = 0
        self._position = 0
        # The index after the last durable entry of each node.
        self._durable = {0: 0, 1: 0, 2: 0}
        # Requests in the order of the log: the index after their last entry, the client, and its number of the request.
        self._waiting: deque[tuple[int, FrameProtocol, int]] = deque()

    def on_request(self, client: FrameProtocol, count: int, mark: int, body: bytes) -> None:
        """Append the entries of a request."""
        block = encode_entries(self._end, self._position, mark, list(bodies_of(body)))
        self._position += len(block)
        self._end += count
        head = HEAD.pack(len(block), count, self._end)
        for follower in self.followers.values():
            follower.send(head, block)
        self._waiting.append((self._end, client, mark))
        self._log.add(block, self._end)

    def on_answer(self, number: int, _connection: FrameProtocol, _count: int, mark: int, _body: bytes) -> None:
        """Take the answer of a follower."""
        self.acknowledge(number, mark)

    def acknowledge(self, number: int, end: int) -> None:
        """Note how much of the log is durable on a node; answer the requests that are now on a majority."""
        self._durable[number] = end
        committed = sorted(self._durable.values())[1]
        answers: dict[FrameProtocol, list[bytes]] = {}
        while self._waiting and self._waiting[0][0] <= committed:
            _, client, mark = self._waiting.popleft()
            answers.setdefault(client, []).append(answer(mark))
        for client, frames in answers.items():
            client.send(*frames)


async def _connect(leader: Leader, number: int, port: int) -> None:
    loop = asyncio.get_running_loop()
    while True:
        with suppress(OSError):
            _, connection = await loop.create_connection(
                lambda: FrameProtocol(partial(leader.on_answer, number)), _LOOPBACK, port
            )
            leader.followers[number] = connection
            return
        await asyncio.sleep(_CONNECT_EVERY_S)


async def serve(number: int, ports: list[int], folder: Path) -> None:
    """Serve until the process is killed; the leader serves clients once both followers are connected."""
    if number == 0:
        leader = Leader(folder)
        for other in (1, 2):
            await _connect(leader, other, ports[other])
        on_frame: OnFrame = leader.on_request
    else:
        on_frame = Follower(folder).on_push
    server = await asyncio.get_running_loop().create_server(lambda: FrameProtocol(on_frame), _LOOPBACK, ports[number])
    await server.serve_forever()


if __name__ == "__main__":
    keep_large_blocks()
    run(serve(int(sys.argv[1]), [int(port) for port in sys.argv[2].split(",")], Path(sys.argv[3])))
