"""The pages as HTML: contents, states without data, headers, and what the server refuses."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from starlette.testclient import TestClient

from cluster.console import hub as hub_module
from cluster.console.app import Console, console_app
from cluster.console.hub import Hub
from cluster.console.topics import TopicRow
from dledger.client.aio.host import ClientHost
from dledger.client.aio.watching import WatchBroken
from tests.unit.cluster.console.views import ADDRESSES, NOW_MS, group, healthy, leader, state

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cluster.console.group_view import GroupView

STATIC = Path(hub_module.__file__).parent / "static"
TOPICS = [TopicRow(f"topic-{number:03}", "orders", 4, 8, "read, write", "fifo") for number in range(150)]


@pytest.fixture(autouse=True)
def silent_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each node fail at once: the tests give the states themselves."""

    async def watch_node(address: str, **_: object) -> object:
        yield WatchBroken(302, f"{address} is not reachable", is_final=True)

    monkeypatch.setattr(hub_module, "watch_node", watch_node)


def client_of(view: GroupView | None = None, faults: dict[str, str] | None = None) -> TestClient:
    hub = Hub({"orders": tuple(ADDRESSES.values())}, ClientHost(), lambda: NOW_MS)
    if view is not None:
        hub.groups["orders"] = view
        # The nodes are known: they are not asked.
        hub.touch = lambda: None  # type: ignore[method-assign]
    console = Console(hub, lambda: ([] if faults else TOPICS, faults or {}))
    return TestClient(console_app(console), base_url="http://127.0.0.1:20951")


@pytest.fixture
def pages() -> Iterator[TestClient]:
    with client_of(healthy()) as client:
        yield client


def text_of(html: str) -> str:
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", html))


def test_the_overview_of_a_healthy_group_says_so(pages: TestClient) -> None:
    page = pages.get("/")
    text = text_of(page.text)

    assert page.status_code == 200
    assert "orders well" in text
    assert "leader n0" in text
    assert "nodes that answer 3 of 3" in text
    assert "voters that may fail 1" in text
    assert "Nothing is wrong." in text
    assert text_of(pages.get("/parts/overview").text).strip() in text


def test_the_overview_shows_what_is_wrong_and_what_to_do() -> None:
    with client_of(group(state("n1"), state("n2"), broken={"n0": "refused <b>"})) as client:
        page = client.get("/").text
    assert "down: no node leads" in page
    assert "<code>dledger status</code>" in page
    assert "refused &lt;b&gt;" in page, "texts of nodes are never HTML"


def test_nodes_that_cannot_be_reached_are_shown_as_unknown() -> None:
    with client_of() as client:
        overview, table = text_of(client.get("/").text), text_of(client.get("/groups/orders").text)
    assert "no node of this group answers the console" in overview
    assert "leader ?" in overview
    assert f"{ADDRESSES['n0']} is not reachable" in table
    assert "No events yet" in table


def test_the_group_page_has_all_values_without_a_script(pages: TestClient) -> None:
    page = pages.get("/groups/orders")
    cells = re.findall(r"<t[hd][^>]*>([^<]*)</t[hd]>", page.text)

    assert page.status_code == 200
    assert {"n0", "leader", "41,873,102", "41,873,100", "41,873,099", "41"} <= set(cells)
    assert 'aria-live="polite"' in page.text


def test_topics_are_listed_in_pages_and_searched(pages: TestClient) -> None:
    first = pages.get("/topics").text
    assert "150 of 150 topics" in text_of(first)
    assert 'href="/topics?search=&amp;begin=100"' in first
    assert "topic-149" not in first
    assert "topic-149" in pages.get("/topics?begin=100").text
    found = pages.get("/topics?search=14%22%3E").text
    assert "No topic contains “14&#34;&gt;”" in found
    assert "topic-014" in pages.get("/topics?search=014").text
    assert pages.get("/topics?begin=x&search=" + "y" * 9_999).status_code == 200


def test_topics_that_are_not_known_are_a_fault_and_not_an_empty_list() -> None:
    with client_of(healthy(), {"orders": "connection refused"}) as client:
        text = text_of(client.get("/topics").text)
    assert "The topics of orders are not known: connection refused" in text
    assert "There are no topics yet" not in text


def test_programs_get_the_same_as_json(pages: TestClient) -> None:
    (shown,) = pages.get("/api/groups").json()["groups"]

    assert shown["group"] == "orders"
    assert [node["name"] for node in shown["nodes"]] == ["n0", "n1", "n2"]
    assert shown["nodes"][0]["state"]["peers"][0]["match_index"] == 41_873_061


@pytest.mark.parametrize("path", ["/nothing", "/groups/other", "/static/none.js", "/groups/..%2f..%2fetc"])
def test_other_addresses_are_not_found(pages: TestClient, path: str) -> None:
    assert pages.get(path).status_code == 404


@pytest.mark.parametrize("path", ["/", "/groups/orders", "/topics", "/nothing", "/static/console.css", "/api/groups"])
def test_every_answer_forbids_foreign_scripts_and_frames(pages: TestClient, path: str) -> None:
    headers = pages.get(path).headers
    policy = headers["content-security-policy"]

    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy
    assert headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize("host", ["evil.example", "evil.example:20951", "10.0.0.1"])
def test_another_name_of_this_machine_is_refused(pages: TestClient, host: str) -> None:
    assert pages.get("/", headers={"host": host}).status_code == 400


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH"])
def test_nothing_can_be_changed(pages: TestClient, method: str) -> None:
    for path in ("/", "/groups/orders", "/topics", "/api/groups"):
        assert pages.request(method, path).status_code == 405


@pytest.mark.parametrize("path", ["/", "/groups/orders", "/topics", "/nothing"])
def test_pages_have_no_inline_scripts_styles_or_foreign_addresses(pages: TestClient, path: str) -> None:
    page = pages.get(path).text

    assert not re.search(r"\son[a-z]+=|\sstyle=|<style|<script>|https?://", page)
    for source in re.findall(r'(?:src|href)="(/static/[^"]+)"', page):
        assert pages.get(source).status_code == 200, source


def test_own_scripts_and_styles_load_nothing_from_elsewhere() -> None:
    found = {
        file.name: re.findall(r"https?://(?!www\.w3\.org/2000/svg)\S+", file.read_text("utf-8"))
        for file in STATIC.iterdir()
        if file.is_file()
    }
    assert {name: addresses for name, addresses in found.items() if addresses} == {}


def test_a_group_is_a_link_on_each_page_and_the_current_one_is_marked(pages: TestClient) -> None:
    assert '<a href="/groups/orders">orders</a>' in pages.get("/").text
    assert '<a href="/groups/orders" aria-current="page">orders</a>' in pages.get("/groups/orders").text


def test_a_group_with_events_lists_the_newest_first() -> None:
    view = group(leader(), state("n1"), state("n2"))
    for number in range(70):
        view.events.append({"node": "n0", "at_ms": number, "text": f"event {number}.", "id": str(number)})
    with client_of(view) as client:
        items = re.findall(r"event (\d+)\.", client.get("/groups/orders").text)
    assert items == [str(number) for number in range(69, 19, -1)]
