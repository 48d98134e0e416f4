"""Compacted queues of a store: what readers see, retention, restarts, and files that are lost or damaged."""

import shutil

import pytest

from commitlog.offline.directory import find_store
from commitlog.offline.verify import StoreParts, Verification
from store.compaction import compaction as compaction_module
from store.compaction.compaction import NO_FLOOR
from store.errors import NotCompactedYet, StorageFailed
from store.fs.read_only_files import ReadOnlyFiles
from store.model.message import Message
from store.model.read_filter import Sql92
from store.model.sys_flag import TRANSACTION_PREPARED_TYPE
from tests.support.brokers.compacting import compact, copy_all, keyed, put, read_all
from tests.support.message_stores import SMALL, numbered, with_log

FILES_OF_4K = with_log(SMALL, mapped_file_size=4096)
DAY_S = 86_400


def rows_of(store, topic="C"):
    return {
        (key.queue_id, int(row["offset"]), int(row["place"]))
        for key, index in store.messages.compaction.queues()
        if key.topic == topic
        for row in index.rows
    }


def filled(store, rounds=3):
    """Put the keys a to e, several times; the topic D is not compacted."""
    for number in range(rounds):
        put(store, *[keyed(key, f"{key}{number}".encode()) for key in "abcde"], keyed("a", b"d", "D"))


def test_reader_gets_the_latest_message_of_each_key_at_its_offset_and_all_newer_messages(opened):
    store = opened()
    filled(store)
    compact(store)
    put(store, keyed("a", b"a3"), keyed("a", b"a4"))
    assert read_all(store.messages) == {10: b"a2", 11: b"b2", 12: b"c2", 13: b"d2", 14: b"e2", 15: b"a3", 16: b"a4"}
    assert read_all(store.messages, count_max=2) == read_all(store.messages)
    assert read_all(store.messages, "D") == {0: b"d", 1: b"d", 2: b"d"}
    compact(store)
    assert read_all(store.messages) == {11: b"b2", 12: b"c2", 13: b"d2", 14: b"e2", 16: b"a4"}
    assert [message.body for message in store.messages.get("C", 0, 12, 1).messages] == [b"c2"]
    assert store.messages.get("C", 0, 17).status == "OFFSET_OVERFLOW_ONE"
    assert (store.messages.min_offset("C", 0), store.messages.max_offset("C", 0)) == (0, 17)


def test_filters_apply_to_compacted_messages(opened):
    store = opened()
    put(store, *[Message("C", b"%d" % at, 0, {"KEYS": str(at), "TAGS": "ab"[at % 2], "n": str(at)}) for at in range(6)])
    compact(store)
    assert [message.body for message in store.messages.get("C", 0, 0, tags="b").messages] == [b"1", b"3", b"5"]
    assert [message.body for message in store.messages.get("C", 0, 1, tags=Sql92("n > 3")).messages] == [b"4", b"5"]
    result = store.messages.get("C", 0, 0, tags="z")
    assert (result.status, result.next_begin_offset) == ("NO_MATCHED_MESSAGE", 6)


def test_each_queue_has_its_own_keys(opened):
    store = opened()
    put(store, *[keyed("a", b"%d" % at, queue_id=at % 3) for at in range(6)])
    compact(store)
    assert [read_all(store.messages, queue_id=queue_id) for queue_id in range(3)] == [{1: b"3"}, {1: b"4"}, {1: b"5"}]


def test_tombstone_removes_its_key_at_once_and_is_removed_itself_after_its_time(opened, clock):
    store = opened()
    put(store, keyed("a", b"a0"), keyed("b", b"b0"), keyed("a", b""))
    compact(store)
    assert read_all(store.messages) == {1: b"b0", 2: b""}
    # By the time of the log, not by a clock: later messages were read.
    clock.pass_s(2 * DAY_S)
    compact(store)
    assert read_all(store.messages) == {1: b"b0", 2: b""}
    put(store, keyed("c", b"c0"))
    compact(store)
    assert read_all(store.messages) == {1: b"b0", 3: b"c0"}


def test_all_messages_may_be_removed(opened, clock):
    store = opened()
    put(store, keyed("a", b""))
    clock.pass_s(2 * DAY_S)
    put(store, keyed("x", b"x", "D"))
    compact(store)
    assert read_all(store.messages) == {}
    result = store.messages.get("C", 0, 0)
    assert (result.status, result.next_begin_offset) == ("NO_MATCHED_MESSAGE", 1)


def test_log_keeps_what_is_compacted_until_it_is_copied_and_then_reads_give_the_same(opened, clock, tmp_path):
    store = opened(FILES_OF_4K)
    filled(store)
    first = store.log.begin_offset
    compact(store)
    put(store, *[numbered(at, "D") for at in range(60)])
    compact(store)
    assert store.messages.needed_from == store.messages.compaction.min_place < 4096
    before, expected = store.log.end_offset, read_all(store.messages)
    clock.pass_s(DAY_S)
    assert copy_all(store, before) == 5
    # The copies are in no queue, and readers see nothing of them.
    assert read_all(store.messages) == expected
    assert store.messages.max_offset("C", 0) == 15
    compact(store)
    assert store.messages.needed_from >= before
    store.log.delete_before(store.messages.needed_from)
    store.messages.expire()
    assert store.log.begin_offset > first
    assert read_all(store.messages) == expected
    put(store, keyed("a", b"a9"))
    assert read_all(store.messages) == {**expected, 15: b"a9"}
    # A node that has only this log derives the same.
    compact(store)
    after, rows = read_all(store.messages), rows_of(store)
    store.close()
    shutil.rmtree(tmp_path / "store" / "compacted")
    store = opened(FILES_OF_4K)
    # Until then a reader would miss the messages before the log's start.
    store.messages.compaction.is_compacted = lambda topic: topic == "C"
    assert store.messages.min_offset("C", 0) == 0
    with pytest.raises(NotCompactedYet):
        store.messages.get("C", 0, 11)
    assert [message.body for message in store.messages.get("C", 0, 15).messages] == [b"a9"]
    compact(store)
    assert (read_all(store.messages), rows_of(store)) == (after, rows)
    assert 10 not in after


def test_copy_of_a_replaced_message_does_not_return_it(opened):
    store = opened()
    put(store, keyed("a", b"a0"), keyed("b", b"b0"))
    compact(store)
    put(store, keyed("a", b"a1"))
    # The leader has not read the newest message yet.
    copy_all(store, store.log.end_offset)
    compact(store)
    assert read_all(store.messages) == {1: b"b0", 2: b"a1"}
    copy_all(store, store.log.end_offset)
    compact(store)
    assert read_all(store.messages) == {1: b"b0", 2: b"a1"}


def test_copy_of_a_removed_message_does_not_return_it_on_a_node_that_reads_all_of_the_log_later(
    opened, clock, tmp_path, monkeypatch
):
    store = opened()
    put(store, keyed("a", b"a0"))
    compact(store)
    put(store, keyed("a", b""))
    copy_all(store, store.log.end_offset - 1)
    clock.pass_s(2 * DAY_S)
    put(store, keyed("b", b"b0"))
    store.close()
    shutil.rmtree(tmp_path / "store" / "compacted")
    # It merges after each row.
    monkeypatch.setattr(compaction_module, "ROWS_MAX", 1)
    monkeypatch.setattr(compaction_module, "_STEP_BYTES", 1)
    store = opened()
    for _ in range(5):
        compact(store)
    assert read_all(store.messages) == {2: b"b0"}


def test_prepared_messages_of_others_are_not_taken_for_copies(opened):
    store = opened()
    put(store, keyed("a", b"a0"))
    put(store, Message("C", b"half", 0, {"KEYS": "a"}, sys_flag=TRANSACTION_PREPARED_TYPE))
    compact(store)
    assert read_all(store.messages) == {0: b"a0"}


def test_indexes_survive_a_restart_and_only_the_rest_of_the_log_is_read(opened):
    store = opened()
    filled(store)
    compact(store)
    put(store, keyed("a", b"a3"))
    position = store.messages.compaction.position
    store.close()
    store = opened()
    assert store.messages.compaction.position == position
    assert sorted(read_all(store.messages)) == [10, 11, 12, 13, 14, 15]
    compact(store)
    assert sorted(read_all(store.messages)) == [11, 12, 13, 14, 15]
    assert store.messages.compaction.merges_count == 1


@pytest.mark.parametrize("damage", ["no directory", "no manifest", "manifest", "index", "no index"])
def test_lost_or_damaged_files_are_built_again_from_the_log(opened, tmp_path, damage):
    store = opened()
    filled(store)
    compact(store)
    expected, rows = read_all(store.messages), rows_of(store)
    store.close()
    folder = tmp_path / "store" / "compacted"
    (index,) = (folder / "C" / "0").iterdir()
    if damage == "no directory":
        shutil.rmtree(folder)
    elif damage.startswith("no"):
        (folder / "manifest" if damage == "no manifest" else index).unlink()
    else:
        path = folder / "manifest" if damage == "manifest" else index
        content = bytearray(path.read_bytes())
        content[10] ^= 1
        path.write_bytes(content)
    store = opened()
    # Which topics are compacted is not known yet, so the log deletes nothing.
    assert damage.startswith("no ") != (store.messages.compaction.needed_from == 0) or damage == "no index"
    compact(store)
    assert (read_all(store.messages), rows_of(store)) == (expected, rows)


def test_verify_finds_damage_of_the_files_and_accepts_copies(opened, tmp_path):
    store = opened()
    filled(store)
    compact(store)
    copy_all(store, store.log.end_offset)
    store.close()
    root = tmp_path / "store"

    def findings():
        files = ReadOnlyFiles()
        return [each.path for each in Verification(StoreParts(files, find_store(files, str(root)))).findings()]

    assert findings() == []
    (index,) = (root / "compacted" / "C" / "0").iterdir()
    for path in (index, root / "compacted" / "manifest"):
        content = path.read_bytes()
        path.write_bytes(content[:20] + bytes([content[20] ^ 1]) + content[21:])
        assert findings() == [str(path)]
        path.write_bytes(content)
    index.unlink()
    assert findings() == [str(index)]


def test_remains_of_an_unfinished_merge_are_removed(opened, tmp_path):
    store = opened()
    filled(store)
    compact(store)
    store.close()
    folder = tmp_path / "store" / "compacted" / "C" / "0"
    (current,) = folder.iterdir()
    (folder / "00000000000000000099").write_bytes(b"unfinished")
    store = opened()
    assert list(folder.iterdir()) == [current]
    compact(store)
    assert len(list(folder.iterdir())) == 1


def test_log_that_lost_its_end_is_read_again(opened):
    store = opened()
    put(store, keyed("a", b"a0"))
    compact(store)
    store.messages.compaction.position += 1_000
    store.messages.compaction.discard()
    assert store.messages.compaction.needed_from == 0
    put(store, keyed("b", b"b0"))
    compact(store)
    assert read_all(store.messages) == {0: b"a0", 1: b"b0"}


def test_topic_that_becomes_compacted_later_is_read_from_its_first_message(opened):
    store = opened()
    filled(store)
    compact(store)
    assert read_all(store.messages, "D") == {0: b"d", 1: b"d", 2: b"d"}
    compact(store, "C", "D")
    assert read_all(store.messages, "D") == {2: b"d"}
    assert len(read_all(store.messages)) == 5


def test_deleted_topic_loses_its_files_and_holds_the_log_no_longer(opened, tmp_path):
    store = opened()
    filled(store)
    compact(store, "C", "D")
    compact(store, "D")
    assert list((tmp_path / "store" / "compacted" / "C" / "0").iterdir()) == []
    assert {key.topic for key, _ in store.messages.compaction.queues()} == {"D"}
    store.messages.compaction.follow(frozenset(), lambda _: None)
    assert store.messages.compaction.needed_from == NO_FLOOR


def test_failed_merge_leaves_the_old_indexes_and_is_repeated(opened, monkeypatch):
    store = opened()
    filled(store, 1)
    compact(store)
    filled(store, 2)
    expected = read_all(store.messages)

    def fail(*_):
        raise StorageFailed("manifest", "replace", OSError("no"))

    monkeypatch.setattr(store.messages.compaction._files, "replace", fail, raising=False)
    with pytest.raises(StorageFailed):
        compact(store)
    assert read_all(store.messages) == expected
    monkeypatch.undo()
    compact(store)
    assert sorted(read_all(store.messages)) == [10, 11, 12, 13, 14]


def test_time_before_the_log_is_the_first_offset(opened, clock):
    store = opened(FILES_OF_4K)
    filled(store)
    compact(store)
    clock.pass_s(100)
    put(store, *[numbered(at, "D") for at in range(60)])
    put(store, keyed("z", b"z"))
    begin_ms = int(clock.wall_s * 1000)
    assert store.messages.offset_by_time("C", 0, begin_ms - 50_000) in (14, 15)
    assert store.messages.offset_by_time("C", 0, 0) == 0
    copy_all(store, store.log.end_offset)
    compact(store)
    store.log.delete_before(store.messages.needed_from)
    store.messages.expire()
    assert store.messages.offset_by_time("C", 0, 0) == 0
