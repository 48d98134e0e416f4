"""The state of a standalone broker in a directory, for tests: opened, filled, and read as a start would."""

from cluster.protocol.topic_config import TopicConfig
from cluster.replica.local_state import LocalState
from cluster.replica.record_effects import RecordEffects
from cluster.replica.saved_state import load_state
from cluster.state.commands import SetTopic
from store.fs.linux.files import OsFiles
from tests.support.brokers.empty_log import EmptyLog
from tests.support.faulty_disk import FaultyDisk
from tests.support.waiting import run

SEGMENT_SIZE = 2_048
STATE = "config/broker"
JOURNAL = f"{STATE}/journal"


def topic(name, queues=4):
    return SetTopic(TopicConfig(name, queues, queues))


def opened(disk, root, **options):
    return LocalState.open(disk, str(root), EmptyLog(), **options)


def run_until_a_crash(scenario, root, **options):
    """Run `scenario` with a disk and the state, and end it by a crash."""
    disk = FaultyDisk()

    async def whole():
        state = opened(disk, root, **options)
        await scenario(disk, state)
        # Its threads outlive no test.
        for worker in (state._writer, state._saver, state._writer):
            await worker.stop()

    run(whole())


def durable(root, files=None):
    """Return the state that a start would have."""
    saved = load_state(files or OsFiles(), str(root))
    RecordEffects(EmptyLog(), saved.state).replay(saved.changes(), 0)
    return saved.state


def durable_topics(root):
    return set(durable(root).topics)


def segments(root):
    return sorted(path.name for path in (root / JOURNAL).iterdir())


def snapshots(root):
    return [int(path.name) for path in sorted((root / STATE / "snapshot").iterdir())]


async def fill(state, count, begin=0):
    for number in range(begin, begin + count):
        await state.change(topic(f"t{number:04d}"))
