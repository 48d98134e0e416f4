"""What waits in a store that a RocketMQ broker left continues here: each message once, and nothing that is over."""

import shutil

import pytest
from typer.testing import CliRunner

from cluster.cli.app import app
from tests.support.brokers.java_waiting import assert_all_continues, names_in
from tests.support.brokers.old_stores import opened
from tests.support.brokers.replicated import configs_in, running_group
from tests.support.waiting import run

STORES = ("waiting-clean", "waiting-killed")


@pytest.fixture(autouse=True)
def looks_often(monkeypatch):
    """Deliveries look at the clock often, because the tests set it."""
    monkeypatch.setattr("cluster.delivery.leader_task._SLEEP_MAX_S", 0.02)


def assert_verifies(folder):
    result = CliRunner().invoke(app, ["verify", str(folder)])
    assert result.exit_code == 0, result.output


@pytest.mark.parametrize("name", STORES)
def test_standalone_broker_delivers_and_ends_once_what_waits_in_a_store_of_java(unpack, name):
    folder = unpack(name)

    async def scenario():
        replica = opened(folder)
        await assert_all_continues(replica, replica.plain.log)
        await replica.stop()

    run(scenario())
    assert_verifies(folder)


def test_what_waits_in_a_store_of_java_is_known_after_a_restart_without_its_files(unpack):
    folder = unpack("waiting-killed")

    async def scenario():
        # The state is saved, and read in place of Java's files.
        await opened(folder).stop()
        for path in ("delayOffset.json", "consumerOffset.json", "timercheck"):
            (folder / "config" / path).unlink()
        replica = opened(folder)
        await assert_all_continues(replica, replica.plain.log)
        await replica.stop()

    run(scenario())


@pytest.mark.slow
def test_group_delivers_and_ends_once_what_waits_in_a_store_of_java(unpack, tmp_path):
    store = unpack("waiting-killed")
    for node in ("n0", "n1", "n2"):
        shutil.copytree(store, tmp_path / node)

    async def scenario():
        async with running_group(configs_in(tmp_path)) as group:
            await group.start()
            async with group.steady_leader() as replica:
                await assert_all_continues(replica)
            await group.level()
            names = [names_in(each) for each in group.open.values()]
            assert names == [names[0]] * 3

    run(scenario())
    for node in ("n0", "n1", "n2"):
        assert_verifies(tmp_path / node)
