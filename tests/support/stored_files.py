"""Reads the files of a stopped broker, only with the offline code and a few calls of `struct`.

Nothing here opens a store like a broker does, so answers of a broker can be compared with its files independently.
"""

import shutil
import struct
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from cluster.cli.store.entry_check import EntryCheck
from cluster.cli.store.inspection import FileFault, entries_of
from cluster.replica.replicated_state import ReplicatedState
from cluster.state.broker_state import BrokerState
from commitlog.offline.directory import find_store
from commitlog.offline.message_filter import MessageFilter
from commitlog.offline.reader import StoreReader
from commitlog.offline.rebuild import Layout, Rebuild
from commitlog.offline.verify import StoreParts, Verification
from commitlog.record.compression import uncompressed_body
from commitlog.record.system_records import MessageEntryCodec, is_system_record, system_body
from dledger.entries.format.codec import is_applied
from dledger.entries.format.entry import ENTRY_NORMAL, Entry
from dledger.storage.snapshot_store import SnapshotStore
from store.fs.linux.files import OsFiles
from store.fs.read_only_files import ReadOnlyFiles
from store.index.layout import IndexLayout
from store.model.finding import Finding
from store.model.sys_flag import has_queue_offset

DERIVED = ("consumequeue", "index")
UNIT = struct.Struct(">qiq")


class Stored(NamedTuple):
    """A message of a log, without no-ops of leaders."""

    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    size: int
    store_timestamp: int
    unique_key: str
    message_id: str
    body: bytes
    is_queued: bool = True

    @property
    def queue(self):
        return self.topic, self.queue_id

    @property
    def place(self):
        """Its location, as in a broker's response to a put."""
        return self.queue_id, self.queue_offset, self.physical_offset, self.message_id


@dataclass
class StoredFiles:
    """The files of one store.

    Attributes:
        root: its directory.
        messages: all messages in log order.
        derived: content of queues and index by path.
        entries: of a replicated log: (index, term, channel, body).
    """

    root: Path
    messages: list[Stored]
    derived: dict[str, bytes]
    entries: list[tuple[int, int, int, bytes]]

    def __repr__(self):
        return f"{self.root.name}: {len(self.messages)} messages"

    def queues(self):
        """Return the messages of each queue in log order: {(topic, queue id): [messages]}."""
        found = defaultdict(list)
        for message in self.messages:
            if message.is_queued:
                found[message.queue].append(message)
        return dict(found)

    def state(self, last_index=None):
        """Return the broker state after the commands and effects of the log up to an entry (inclusive)."""
        state, codec = BrokerState(system_body), MessageEntryCodec(lambda: 0)
        for index, term, channel, body in self.entries:
            entry = Entry(index, term, 0, ENTRY_NORMAL, channel, 0, 0, body)
            if is_applied(codec, entry) and (last_index is None or index <= last_index):
                state.apply([entry])
        return state

    def topics(self):
        """Return the topics that commands in the log create."""
        return self.state().topics


def check_states(replicas):
    """Check that each snapshot of broker state equals the result of the log's commands, byte for byte.

    After its snapshot a node applies the commands of its log, which is equal on all nodes. The snapshot has, for each
    queue, the number of messages in the log before the snapshot.

    Returns: the number of snapshots.
    """
    count = 0
    for stored in replicas:
        assert saved(stored.state()) == saved(replicas[0].state())
        (directory,) = stored.root.glob("dledger-*")
        snapshots = SnapshotStore.open(OsFiles(), str(directory))
        latest = snapshots.latest()
        if latest is not None:
            check_snapshot(stored, latest.index, snapshots.load(latest))
            count += 1
        snapshots.close()
    return count


def check_snapshot(stored, index, content):
    """Compare one snapshot with the log."""
    state = BrokerState(system_body)
    machine = ReplicatedState(state, queue_ends=None, applied_index=None)
    machine.snapshot_load(content)
    assert saved(state) == saved(stored.state(index)), f"{stored}: the snapshot of entry {index}"
    place, next_offsets = machine.loaded
    expected = {
        queue: sum(message.physical_offset < place for message in messages)
        for queue, messages in stored.queues().items()
    }
    # A queue that was truncated completely and not dispatched again yet may be missing.
    found = {tuple(key): next_offset for key, next_offset in next_offsets.items() if next_offset}
    assert found == {queue: count for queue, count in expected.items() if count}, f"{stored}: queues below {place}"


def saved(state):
    """Return broker state as bytes."""
    return b"".join(state.snapshot_save())


def read_files(root):
    """Return the content of a closed store; every record and entry must be valid.

    A torn tail is allowed: the last write of a killed process.
    """
    directory = find_store(ReadOnlyFiles(), str(root))
    parts = StoreParts(ReadOnlyFiles(), directory)
    messages = []
    for found in StoreReader(parts, MessageFilter()).read():
        if isinstance(found, Finding):
            assert found.is_unfinished, str(found)
            continue
        record = found.record
        if is_system_record(record):
            continue
        body = uncompressed_body(record.sys_flag, record.body)
        place = (record.topic, record.queue_id, record.queue_offset, record.physical_offset, record.size)
        names = record.properties.get("UNIQ_KEY", ""), record.message_id
        is_queued = has_queue_offset(record.sys_flag)
        messages.append(Stored(*place, record.store_timestamp, *names, bytes(body), is_queued))
    entries = []
    if directory.node_directory is not None:
        for entry in entries_of(Path(directory.node_directory)):
            if isinstance(entry, FileFault):
                assert "torn tail" in entry.text, str(entry)
                continue
            entries.append((entry.index, entry.term, entry.channel, bytes(entry.body)))
    return StoredFiles(Path(root), messages, derived_files(root), entries)


def derived_files(root):
    """Return content of queues and index: {path: bytes}."""
    root = Path(root)
    return {
        str(path.relative_to(root)): path.read_bytes()
        for directory in DERIVED
        for path in sorted((root / directory).rglob("*"))
        if path.is_file()
    }


def check_closed(root, other, directories=DERIVED):
    """Check the consistency of a store that was closed cleanly; `other` is a directory for copies.

    1. `dledger verify` finds nothing. 2. Queues and index (or those in `directories`) equal a rebuild from the log,
       byte for byte. 3. Each queue unit matches its record, and each queue offset exists exactly once, without blanks.
    """
    directory = find_store(ReadOnlyFiles(), str(root))
    parts = StoreParts(ReadOnlyFiles(), directory)
    assert [str(finding) for finding in Verification(parts).findings()] == []
    assert [str(finding) for finding in EntryCheck(directory).findings()] == []
    stored = read_files(root)
    check_units(stored)
    check_rebuilt(*(_within(files, directories) for files in (stored.derived, rebuilt_files(root, other))))
    return stored


def _within(files, directories):
    return {path: content for path, content in files.items() if Path(path).parts[0] in directories}


def check_units(stored):
    """Compare the units of all queues with the records, without the code that writes or reads them."""
    units = defaultdict(dict)
    for path, content in stored.derived.items():
        kind, topic, *rest = Path(path).parts
        if kind != "consumequeue":
            continue
        queue_id, name = rest
        first = int(name) // UNIT.size
        rows = {first + at: row for at, row in enumerate(UNIT.iter_unpack(content)) if any(row)}
        units[topic, int(queue_id)].update(rows)
    units = {queue: rows for queue, rows in units.items() if rows}
    queues = stored.queues()
    assert sorted(units) == sorted(queues), "queues of the log are others than those that were written"
    for queue, messages in queues.items():
        expected = {message.queue_offset: (message.physical_offset, message.size) for message in messages}
        found = {offset: (place, size) for offset, (place, size, _) in units[queue].items()}
        assert found == expected, f"{stored.root.name}: units of {queue}: {_first_difference(expected, found)}"


def rebuilt_files(root, other):
    """Return the files that `dledger rebuild` writes for a copy of the log in `other`, which is deleted afterwards."""
    root, other = Path(root), Path(other)
    for path in root.iterdir():
        if path.name == "commitlog" or path.name.startswith("dledger-"):
            shutil.copytree(path, other / path.name, ignore=shutil.ignore_patterns("snapshot*"))
    # File sizes are not recorded in the log.
    copied = StoreParts(ReadOnlyFiles(), find_store(ReadOnlyFiles(), str(root)))
    layout = Layout(_queue_file_size(root), _index_layout(copied))
    Rebuild(OsFiles(), StoreParts(ReadOnlyFiles(), find_store(ReadOnlyFiles(), str(other))), layout).run()
    found = derived_files(other)
    shutil.rmtree(other)
    return found


def _queue_file_size(root):
    sizes = {path.stat().st_size for path in (Path(root) / "consumequeue").rglob("*") if path.is_file()}
    assert len(sizes) <= 1, f"files of queues of several sizes: {sizes}"
    return max(sizes, default=None)


def _index_layout(parts):
    views = parts.index_views
    return IndexLayout(views[0].slot_count, views[0].item_count_max + 1) if views else None


def check_rebuilt(found, expected):
    """Compare derived files, byte for byte."""
    assert sorted(found) == sorted(expected)
    for path, content in found.items():
        assert content == expected[path], f"{path}: differs at byte {_first_byte(content, expected[path])}"


def _first_byte(one, other):
    return next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


def _first_difference(expected, found):
    keys = sorted({key for key in {*expected, *found} if expected.get(key) != found.get(key)})
    return f"{len(keys)} differ, first {keys[0]}: expected {expected.get(keys[0])}, found {found.get(keys[0])}"
