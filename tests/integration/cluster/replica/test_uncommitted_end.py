"""Messages of a node that stopped before it knew that its last entries are committed are in no queue: no damage."""

from pathlib import Path

import pytest

from commitlog.offline.committed_end import committed_end
from commitlog.offline.directory import find_store
from commitlog.offline.verify import StoreParts, Verification
from dledger.entries.format.entry import INDEX_UNIT_SIZE
from store.fs.read_only_files import ReadOnlyFiles
from tests.support.brokers.replicated import configs_in, numbered, running_group
from tests.support.stored_files import check_closed
from tests.support.waiting import run, until


def findings_of(root):
    files = ReadOnlyFiles()
    return list(Verification(StoreParts(files, find_store(files, str(root)))).findings())


async def stopped_alone(group, messages):
    """Stop two nodes, put messages to the third, which cannot commit them, and stop it; return its name."""
    async with group.steady_leader() as leader:
        name, end = group.name_of(leader), leader.node.status().end_index
        await group.stop(*(each for each in list(group.open) if each != name))
        put = leader.serving_puts().begin_put(messages)
        await until(lambda: leader.node.status().end_index > end)
        await group.stop(name)
        put.cancel()
    return name


@pytest.mark.parametrize("is_committed", [True, False])
def test_messages_that_are_not_known_to_be_committed_are_no_damage_and_are_added_if_they_are(tmp_path, is_committed):
    async def scenario():
        async with running_group(configs_in(tmp_path)) as group:
            await group.start()
            await group.put(*numbered(range(3)))
            await group.durable()
            name = await stopped_alone(group, numbered(range(3, 5)))
            found = findings_of(tmp_path / name)
            assert found
            assert all(each.is_unfinished for each in found), [str(each) for each in found]
            first, second = (other for other in group.configs if other != name)
            check_closed(tmp_path / first, tmp_path / "copy")
            # Only a node with the entries can lead the first two; only one without them the others.
            await group.start(first, name if is_committed else second)
            await group.leader()
            await group.start(second if is_committed else name)
            await group.put(*numbered(range(5, 6)))
            await group.durable()
            await group.stop()
        for each in group.configs:
            stored = check_closed(tmp_path / each, tmp_path / f"second copy of {each}")
            assert len(stored.messages) == (6 if is_committed else 4)

    run(scenario())


def test_units_that_are_missing_at_the_end_of_a_committed_log_are_damage(tmp_path):
    async def scenario():
        async with running_group(configs_in(tmp_path)) as group:
            await group.start()
            await group.put(*numbered(range(3)))
            await group.durable()
            names = list(group.open)
            await group.stop()
        return names

    for name in run(scenario()):
        queue = next((tmp_path / name / "consumequeue").rglob("0" * 20))
        content = bytearray(queue.read_bytes())
        content[40:60] = bytes(20)
        queue.write_bytes(content)
        assert [each.is_unfinished for each in findings_of(tmp_path / name)] == [False]


def test_end_of_the_committed_part_is_unknown_without_a_whole_checkpoint_or_the_unit_after_it(tmp_path):
    async def scenario():
        async with running_group(configs_in(tmp_path)) as group:
            await group.start()
            await group.put(*numbered(range(3)))
            await group.durable()
            return await stopped_alone(group, numbered(range(3, 5)))

    node = Path(find_store(ReadOnlyFiles(), str(tmp_path / run(scenario()))).node_directory)
    end = committed_end(ReadOnlyFiles(), str(node))
    assert end is not None
    assert end > 0
    checkpoint, (index,) = node / "checkpoint", (node / "index").iterdir()
    whole, units = checkpoint.read_bytes(), index.read_bytes()
    # A foreign one has no checksum; one of a changed file is wrong.
    lines = [line for line in whole.splitlines(keepends=True) if b"crc" not in line.lower()]
    assert len(lines) < len(whole.splitlines())
    for content in (b"", b"".join(lines), whole[:-3], whole.replace(b"Index=", b"Index=0")):
        checkpoint.write_bytes(content)
        assert committed_end(ReadOnlyFiles(), str(node)) is None
    checkpoint.write_bytes(whole)
    for shorter in (b"", units[:INDEX_UNIT_SIZE], bytes(len(units))):
        index.write_bytes(shorter)
        assert committed_end(ReadOnlyFiles(), str(node)) is None
    index.unlink()
    assert committed_end(ReadOnlyFiles(), str(node)) is None
    checkpoint.unlink()
    assert committed_end(ReadOnlyFiles(), str(node)) is None
