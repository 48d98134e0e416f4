"""`dledger console` as a process, over three real nodes: pages, the live stream, and its end."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from tests.integration.cluster.local_nodes.conftest import transfer_leadership_once
from tests.support.waiting import PATIENCE_S, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from http.client import HTTPResponse

    from cluster.local.cluster import LocalCluster


@contextmanager
def console(*options: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """Run the console for the block; yield its address and its process."""
    command = [sys.executable, "-m", "cluster.cli", "console", "--port", "0", *options]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    try:
        found = re.search(r"http://127\.0\.0\.1:\d+", process.stderr.readline())
        assert found is not None
        yield found[0], process
    finally:
        process.kill()
        process.communicate()


def get(address: str) -> str:
    with urllib.request.urlopen(address, timeout=PATIENCE_S) as response:
        return str(response.read().decode())


class Stream:
    """The messages of `/events` that have arrived; a thread reads them."""

    def __init__(self, address: str) -> None:
        self.messages: list[tuple[str, dict[str, Any]]] = []
        response = urllib.request.urlopen(f"{address}/events", timeout=PATIENCE_S)
        threading.Thread(target=self._read, args=(response,), daemon=True).start()

    def _read(self, response: HTTPResponse) -> None:
        kind = ""
        try:
            for line in response:
                text = line.decode().rstrip("\n")
                if text.startswith("event: "):
                    kind = text.removeprefix("event: ")
                elif text.startswith("data: "):
                    self.messages.append((kind, json.loads(text.removeprefix("data: "))))
        except OSError:
            # The console has ended.
            return

    def events(self) -> list[dict[str, Any]]:
        return [event for kind, data in list(self.messages) if kind == "update" for event in data["events"]]


def test_pages_show_real_nodes_and_the_stream_an_election_as_it_happens(cluster: LocalCluster) -> None:
    with console("--nodes", cluster.endpoints) as (address, _):
        overview = wait_until(lambda: (page := get(f"{address}/")) and "3 of 3" in page and page, "all nodes answer")
        assert "default" in overview
        table = get(f"{address}/groups/default")
        assert all(f">{node_id}</th>" in table for node_id in cluster.node_ids)
        assert "has no BrokerService" in get(f"{address}/topics"), "a log of raw entries has no topics"

        stream = Stream(address)
        wait_until(lambda: stream.messages, "the stream begins")
        kind, whole = stream.messages[0]
        assert (kind, len(whole["groups"][0]["nodes"])) == ("whole", 3)
        transfer_leadership_once(cluster)
        wait_until(lambda: any(event["kind"] == "elected" for event in stream.events()), "the election is shown")
        kinds = {event["kind"] for event in stream.events()}
        assert {"election_begun", "elected"} <= kinds


def test_seven_streams_and_a_page_are_served_at_the_same_time(cluster: LocalCluster) -> None:
    with console("--nodes", cluster.endpoints) as (address, _):
        streams = [Stream(address) for _ in range(7)]
        for stream in streams:
            wait_until(lambda stream=stream: stream.messages, "each stream begins")
        assert "default" in get(f"{address}/")


def test_the_console_ends_at_once_though_a_page_is_open(cluster: LocalCluster) -> None:
    with console("--nodes", cluster.endpoints) as (address, process):
        stream = Stream(address)
        wait_until(lambda: stream.messages, "the stream begins")
        process.send_signal(signal.SIGTERM)
        process.wait(PATIENCE_S)


def test_another_name_of_this_machine_is_refused(cluster: LocalCluster) -> None:
    with console("--nodes", cluster.endpoints) as (address, _):
        request = urllib.request.Request(f"{address}/api/groups", headers={"Host": "evil.example"})
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(request, timeout=PATIENCE_S)
        assert refused.value.code == 400
        refused.value.close()


def test_a_port_that_is_taken_is_reported(cluster: LocalCluster) -> None:
    with console("--nodes", cluster.endpoints) as (address, _):
        port = address.rpartition(":")[2]
        command = [sys.executable, "-m", "cluster.cli", "console", "--port", port, "--nodes", cluster.endpoints]
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 2
    assert f"127.0.0.1:{port}: Address already in use" in done.stderr
