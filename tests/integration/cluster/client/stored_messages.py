"""The messages and groups of a broker in memory, which its scripted nodes share."""

from __future__ import annotations

import threading
from collections import defaultdict

from commitlog.record.encoder import RecordEncoder
from store.model.message import Host, Message

HOST = Host(b"\x7f\x00\x00\x01", 10911)
EARLIER_HOST = Host(HOST.address, 10912)


class Stored:
    """The messages and groups of one broker, which its nodes share."""

    def __init__(self, name: str, topics: dict[str, int]) -> None:
        self.name = name
        self.topics = topics
        self.changed = threading.Condition()
        self.queues: dict[tuple[str, int], list[Message]] = defaultdict(list)
        self.firsts: dict[tuple[str, int], int] = defaultdict(int)
        self.offsets: dict[tuple[str, str, int], tuple[int, int]] = {}
        self.members: dict[str, dict[str, int]] = defaultdict(dict)
        self.locks: dict[tuple[str, str, int], str] = {}
        self.places: dict[str, tuple[int, int]] = {}
        self.end = 0
        self.encoder = RecordEncoder(HOST)

    def put(self, message: Message) -> tuple[int, int, bool]:
        """Return physical offset, queue offset, and whether the message is a duplicate."""
        key = message.properties.get("UNIQ_KEY", "")
        if key in self.places:
            return (*self.places[key], True)
        queue = self.queues[message.topic, message.queue_id]
        place = (self.end, len(queue))
        self.end += self.encoder.prepare([message]).total_size
        queue.append(message)
        if key:
            self.places[key] = place
        return (*place, False)

    def fill(self, topic: str, count: int, *, queue_id: int = 0, size: int = 10, tags: str = "") -> None:
        """Put messages with the numbers 0 … count - 1 as bodies."""
        properties = {"TAGS": tags} if tags else {}
        with self.changed:
            for number in range(count):
                body = b"%d" % number
                self.put(Message(topic, body.ljust(size), queue_id, properties, born_timestamp=1))
            self.changed.notify_all()

    def records(
        self, topic: str, queue_id: int, begin: int, end: int, tags: str, damaged: frozenset[int] = frozenset()
    ) -> bytes:
        wanted = set() if tags in ("", "*") else {each.strip() for each in tags.split("||")}
        rows = [
            (offset, message)
            for offset, message in enumerate(self.queues[topic, queue_id][begin:end], begin)
            if offset not in damaged and (not wanted or message.properties.get("TAGS") in wanted)
        ]
        if not rows:
            return b""
        prepared = self.encoder.prepare([message for _, message in rows])
        return bytes(prepared.encode(0, [offset for offset, _ in rows], 1_000))
