"""`/healthz` and `/readyz` are answered by the event loop of the process: one that has stopped is noticed."""

import asyncio
import threading

import pytest
from prometheus_client import CollectorRegistry

from cluster.local.cluster import LocalCluster
from cluster.local.node import choose_ports
from cluster.process.health import Health
from cluster.process.metrics_page import metrics_page
from dledger.config import Address
from tests.support.network.http_pages import asked
from tests.support.waiting import PATIENCE_S, wait_until


async def served(judge, *, answer_limit_s=PATIENCE_S):
    """Serve the pages of this event loop while `judge(address, health)` runs."""
    address = Address("127.0.0.1", choose_ports(1, None)[0])
    health = Health(answer_limit_s)
    with metrics_page(address, CollectorRegistry(), health=health):
        await judge(address, health)


def test_a_process_is_ready_between_its_start_and_its_stop():
    async def judge(address, health):
        assert (503, "not ready: it starts\n") == await asyncio.to_thread(asked, address, "/readyz")
        assert (200, "ok\n") == await asyncio.to_thread(asked, address, "/healthz")
        health.watch(lambda: ("no leader is known", "its disk stalls"))
        assert (503, "not ready: no leader is known\nnot ready: its disk stalls\n") == await asyncio.to_thread(
            asked, address, "/readyz"
        )
        health.watch(tuple)
        assert (200, "ok\n") == await asyncio.to_thread(asked, address, "/readyz?verbose=1")
        assert (200, "") == await asyncio.to_thread(asked, address, "/readyz", "HEAD")
        health.stop()
        assert (503, "not ready: it stops\n") == await asyncio.to_thread(asked, address, "/readyz")
        assert (200, "ok\n") == await asyncio.to_thread(asked, address, "/healthz")

    asyncio.run(served(judge))


@pytest.mark.parametrize("path", ["/healthz", "/readyz"])
def test_a_loop_that_does_not_run_is_not_alive(path):
    answers = []

    async def judge(address, health):
        health.watch(tuple)
        asking = threading.Thread(target=lambda: answers.extend(asked(address, path) for _ in range(3)))
        asking.start()
        # The event loop of the process waits here: nothing else runs in it.
        asking.join()
        assert (200, "ok\n") == await asyncio.to_thread(asked, address, path)

    asyncio.run(served(judge, answer_limit_s=0.05))

    assert [(503, "not alive: the event loop did not answer in 0.05 s\n")] * 3 == answers


def test_a_loop_that_does_not_run_collects_one_question_however_often_it_is_asked():
    counted = []

    async def judge(address, health):
        health.watch(lambda: counted.append(0) or ())
        asking = threading.Thread(target=lambda: [asked(address, "/readyz") for _ in range(5)])
        asking.start()
        asking.join()
        await asyncio.to_thread(wait_until, lambda: counted, "the loop answered")

    asyncio.run(served(judge, answer_limit_s=0.02))

    assert len(counted) == 1


def test_a_loop_that_has_ended_is_not_alive():
    address = Address("127.0.0.1", choose_ports(1, None)[0])

    async def made():
        return Health()

    health = asyncio.run(made())
    with metrics_page(address, CollectorRegistry(), health=health):
        assert (503, "not alive: the event loop has ended\n") == asked(address, "/healthz")


def test_a_node_is_ready_while_it_knows_a_leader_and_lives_without_one(tmp_path):
    cluster = LocalCluster.create(tmp_path / "group")

    def state(node_id, path="/readyz"):
        host, _, port = cluster.metrics_of(node_id).rpartition(":")
        return asked(Address(host, int(port)), path)

    first, second, third = cluster.node_ids
    try:
        cluster.start_node(first)
        assert (503, "not ready: no leader is known\n") == state(first)
        assert (200, "ok\n") == state(first, "/healthz")
        cluster.start_node(second)
        cluster.start_node(third)
        for node_id in cluster.node_ids:
            wait_until(lambda node_id=node_id: state(node_id) == (200, "ok\n"), f"{node_id} is ready")
        cluster.stop_node(second)
        cluster.stop_node(third)
        wait_until(lambda: state(first) == (503, "not ready: no leader is known\n"), "the leader is gone")
    finally:
        cluster.stop()
