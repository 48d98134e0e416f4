"""The console in a real browser: live elections, many tabs, dark and narrow screens. `make console-browser`.

It needs Playwright and Chromium (the package `chromium` of Debian), which the gate does not have; without them each
test is skipped. The browser is the system's: nothing is downloaded.
"""

from __future__ import annotations

import re
import shutil
from typing import TYPE_CHECKING, Any

import pytest

from cluster.local.cluster import LocalCluster
from tests.integration.cluster.local_nodes.conftest import OPTIONS, transfer_leadership_once
from tests.integration.cluster.local_nodes.test_console import console
from tests.support.waiting import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Iterator

playwright = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
PATIENCE_MS = 1_000 * PATIENCE_S


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with LocalCluster.create(tmp_path_factory.mktemp("cluster"), options=OPTIONS) as running:
        running.wait_for_leader(PATIENCE_S)
        yield running


@pytest.fixture(scope="module")
def address(cluster: LocalCluster) -> Iterator[str]:
    with console("--nodes", cluster.endpoints) as (address, _):
        yield address


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    if CHROMIUM is None:
        pytest.skip("Chromium is not installed")
    with playwright.sync_playwright() as driver:
        # Root has no sandbox; the pages are our own.
        running = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield running
        running.close()


def opened(context: Any, address: str, path: str = "/groups/default") -> Any:
    """Open a page; what the browser reports as an error fails the test at its end, by `faults`."""
    context.set_default_timeout(PATIENCE_MS)
    page = context.new_page()
    page.faults = []
    page.on("console", lambda message: page.faults.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: page.faults.append(str(error)))
    page.on("requestfailed", lambda request: page.faults.append(request.url) if "/events" not in request.url else None)
    page.goto(address + path)
    return page


def expect_live(page: Any) -> None:
    playwright.expect(page.locator("#live")).to_have_text("live", timeout=PATIENCE_MS)


def test_an_election_appears_without_a_reload(browser: Any, address: str, cluster: LocalCluster) -> None:
    page = opened(browser.new_context(), address)
    expect_live(page)
    before = page.locator("#events li").count()
    transfer_leadership_once(cluster)

    playwright.expect(page.locator("#events")).to_contain_text("transfers its leadership to", timeout=PATIENCE_MS)
    playwright.expect(page.locator("#events")).to_contain_text("is candidate in term", timeout=PATIENCE_MS)
    assert page.locator("#events li").count() >= before
    playwright.expect(page.locator("#lanes .role-LEADER").first).to_be_attached(timeout=PATIENCE_MS)
    widths = page.evaluate(
        "() => [...document.querySelectorAll('#lanes svg')].map((e) => e.getBoundingClientRect().width)"
    )
    assert len(widths) == 3
    assert min(widths) > 100
    leader = page.locator("#nodes tr", has_text="leader").locator("th").last
    playwright.expect(leader).to_have_text(re.compile("n[012]"))
    assert page.faults == []


def test_nine_tabs_of_one_browser_are_live_at_the_same_time(browser: Any, address: str) -> None:
    context = browser.new_context()
    pages = [opened(context, address) for _ in range(9)]

    for page in pages:
        expect_live(page)
    assert [page.faults for page in pages] == [[]] * 9
    context.close()


def test_pause_stops_the_picture_and_spans_are_buttons_of_the_keyboard(browser: Any, address: str) -> None:
    page = opened(browser.new_context(), address)
    expect_live(page)
    pause = page.get_by_role("button", name="Pause")
    pause.focus()
    page.keyboard.press("Enter")
    playwright.expect(page.get_by_role("button", name="Continue")).to_have_attribute("aria-pressed", "true")
    page.get_by_role("button", name="10 min").press("Space")
    playwright.expect(page.get_by_role("button", name="10 min")).to_have_attribute("aria-pressed", "true")
    playwright.expect(page.get_by_role("button", name="1 min")).to_have_attribute("aria-pressed", "false")


def test_the_first_key_reaches_the_link_to_the_content(browser: Any, address: str) -> None:
    page = opened(browser.new_context(), address, "/")
    page.keyboard.press("Tab")
    assert page.evaluate("() => document.activeElement.textContent") == "Skip to the content"
    page.keyboard.press("Enter")
    assert page.evaluate("() => document.activeElement.id") == "main"


@pytest.mark.parametrize("path", ["/", "/groups/default", "/topics"])
@pytest.mark.parametrize("width", [390, 1280])
def test_no_page_is_wider_than_the_screen(browser: Any, address: str, path: str, width: int) -> None:
    page = opened(browser.new_context(viewport={"width": width, "height": 800}), address, path)

    assert page.evaluate("() => document.documentElement.scrollWidth") <= width
    assert page.faults == []


def test_dark_and_light_follow_the_system_until_the_button_is_pressed(browser: Any, address: str) -> None:
    context = browser.new_context(color_scheme="dark")
    page = opened(context, address, "/")

    def background() -> str:
        return str(page.evaluate("() => getComputedStyle(document.body).backgroundColor"))

    dark = background()
    page.emulate_media(color_scheme="light")
    light = background()
    assert dark != light
    page.get_by_role("button", name="Dark or light").click()
    assert background() == dark
    page.reload()
    assert background() == dark, "the choice is kept"
    context.close()


def test_the_overview_changes_by_itself(browser: Any, address: str, cluster: LocalCluster) -> None:
    page = opened(browser.new_context(), address, "/")
    playwright.expect(page.locator("#groups")).to_contain_text("Nothing is wrong.", timeout=PATIENCE_MS)
    leader = cluster.wait_for_leader(PATIENCE_S)
    follower = next(node_id for node_id in cluster.node_ids if node_id != leader)
    cluster.kill(follower)
    try:
        playwright.expect(page.locator("#groups")).to_contain_text("no further voter may fail", timeout=PATIENCE_MS)
    finally:
        cluster.start_node(follower)
    playwright.expect(page.locator("#groups")).to_contain_text("Nothing is wrong.", timeout=PATIENCE_MS)
    assert page.faults == []
