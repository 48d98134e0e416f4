"""Three real node processes, writers that record a history, and its comparison with the nodes' logs.

Every test here is `slow`, and ends its processes by process id and start time (`cluster.local.cluster`).
"""

from __future__ import annotations

import random
import threading
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cluster.local.cluster import LocalCluster
from dledger import Appended, AppendUnknown, LogClient, NotAppended
from tests.support.message_history import ClientOutcome
from tests.support.waiting import PATIENCE_S, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# index, term, magic, body: the fields that must be equal on all nodes.
LogEntry = tuple[int, int, int, bytes]

_LOG_TAIL_LINES = 30
_BODY_ENTRIES_MAX = 40
_BODY_SIZE_BYTES_MAX = 700


@dataclass(slots=True)
class Attempt:
    """One `append_many`: its bodies (each of them unique), its outcome and, when appended, its places."""

    bodies: list[bytes]
    outcome: ClientOutcome
    places: list[Appended]


@dataclass(slots=True)
class Writer:
    """Appends batches of random size in a separate thread until `stop`; records every outcome."""

    name: str
    endpoints: str
    seed: int
    attempts: list[Attempt] = field(default_factory=list)
    acknowledged: int = 0
    term: int = -1
    error: BaseException | None = None
    _stop: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, name=self.name, daemon=True)
        self._thread.start()

    def finish(self) -> None:
        """Wait for the append in flight, and end the thread."""
        self._stop.set()
        assert self._thread is not None
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive()
        assert self.error is None

    def _run(self) -> None:
        draw = random.Random(self.seed)
        try:
            with LogClient(self.endpoints) as client:
                while not self._stop.is_set():
                    self.attempts.append(self._attempt(client, self._bodies(draw)))
        except BaseException as error:  # stored for `finish`, which raises it in the test's thread
            self.error = error
            raise

    def _bodies(self, draw: random.Random) -> list[bytes]:
        number = len(self.attempts)
        return [
            f"{self.name}-{number}-{place}-".encode() + draw.randbytes(draw.randrange(_BODY_SIZE_BYTES_MAX))
            for place in range(draw.randint(1, _BODY_ENTRIES_MAX))
        ]

    def _attempt(self, client: LogClient, bodies: list[bytes]) -> Attempt:
        try:
            places = client.append_many(bodies)
        except NotAppended:
            return Attempt(bodies, ClientOutcome.NOT_APPENDED, [])
        except AppendUnknown:
            return Attempt(bodies, ClientOutcome.UNKNOWN, [])
        self.acknowledged += len(places)
        self.term = places[-1].term
        return Attempt(bodies, ClientOutcome.APPENDED, places)


@dataclass(slots=True)
class Harness:
    """A running cluster and its load."""

    cluster: LocalCluster
    writers: list[Writer]

    @property
    def acknowledged(self) -> int:
        """Entries acknowledged so far, over all writers."""
        return sum(writer.acknowledged for writer in self.writers)

    @property
    def term(self) -> int:
        """The latest term in which an append was acknowledged."""
        return max(writer.term for writer in self.writers)

    def start_writers(self) -> None:
        for writer in self.writers:
            writer.start()

    def finish_writers(self) -> None:
        for writer in self.writers:
            writer.finish()

    def wait(self, claim: str, condition: Callable[[], bool]) -> None:
        """Wait until `condition` holds; raise the error of a writer that failed meanwhile."""

        def holds() -> bool:
            for writer in self.writers:
                assert writer.error is None, writer.error
            return condition()

        wait_until(holds, claim)

    def wait_load(self, entries: int) -> None:
        """Wait until this many more entries are acknowledged."""
        goal = self.acknowledged + entries
        self.wait(f"{entries} more entries acknowledged", lambda: self.acknowledged >= goal)

    def logs(self) -> dict[str, list[LogEntry]]:
        """Wait until no entry is in flight and all nodes have all entries; return every node's own committed log.

        A leader that is elected meanwhile adds an entry of its own, which not all nodes have at once.
        """
        with LogClient(self.cluster.endpoints) as client:
            last_index = self._wait_rest(client)
            self.wait("all nodes have all entries", lambda: self._have_all(client, last_index))
            return {node_id: self._log(client, node_id)[: last_index + 1] for node_id in self.cluster.node_ids}

    def _wait_rest(self, client: LogClient) -> int:
        rest: list[int] = []

        def is_at_rest() -> bool:
            answers = client.statuses().values()
            statuses = [status for status in answers if not isinstance(status, str)]
            leaders = [status for status in statuses if status.role == "LEADER"]
            latest = max(leaders, key=lambda status: status.term, default=None)
            # The list may have the leader after a node that does not answer, and a deposed one before it.
            is_whole = len(statuses) == len(answers)
            if is_whole and latest is not None and latest.commit_index == latest.end_index:
                rest.append(latest.commit_index)
            return bool(rest)

        self.wait("a leader has committed all it holds", is_at_rest)
        return rest[0]

    def _have_all(self, client: LogClient, last_index: int) -> bool:
        statuses = client.statuses()
        return len(statuses) == len(self.cluster.node_ids) and all(
            not isinstance(status, str) and status.commit_index >= last_index for status in statuses.values()
        )

    def _log(self, client: LogClient, node_id: str) -> list[LogEntry]:
        entries = client.read(0, mode="local", endpoint=self.cluster.endpoint_of(node_id), include_internal=True)
        return [(entry.index, entry.term, entry.magic, entry.body) for entry in entries]

    def summary(self) -> str:
        """Return the outcomes at the clients, counted in entries."""
        counts = Counter[str]()
        for attempt in (attempt for writer in self.writers for attempt in writer.attempts):
            counts[attempt.outcome.value] += len(attempt.bodies)
        return ", ".join(f"{count} {outcome}" for outcome, count in sorted(counts.items()))

    def check(self, logs: dict[str, list[LogEntry]]) -> None:
        """Compare every outcome at a client with the logs of the nodes."""
        print(f"entries: {self.summary()}")
        first, *others = logs.values()
        for other in others:
            assert first == other
        assert list(range(len(first))) == [index for index, _, _, _ in first]
        terms = [term for _, term, _, _ in first]
        assert sorted(terms) == terms
        found = Counter(body for _, _, magic, body in first if magic == 1)
        assert {} == {body: count for body, count in found.items() if count > 1}
        sent: set[bytes] = set()
        for writer in self.writers:
            for attempt in writer.attempts:
                sent.update(attempt.bodies)
                _check_attempt(attempt, first, found)
            _check_order(writer)
        assert set() == found.keys() - sent


def _check_attempt(attempt: Attempt, log: list[LogEntry], found: Counter[bytes]) -> None:
    if attempt.outcome is ClientOutcome.APPENDED:
        expected = [
            (place.index, place.term, 1, body) for place, body in zip(attempt.places, attempt.bodies, strict=True)
        ]
        begin = attempt.places[0].index
        assert expected == log[begin : begin + len(expected)]
    elif attempt.outcome is ClientOutcome.NOT_APPENDED:
        assert [] == [body for body in attempt.bodies if body in found]
    else:
        # Entry by entry: the first entries of a batch may be in the log without the rest, but not the reverse.
        presence = [body in found for body in attempt.bodies]
        assert sorted(presence, reverse=True) == presence


def _check_order(writer: Writer) -> None:
    """A writer waits for each answer, so its entries are in the log in the order of its appends."""
    indexes = [place.index for attempt in writer.attempts for place in attempt.places]
    assert sorted(indexes) == indexes


@pytest.fixture(autouse=True)
def patient_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    """Do not kill a process with a slow disk: its files are compared with those of one that ended cleanly."""
    monkeypatch.setattr("cluster.local.process._STOP_GRACE_S", PATIENCE_S)


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[Harness]:
    """Three running nodes, and four writers that have not started."""
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed of the writers' bodies: {seed}")
    with LocalCluster.create(tmp_path / "cluster") as cluster:
        cluster.wait_for_leader(PATIENCE_S)
        writers = [Writer(f"w{number}", cluster.endpoints, seed + number) for number in range(4)]
        yield Harness(cluster, writers)
    for node_id in cluster.node_ids:
        tail = cluster.log_of(node_id).read_text(errors="replace").splitlines()[-_LOG_TAIL_LINES:]
        print(f"--- end of {node_id}'s log", *tail, sep="\n")
