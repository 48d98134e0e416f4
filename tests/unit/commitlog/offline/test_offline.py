"""Leaders' own entries of a log of messages, read from the files without opening the store."""

from cluster.cli.store.inspection import FileFault, entries_of
from commitlog.record.system_records import MEMBERSHIP_CHANNEL, NO_OP_CHANNEL
from tests.unit.commitlog.conftest import MEMBERS, message


def write(open_log, tmp_path):
    opened = open_log()
    opened.node.lead(1)
    opened.log.append([message(b"m" * 900)] * 5, range(5))
    opened.node.append_own(opened.node.codec.membership(MEMBERS))
    opened.log.append([message()], [5])
    opened.node.flush()
    position = opened.store.position_of(6)
    opened.close()
    return tmp_path / "dledger-n0", position


def test_all_entries_are_shown_with_their_channel(open_log, tmp_path):
    directory, _ = write(open_log, tmp_path)

    found = list(entries_of(directory))

    assert [entry.channel for entry in found] == [NO_OP_CHANNEL, 0, 0, 0, 0, 0, MEMBERSHIP_CHANNEL, 0]
    assert {entry.magic for entry in found} == {1}


def test_channel_that_was_lost_is_a_fault_and_the_walk_continues(open_log, tmp_path):
    directory, position = write(open_log, tmp_path)
    file = next(path for path in (directory / "data").iterdir() if int(path.name) == position // 4096 * 4096)
    with file.open("r+b") as damaged:
        damaged.seek(position % 4096 + 32)
        damaged.write(bytes(4))

    found = list(entries_of(directory))

    faults = [item for item in found if isinstance(item, FileFault)]
    assert [(fault.path, fault.position) for fault in faults] == [(str(file), position % 4096)]
    assert "rmq_sys_dledger" in faults[0].text
    assert [item.index for item in found if item not in faults] == [0, 1, 2, 3, 4, 5, 7]
