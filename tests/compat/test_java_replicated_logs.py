"""Replicated and mixed stores of Java open in place, return all messages of their manifests, and can be appended to."""

from collections import defaultdict
from types import SimpleNamespace

import pytest

from commitlog.conversion.divide import OpeningCase, was_written_by_java
from commitlog.record.record import decode
from dledger.entries.store import EntryStoreConfig
from store.access.message_store import MessageStore
from store.dispatch.recovery import LastState
from store.fs.linux.files import OsFiles
from store.maintenance.lock import note_in
from store.model.config import MessageStoreConfig
from store.model.message import Message, QueueKey
from tests.unit.commitlog.conftest import Clock, Opened

FILE_SIZE = 65_536
SIZES = EntryStoreConfig(FILE_SIZE, 5 * 1024 * 1024 * 32)
STORES = ("dledger", "dledger-killed", "mixed")
CONFIG = MessageStoreConfig(mapped_file_size_consume_queue=1000, max_hash_slot_num=100, max_index_num=400)
NOW = 1_900_000_000_000


class JavaStore:
    def __init__(self, name, folder, messages):
        self.name, self.folder = name, folder
        self.messages = {message["physicalOffset"]: message for message in messages}

    def open(self, last=None):
        """Open log and message store as a broker does; queues of a directory that Java wrote are rebuilt."""
        files, directory = OsFiles(), f"{self.folder}/dledger-n0"
        is_java = was_written_by_java(files, directory)
        opened = Opened(self.folder, files, Clock(NOW), SIZES)
        # Entries of Java's nodes are committed when a node of ours leads: here a group of one.
        opened.node.lead(max(opened.store.last_term, 0) + 1)
        opened.node.commit()
        if last is None:
            last = LastState() if is_java else LastState(note_in(files, str(self.folder)) is None)
        store = MessageStore.open(files, str(self.folder), opened.log, CONFIG, last)
        return SimpleNamespace(opened=opened, log=opened.log, node=opened.node, store=store)


@pytest.fixture(params=STORES)
def java(request, unpack, manifest):
    return JavaStore(request.param, unpack(request.param), manifest(request.param))


def queues_of(messages):
    queues = defaultdict(dict)
    for message in messages.values():
        if message["inConsumeQueue"]:
            key = QueueKey(message["topic"], message["queueId"])
            queues[key][message["queueOffset"]] = (message["physicalOffset"], message["size"], message["tagsCode"])
    return queues


def assert_all_there(java, broker):
    """Every message is read at its physical offset, scanned once, and is in its queue at its queue offset."""
    rows = broker.opened.scanned(20_000)
    assert [row for row in rows if row[3] in java.messages] == [
        (m["topic"], m["queueId"], m["queueOffset"], m["physicalOffset"], m["size"])
        for _, m in sorted(java.messages.items())
    ]
    for key, units in queues_of(java.messages).items():
        queue = broker.store.derived.queues.get(key)
        for queue_offset, unit in units.items():
            assert queue.unit_tuples(queue_offset, 1) == [unit], (key, queue_offset)


def test_every_message_is_read_at_its_physical_offset(java, described):
    broker = java.open()

    for offset, message in java.messages.items():
        for record in (broker.log.read(offset, message["size"]), broker.log.find(offset)):
            found = described(record)
            assert found == {key: message[key] for key in found}
        assert broker.log.peek(offset, message["size"]).store_timestamp == message["storeTimestamp"]
    assert_all_there(java, broker)


def test_case_and_divide_are_found(java):
    broker = java.open()

    assert broker.opened.divided.case is OpeningCase.ENTRIES
    expected = 65_536 if java.name == "mixed" else 0
    assert broker.log.divided_commitlog_offset == expected
    assert broker.log.has_base_log == (java.name == "mixed")
    assert broker.log.begin_offset == 0
    below = [offset for offset in java.messages if offset < expected]
    assert bool(below) == (java.name == "mixed")


def test_appends_continue_with_correct_positions_and_queue_offsets(java):
    broker = java.open()
    end = broker.log.end_offset
    next_offsets = {key: max(units) + 1 for key, units in queues_of(java.messages).items()}
    puts = [Message(key.topic, b"by us", key.queue_id) for key in next_offsets if key.topic == "TopicTest"]
    assert puts

    pending = broker.store.put_many(puts)
    broker.node.commit()
    broker.store.dispatch()

    assert broker.log.end_offset > end
    for message, place in zip(puts, pending.outcome.places, strict=True):
        assert place.queue_offset == next_offsets[message.topic, message.queue_id]
        entry = broker.opened.store.get(broker.opened.store.index_at_position(place.physical_offset - 48))
        assert decode(memoryview(entry.body), 0).physical_offset == place.physical_offset == entry.position + 48
        assert place.store_timestamp == NOW
    assert_all_there(java, broker)
    (found,) = broker.store.get(puts[0].topic, puts[0].queue_id, pending.outcome.places[0].queue_offset).messages
    assert found.body == b"by us"


def test_base_log_stays_as_java_left_them(java):
    before = {path: path.read_bytes() for path in sorted(java.folder.glob("commitlog/*"))}

    java.open()

    assert {path: path.read_bytes() for path in sorted(java.folder.glob("commitlog/*"))} == before


def test_abort_file_costs_no_message(java):
    """RocketMQ then cuts units that were right, and gives their queue offsets out again."""
    (java.folder / "abort").write_text("1234")

    assert_all_there(java, java.open())


def test_units_that_javas_recovery_lost_are_rebuilt(java):
    """Its bug after an unclean exit cuts the ends of some queues; a clean shutdown follows."""
    for path in java.folder.glob("consumequeue/TopicTest/*/*"):
        content = bytearray(path.read_bytes())
        units = sum(1 for at in range(0, len(content), 20) if any(content[at : at + 20]))
        content[(units - 2) * 20 :] = bytes(len(content) - (units - 2) * 20)
        path.write_bytes(content)
    (java.folder / "abort").unlink(missing_ok=True)

    assert_all_there(java, java.open())


def test_store_without_queues_and_index_is_rebuilt(java):
    for pattern in ("consumequeue/*/*/*", "index/*"):
        for path in java.folder.glob(pattern):
            path.unlink()

    assert_all_there(java, java.open())


def test_plain_store_of_java_is_continued(unpack, manifest):
    java = JavaStore("plain-clean", unpack("plain-clean"), manifest("plain-clean"))
    files = {path: path.read_bytes() for path in sorted((java.folder / "commitlog").iterdir())}

    broker = java.open(LastState(is_clean=True))

    assert broker.opened.divided.case is OpeningCase.BASE_LOG
    assert_all_there(java, broker)
    assert broker.opened.store.position_of(0) == broker.log.divided_commitlog_offset
    changed = [path for path in files if path.exists() and path.read_bytes() != files[path]]
    assert len(changed) == 1
    position = max(m["physicalOffset"] + m["size"] for m in java.messages.values()) % FILE_SIZE
    blank = (FILE_SIZE - position).to_bytes(4, "big") + bytes.fromhex("cbd43194")
    before, after = files[changed[0]], changed[0].read_bytes()
    assert after == before[:position] + blank + before[position + 8 :]
