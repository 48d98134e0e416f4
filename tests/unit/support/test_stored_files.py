"""The check of a store's files can fail: what is wrong in queues, index or log is found."""

import shutil
from pathlib import Path

import pytest

from store.model.message import Message
from tests.support.message_stores import numbered, open_small
from tests.support.stored_files import check_closed, check_rebuilt, check_units, read_files, rebuilt_files

COUNT = 300


@pytest.fixture
def root(tmp_path):
    root = tmp_path / "store"
    store = open_small(root)
    for number in range(COUNT):
        store.messages.put(numbered(number, tag="ab"[number % 2], keys=f"k{number} all"))
    store.messages.put(Message("other", b"x" * 300, 7, sys_flag=4))
    store.dispatch()
    store.close()
    return root


def test_intact_store_passes_and_all_its_messages_are_read(root, tmp_path):
    before = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}

    stored = check_closed(root, tmp_path / "copy")

    assert len(stored.messages) == COUNT + 1
    assert [message.is_queued for message in stored.messages] == [True] * COUNT + [False]
    assert [message.queue_offset for message in stored.queues()["TopicTest", 1]] == list(range(COUNT // 4))
    assert all(message.body.startswith(message.unique_key[1:].encode()) for message in stored.messages[:-1])
    assert {path: path.read_bytes() for path in root.rglob("*") if path.is_file()} == before
    assert not (tmp_path / "copy").exists()


def change(path, position, content):
    with path.open("r+b") as file:
        file.seek(position)
        file.write(content)


def queue_file(root):
    return min((root / "consumequeue" / "TopicTest" / "2").iterdir())


def units_exchanged(root):
    units = queue_file(root).read_bytes()
    change(queue_file(root), 0, units[20:40] + units[:20])


WRONG_UNITS = {
    "a unit of another message": lambda root: change(queue_file(root), 7, b"\x01"),
    "a unit of another size": lambda root: change(queue_file(root), 11, b"\x01"),
    "a blank in a queue": lambda root: change(
        queue_file(root), 40, bytes.fromhex("0000000000000000 7fffffff") + bytes(8)
    ),
    "two units exchanged": units_exchanged,
    "a missing queue": lambda root: shutil.rmtree(root / "consumequeue" / "TopicTest" / "2"),
}


@pytest.mark.parametrize("fault", WRONG_UNITS)
def test_wrong_units_are_found(fault, root):
    WRONG_UNITS[fault](root)

    with pytest.raises(AssertionError, match=r"units of|queues of the log"):
        check_units(read_files(root))


def test_bytes_that_differ_from_a_rebuild_are_found(root, tmp_path):
    expected = rebuilt_files(root, tmp_path / "copy")
    check_rebuilt(read_files(root).derived, expected)
    for name in (queue_file(root), min((root / "index").iterdir())):
        content = name.read_bytes()
        change(name, len(content) // 2, bytes([content[len(content) // 2] ^ 1]))

        with pytest.raises(AssertionError, match=f"{Path(name).name}: differs at byte {len(content) // 2}"):
            check_rebuilt(read_files(root).derived, expected)

        name.write_bytes(content)


def test_damaged_record_is_found(root):
    file = min((root / "commitlog").iterdir())
    change(file, file.read_bytes().index(b"17:....") + 5, b"!")

    with pytest.raises(AssertionError, match="corrupt"):
        read_files(root)
