"""Both interfaces of the client on real nodes: entries are readable from every node, over the loss of a leader."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from dledger import Appended, AppendUnknown, AsyncLogClient, LogClient, NotAppended, ReadFailed
from dledger.entries.format.entry import ENTRY_CONFIG_CHANGE, ENTRY_NOOP, ENTRY_NORMAL, MAX_BODY_BYTES
from tests.integration.cluster.local_nodes.conftest import client_of, transfer_leadership_once
from tests.support.waiting import PATIENCE_S, run, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cluster.local.cluster import LocalCluster


@pytest.fixture
def log(cluster: LocalCluster) -> Iterator[LogClient]:
    with client_of(cluster.endpoints) as client:
        yield client


def bodies_at(log: LogClient, places: list[Appended], **options: object) -> list[bytes]:
    """Read the entries at `places`, which follow one another."""
    entries = list(log.read(places[0].index, max_entries=len(places), **options))
    assert [(place.index, place.term, place.position) for place in places] == [
        (entry.index, entry.term, entry.position) for entry in entries
    ]
    return [entry.body for entry in entries]


def wait_for_commit(log: LogClient, endpoint: str, index: int) -> None:
    """Wait until a node has committed `index`, with the next message of its leader."""
    wait_until(lambda: log.status(endpoint).commit_index >= index, f"{endpoint} commits {index}")


def test_appended_entries_are_read_back_unchanged(log: LogClient) -> None:
    bodies = [b"", b"\x00\xff\n", b"x" * 70_000, "naïve".encode()]

    assert [b"alone"] == bodies_at(log, [log.append(b"alone")])
    assert bodies == bodies_at(log, log.append_many(bodies))


def test_largest_body_is_appended_if_it_fits_into_a_data_file(log: LogClient) -> None:
    largest = (1 << 20) - 56
    body = bytes(range(256)) * (largest // 256 + 1)

    place = log.append(body[:largest])
    assert [body[:largest]] == bodies_at(log, [place])
    with pytest.raises(NotAppended, match="411 UNEXPECTED_ARGUMENT"):
        log.append(body[: largest + 1])
    with pytest.raises(NotAppended, match="at most"):
        log.append(bytes(MAX_BODY_BYTES + 1))


def test_every_node_serves_committed_entries(cluster: LocalCluster, log: LogClient) -> None:
    places = log.append_many([b"%d" % number for number in range(300)])

    for node_id in cluster.node_ids:
        endpoint = cluster.endpoint_of(node_id)
        wait_for_commit(log, endpoint, places[-1].index)
        first = next(log.read(places[0].index, mode="local", endpoint=endpoint))
        assert (places[0].index, b"0") == (first.index, first.body)


def test_a_read_may_begin_at_the_position_of_an_entry(log: LogClient) -> None:
    places = log.append_many([b"a", b"b", b"c"])

    assert [b"b", b"c"] == [entry.body for entry in log.read(position=places[1].position, max_entries=2)]
    with pytest.raises(ReadFailed, match="411 UNEXPECTED_ARGUMENT"):
        list(log.read(position=places[1].position + 1))


def test_limits_bound_the_delivered_entries(log: LogClient) -> None:
    places = log.append_many([b"x" * 100] * 20)
    begin = places[0].index

    assert 7 == len(list(log.read(begin, max_entries=7)))
    assert 2 == len(list(log.read(begin, max_bytes=2 * 148 + 147)))
    assert 1 == len(list(log.read(begin, max_bytes=1)))


def test_invalid_reads_are_refused_with_the_cause(cluster: LocalCluster, log: LogClient) -> None:
    end = log.append(b"end").index

    with pytest.raises(ReadFailed, match="410 INDEX_OUT_OF_RANGE"):
        list(log.read(end + 100))
    assert [] == list(log.read(end + 1))
    with LogClient(cluster.endpoints, group="other") as other:
        with pytest.raises(ReadFailed, match="400 UNKNOWN_GROUP"):
            list(other.read())
        with pytest.raises(NotAppended, match="400 UNKNOWN_GROUP"):
            other.append(b"x")


def test_noops_of_leaders_are_hidden_unless_requested(cluster: LocalCluster, log: LogClient) -> None:
    transfer_leadership_once(cluster)
    log.append(b"x")

    assert {1} == {entry.magic for entry in log.read()}
    entries = list(log.read(include_internal=True))
    assert {ENTRY_NORMAL, ENTRY_NOOP, ENTRY_CONFIG_CHANGE} == {entry.magic for entry in entries}
    # A group begins with a membership, which gives the group its id.
    assert (0, ENTRY_CONFIG_CHANGE) == (entries[0].index, entries[0].magic)


def test_status_shows_leader_and_followers(cluster: LocalCluster, log: LogClient) -> None:
    end = log.append(b"x").index
    status = status_of_leader(log)

    assert ("LEADER", "default") == (status.role, status.group)
    assert end <= status.commit_index <= status.end_index
    assert 2 == len(status.peers)
    # In an election there is a candidate, and no leader.
    wait_until(lambda: roles(log) == ["FOLLOWER", "FOLLOWER", "LEADER"], lambda: f"one leads the others: {roles(log)}")
    assert log.status(cluster.endpoint_of(status.self_id)).self_id == status.self_id


def test_threads_that_share_a_client_each_get_their_own_position(log: LogClient) -> None:
    bodies = [b"thread body %d" % number for number in range(800)]
    with ThreadPoolExecutor(16) as threads:
        places = dict(zip(bodies, threads.map(log.append, bodies), strict=True))

    begin = min(place.index for place in places.values())
    found = {entry.index: entry.body for entry in log.read(begin)}
    assert {body: body for body in bodies} == {body: found[place.index] for body, place in places.items()}
    assert 800 == len({place.index for place in places.values()})


def test_tasks_that_share_a_client_each_get_their_own_position(cluster: LocalCluster) -> None:
    bodies = [b"task body %d" % number for number in range(3000)]

    async def main() -> None:
        patience = {"deadline_s": PATIENCE_S, "answer_timeout_s": 2 * PATIENCE_S}
        async with AsyncLogClient(cluster.endpoints, **patience) as log:
            places = await asyncio.gather(*map(log.append, bodies))
            batches = await asyncio.gather(*(log.append_many([b"%d" % number] * 100) for number in range(16)))
            begin = min(place.index for place in places)
            found = {entry.index: entry.body async for entry in log.read(begin)}
            assert bodies == [found[place.index] for place in places]
            for number, batch in enumerate(batches):
                assert [b"%d" % number] * 100 == [found[place.index] for place in batch]
            assert (await log.status()).role == "LEADER"

    run(main())


def test_reader_that_follows_skips_and_repeats_nothing_when_the_leader_is_killed(
    cluster: LocalCluster, log: LogClient
) -> None:
    begin = log.append(b"begin").index
    seen: list[tuple[int, bytes]] = []
    acknowledged: list[tuple[int, bytes]] = []
    is_over = threading.Event()

    def follow() -> None:
        with client_of(cluster.endpoints) as reader:
            for entry in reader.read(begin, follow=True):
                seen.append((entry.index, entry.body))
                if entry.body == b"end":
                    return

    def write() -> None:
        for number in itertools.count():
            if is_over.is_set():
                return
            try:
                acknowledged.append((log.append(b"%d" % number).index, b"%d" % number))
            except (AppendUnknown, NotAppended):
                continue

    threads = [threading.Thread(target=target, daemon=True) for target in (follow, write)]
    for thread in threads:
        thread.start()
    for _ in range(2):
        wait_for_growth(acknowledged)
        leader = cluster.wait_for_leader(PATIENCE_S)
        cluster.kill(leader)
        wait_for_growth(acknowledged)
        cluster.start_node(leader)
    is_over.set()
    threads[1].join(PATIENCE_S)
    assert not threads[1].is_alive()
    end = log.append(b"end").index
    threads[0].join(PATIENCE_S)

    assert not threads[0].is_alive()
    indexes = [index for index, _ in seen]
    assert indexes == sorted(set(indexes))
    assert (begin, end) == (indexes[0], indexes[-1])
    assert set(acknowledged) <= set(seen)
    everything = [(entry.index, entry.body) for entry in log.read(begin) if entry.index <= end]
    assert everything == seen


def test_status_finds_the_new_leader_when_the_known_one_has_failed(cluster: LocalCluster, log: LogClient) -> None:
    killed = status_of_leader(log).self_id
    cluster.kill(killed)

    status = status_of_leader(log)
    assert status.self_id != killed
    assert status.role == "LEADER"

    cluster.start_node(killed)


def status_of_leader(log: LogClient) -> Any:
    """Return the status of the leader, as soon as one is known and answers."""

    def status() -> Any:
        with contextlib.suppress(ReadFailed):
            return log.status()
        return None

    return wait_until(status, "a leader answers with its status")


def roles(log: LogClient) -> list[str]:
    """Return the roles of all nodes, ordered alphabetically; "" for one that does not answer."""
    answers = log.statuses(PATIENCE_S).values()
    return sorted("" if isinstance(answer, str) else answer.role for answer in answers)


def wait_for_growth(acknowledged: list[tuple[int, bytes]]) -> None:
    goal = len(acknowledged) + 100
    wait_until(lambda: len(acknowledged) >= goal, "appends are acknowledged")
