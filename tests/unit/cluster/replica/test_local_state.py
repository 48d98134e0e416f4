"""The state of a standalone broker: acknowledged changes survive a crash, also after a full disk."""

import asyncio

import pytest

from cluster.protocol.errors import Reason, RequestFailed
from cluster.protocol.topic_config import TopicConfig
from cluster.replica.local_state import LocalState, load_state
from cluster.state.commands import SetTopic
from cluster.state.verdicts import CommandVerdict
from store.errors import Certainty
from store.fs.linux.files import OsFiles
from tests.support.faulty_disk import FaultyDisk
from tests.support.waiting import run


def topic(name):
    return SetTopic(TopicConfig(name, 4, 4))


def run_until_a_crash(scenario, root):
    """Run `scenario` with a disk and the state, and end it by a crash."""
    disk = FaultyDisk()

    async def whole():
        await scenario(disk, LocalState.open(disk, root))

    run(whole())


def durable_topics(root):
    return set(load_state(OsFiles(), root).topics)


def test_change_on_a_full_disk_has_an_unknown_outcome(tmp_path):
    async def scenario(disk, state):
        disk.is_full = True
        with pytest.raises(RequestFailed) as failed:
            await state.change(topic("a"))
        assert (failed.value.reason, failed.value.certainty) == (Reason.DISK_FULL, Certainty.UNKNOWN)
        assert set(state.state.topics) == {"a"}

    run_until_a_crash(scenario, str(tmp_path))


def test_change_that_is_repeated_after_a_full_disk_is_durable_when_acknowledged(tmp_path):
    async def scenario(disk, state):
        disk.is_full = True
        for _ in range(2):
            with pytest.raises(RequestFailed):
                await state.change(topic("a"))
        assert durable_topics(str(tmp_path)) == set()
        disk.is_full = False
        applied = await state.change(topic("a"))
        assert applied.verdict is CommandVerdict.UNCHANGED
        assert durable_topics(str(tmp_path)) == {"a"}

    run_until_a_crash(scenario, str(tmp_path))


def test_changes_after_one_on_a_full_disk_make_it_durable_too(tmp_path):
    async def scenario(disk, state):
        disk.is_full = True
        with pytest.raises(RequestFailed):
            await state.change(topic("a"))
        disk.is_full = False
        await asyncio.gather(*(state.change(topic(name)) for name in "bcb"))
        assert durable_topics(str(tmp_path)) == {"a", "b", "c"}

    run_until_a_crash(scenario, str(tmp_path))
