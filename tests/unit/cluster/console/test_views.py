"""What the console keeps of groups and shows: unknown stays unknown, events are bounded and in one time."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from cluster.console import hub as hub_module
from cluster.console.group_view import EVENTS_MAX, plain_group
from cluster.console.hub import Hub, TooManyViewers, Viewer, updates
from cluster.console.pages import group_row, node_rows
from cluster.console.topics import PAGE_ROWS, TopicRow, page_of
from dledger.client.aio.host import ClientHost
from dledger.client.aio.watching import WatchBroken
from dledger.v1.watch_pb2 import WatchEvent, WatchEventKind, WatchResponse, WatchState
from tests.support.waiting import in_a_loop, until
from tests.unit.cluster.console.views import ADDRESSES, NOW_MS, answer, group, healthy, leader, peer, state

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

ELECTED = WatchEventKind.WATCH_EVENT_KIND_ELECTED


def test_an_event_is_shown_in_the_time_of_the_console_by_its_age() -> None:
    view = group()
    event = WatchEvent(sequence=3, kind=ELECTED, monotonic_ms=49_200, wall_ms=5, role="LEADER", term=7, leader_id="n0")

    (added,) = view.take(ADDRESSES["n0"], answer(leader(), event), NOW_MS)

    assert (added["at_ms"], added["kind"], added["text"]) == (NOW_MS - 800, "elected", "leads term 7")
    assert list(view.events) == [added]


def test_an_answer_that_is_late_moves_no_event_of_its_node() -> None:
    view = group()
    first, second = (WatchEvent(sequence=number, kind=ELECTED, monotonic_ms=49_000 + number) for number in (1, 2))

    view.take(ADDRESSES["n0"], answer(leader(), first), NOW_MS)
    view.take(ADDRESSES["n0"], answer(leader(), second), NOW_MS + 500)

    assert [event["at_ms"] for event in view.events] == [NOW_MS - 999, NOW_MS - 998]


def test_the_console_keeps_the_last_events_only() -> None:
    view = group()
    events = [WatchEvent(sequence=number, kind=ELECTED, monotonic_ms=1) for number in range(1, EVENTS_MAX + 11)]
    view.take(ADDRESSES["n0"], answer(leader(), *events), NOW_MS)

    assert len(view.events) == EVENTS_MAX
    assert view.events[0]["id"] == f"5-11-{ELECTED}"


def test_values_that_are_not_known_are_a_question_mark_and_absent_in_json() -> None:
    view = group(leader(peers=[peer("n1"), peer("n2")]), WatchState(self_id="n1", role="FOLLOWER", term=7))
    rows = {row.name: row for row in node_rows(view)}

    assert (rows["n1"].last_index, rows["n1"].commit_index, rows["n1"].leader) == ("?", "?", "?")
    assert rows["n1"].lag == "41", "the leader's word"
    assert (rows["n0"].lag, rows["n0"].applied_index) == ("0", "?")
    unanswered = rows[ADDRESSES["n2"]]
    assert (unanswered.role, unanswered.term, unanswered.lag, unanswered.note) == (
        "?",
        "?",
        "?",
        "waiting for its answer",
    )
    plain = plain_group(view)["nodes"]
    assert "commit_index" not in plain[1]["state"]
    assert "state" not in plain[2]


def test_a_node_that_fails_keeps_its_last_values_with_the_fault() -> None:
    view = group(leader(), state("n1"), state("n2"), broken={"n1": "connection refused"})
    row = node_rows(view)[1]

    assert (row.role, row.note, row.last_index) == ("?", "connection refused", "41,873,102")
    assert plain_group(view)["nodes"][1]["is_live"] is False
    view.take(ADDRESSES["n1"], answer(state("n1")), NOW_MS)
    assert node_rows(view)[1].role == "follower"


@pytest.mark.parametrize(
    ("shown", "role"),
    [
        (state("n1", "CANDIDATE", is_pre_vote=True), "asks for pre-votes"),
        (state("n1", "CANDIDATE"), "candidate"),
        (state("n1"), "follower"),
    ],
)
def test_each_role_has_a_name(shown: WatchState, role: str) -> None:
    assert node_rows(group(shown))[1].role == role


def test_the_worst_finding_is_the_state_of_a_group_and_notes_are_not() -> None:
    assert group_row(healthy()).state == "well"
    assert group_row(group(leader(is_membership_committed=False), state("n1"), state("n2"))).state == "well"
    assert group_row(group(state("n1"), state("n2"))).state == "down"
    assert group_row(group(leader(), state("n1"), state("n2"), broken={"n2": "gone"})).state == "at risk"


def test_a_slow_viewer_gets_the_newest_state_and_the_number_of_lost_events() -> None:
    async def scenario() -> None:
        viewer = Viewer()
        view = healthy()
        node = view.nodes[ADDRESSES["n0"]]
        for number in range(700):
            node.state = leader(last_index=number)
            viewer.add("orders", node, [{"id": str(number)}])
        sent = viewer.take()
        assert (len(sent["nodes"]), sent["nodes"][0]["state"]["last_index"]) == (1, 699)
        assert (len(sent["events"]), sent["events"][-1]["id"], sent["lost_count"]) == (500, "699", 200)
        assert viewer.take() == {"nodes": [], "events": [], "lost_count": 0}
        assert not viewer.is_due.is_set()

    asyncio.run(scenario())


class Nodes:
    """Takes the place of the streams of nodes: `open_count` of them are read now."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.open_count = 0
        self.answers: dict[str, asyncio.Queue[WatchResponse | WatchBroken]] = {}
        monkeypatch.setattr(hub_module, "watch_node", self.watch)

    async def watch(self, address: str, **_options: Any) -> AsyncGenerator[WatchResponse | WatchBroken, None]:
        self.open_count += 1
        queue = self.answers.setdefault(address, asyncio.Queue())
        try:
            while True:
                yield await queue.get()
        finally:
            self.open_count -= 1

    async def say(self, name: str, shown: WatchResponse | WatchBroken) -> None:
        self.answers.setdefault(ADDRESSES[name], asyncio.Queue())
        await self.answers[ADDRESSES[name]].put(shown)


@in_a_loop
async def test_nodes_are_watched_once_for_all_viewers_and_no_more_after_the_last(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(hub_module, "_LINGER_S", 0.01)
    nodes = Nodes(monkeypatch)
    hub = Hub({"orders": tuple(ADDRESSES.values())}, ClientHost(), lambda: NOW_MS)
    assert not hub.is_watching

    with hub.viewer(), hub.viewer():
        await until(lambda: nodes.open_count == 3)
        await nodes.say("n0", answer(leader()))
        await until(lambda: hub.groups["orders"].leaders)
        # Longer than the time after which nodes are watched no more.
        for _ in range(3):
            await asyncio.sleep(0.02)
        assert nodes.open_count == 3
    await until(lambda: nodes.open_count == 0)
    assert not hub.is_watching
    assert hub.groups["orders"].leaders == [], "what was known is out of date"
    await hub.close()


@in_a_loop
async def test_a_node_that_refused_is_asked_again_with_the_next_page(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = 0

    async def refuse(address: str, **_: Any) -> AsyncGenerator[WatchBroken, None]:
        nonlocal asked
        asked += 1
        yield WatchBroken(440, f"{address} refuses {asked}", is_final=True)

    monkeypatch.setattr(hub_module, "watch_node", refuse)
    hub = Hub({"orders": (ADDRESSES["n0"],)}, ClientHost(), lambda: NOW_MS)
    await hub.first_answers(60.0)
    node = hub.groups["orders"].nodes[ADDRESSES["n0"]]
    assert node.fault.endswith("refuses 1")
    await until(lambda: all(task.done() for task in hub._watching.values()))

    await hub.first_answers(60.0)
    await until(lambda: node.fault.endswith("refuses 2"))
    await hub.close()


@in_a_loop
async def test_pages_of_known_nodes_take_no_place_of_a_viewer(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = Nodes(monkeypatch)
    monkeypatch.setattr(hub_module, "VIEWERS_MAX", 1)
    hub = Hub({"orders": (ADDRESSES["n0"],)}, ClientHost(), lambda: NOW_MS)
    with hub.viewer():
        with pytest.raises(TooManyViewers):
            await hub.first_answers(60.0)
        await nodes.say("n0", answer(leader()))
        await until(lambda: hub.groups["orders"].leaders)
        await hub.first_answers(60.0)
    await hub.close()


@in_a_loop
async def test_a_viewer_gets_the_whole_first_and_then_each_change(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = Nodes(monkeypatch)
    hub = Hub({"orders": tuple(ADDRESSES.values())}, ClientHost(), lambda: NOW_MS)
    stream = updates(hub, 60.0)

    whole = await anext(stream)
    assert whole is not None
    assert [node["address"] for node in whole["groups"][0]["nodes"]] == list(ADDRESSES.values())
    event = WatchEvent(sequence=3, kind=ELECTED, monotonic_ms=49_200, role="LEADER", term=7)
    await nodes.say("n0", answer(leader(), event))
    changed = await anext(stream)
    assert changed is not None
    assert [(node["group"], node["name"]) for node in changed["nodes"]] == [("orders", "n0")]
    assert [each["text"] for each in changed["events"]] == ["leads term 7"]
    await nodes.say("n0", WatchBroken(302, "gone", is_final=False))
    broken = await anext(stream)
    assert broken is not None
    assert (broken["nodes"][0]["fault"], broken["nodes"][0]["is_live"]) == ("gone", False)
    await stream.aclose()
    await hub.close()


@in_a_loop
async def test_a_quiet_stream_says_so_and_more_viewers_than_places_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    Nodes(monkeypatch)
    monkeypatch.setattr(hub_module, "VIEWERS_MAX", 1)
    hub = Hub({"orders": tuple(ADDRESSES.values())}, ClientHost(), lambda: NOW_MS)
    stream = updates(hub, 0.001)
    await anext(stream)
    assert await anext(stream) is None

    with pytest.raises(TooManyViewers):
        await anext(updates(hub, 60.0))
    await stream.aclose()
    assert await anext(updates(hub, 60.0)) is not None
    await hub.close()


def rows(count: int) -> list[TopicRow]:
    return [TopicRow(f"topic-{number:05}", "broker-a", 4, 4, "read, write", "normal") for number in range(count)]


def test_topics_are_sorted_searched_and_cut_on_the_server() -> None:
    every = rows(10_000)[::-1]
    first = page_of(every, {}, search="", begin=0)
    assert (len(first.rows), first.rows[0].name, first.matching_count) == (PAGE_ROWS, "topic-00000", 10_000)
    assert (first.previous, first.next) == (None, PAGE_ROWS)
    last = page_of(every, {}, search="", begin=1 << 40)
    assert (last.rows[-1].name, last.next, last.previous) == ("topic-09999", None, 10_000 - 2 * PAGE_ROWS)
    found = page_of(every, {}, search="TOPIC-0123", begin=0)
    assert (found.matching_count, found.all_count, found.next) == (10, 10_000, None)


def test_no_topics_and_faults_are_different() -> None:
    assert page_of([], {}, search="", begin=7).rows == ()
    assert page_of([], {"broker-a": "gone"}, search="", begin=0).faults == {"broker-a": "gone"}
