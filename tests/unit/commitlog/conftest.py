"""A replicated log without a network: an entry store, and a node that commits when the test calls it."""

import pytest

from commitlog.conversion.base_log import BaseLog
from commitlog.conversion.divide import LogDirectories, divide_log
from commitlog.record.system_records import MessageEntryCodec
from commitlog.replicated.commit_log import DLedgerCommitLog, DLedgerCommitLogConfig
from dledger.entries.damaged_tail import keep_damaged_tail
from dledger.entries.store import EntryStore, EntryStoreConfig
from dledger.errors import ResponseCode
from dledger.pending.appends import AppendResult
from dledger.types import Member, Membership
from store.fs.linux.files import OsFiles
from store.model.message import LOOPBACK, Message

FILE_SIZE = 4096
SIZES = EntryStoreConfig(FILE_SIZE, 32 * 16)
MEMBERS = Membership((Member("n0"), Member("n1")))


class FakeFuture:
    """As an asyncio future that belongs to no loop; callbacks run at once."""

    def __init__(self):
        self._result = None
        self._callbacks = []

    def done(self):
        return self._result is not None

    def cancelled(self):
        return False

    def result(self):
        return self._result

    def add_done_callback(self, callback):
        self._callbacks.append(callback)

    def set_result(self, result):
        self._result = result
        for callback in self._callbacks:
            callback(self)


class SimpleNode:
    """Leads a group of one whose quorum is the test: `commit` commits the appended entries."""

    def __init__(self, store, codec):
        self.store, self.codec = store, codec
        self.term, self.is_leader, self.commit_index = 0, False, -1
        self.refusal = None
        self.waiting = []
        self.unapplied_count = 0

    @property
    def applied_index(self):
        return self.commit_index - self.unapplied_count

    def lead(self, term):
        self.term, self.is_leader = term, True
        self.append_own(self.codec.no_op())

    def append_own(self, entry):
        magic, channel, body, stamp_at = entry
        index = self.store.last_index + 1
        self.store.append([body], index, self.term, magic=magic, channel=channel, stamp_at=stamp_at)

    def append(self, bodies, stamp_at=None):
        future = FakeFuture()
        if self.refusal is not None:
            future.set_result(AppendResult(self.refusal, "refused"))
            return future
        first_index = self.store.last_index + 1
        positions = self.store.append(bodies, first_index, self.term, stamp_at=stamp_at)
        self.waiting.append((first_index + len(bodies) - 1, future, first_index, positions))
        return future

    def commit(self, index=None):
        self.commit_index = self.store.last_index if index is None else index
        for last_index, future, first_index, positions in self.waiting:
            if last_index <= self.commit_index and not future.done():
                future.set_result(AppendResult(ResponseCode.SUCCESS, "", first_index, self.term, positions))

    def answer(self, code):
        """End all waits without a commit."""
        for _, future, *_ in self.waiting:
            if not future.done():
                future.set_result(AppendResult(code, "said the test"))

    def drop_last(self):
        """Refuse the last append although it was accepted; the log has none of its entries."""
        _, future, first_index, _ = self.waiting.pop()
        self.store.truncate(first_index)
        future.set_result(AppendResult(ResponseCode.LEADER_TRANSFERRING, "said the test"))

    def flush(self):
        ticket = self.store.begin_flush()
        ticket.sync()
        self.store.end_flush(ticket)


class Opened:
    def __init__(self, root, files, clock, sizes=SIZES, store_host=LOOPBACK, give_up=keep_damaged_tail):
        codec = MessageEntryCodec(clock=clock, store_host=store_host)
        self.places = LogDirectories(f"{root}/commitlog", f"{root}/dledger-n0", sizes)
        self.divided = divide_log(files, self.places, codec)
        self.store = EntryStore.open(files, self.places.node_directory, sizes, codec, give_up)
        self.node = SimpleNode(self.store, codec)
        self.base = BaseLog.open(files, self.places.base_directory, sizes.data_file_size_bytes, self.divided.divide)
        self.log = DLedgerCommitLog(
            self.node, self.store, self.divided.divide, self.base, DLedgerCommitLogConfig(store_host=store_host), clock
        )

    def close(self):
        self.log.close()
        self.store.begin_checkpoint(self.node.commit_index).save()
        self.store.abandon()

    def scanned(self, size=700):
        """Return (topic, queue id, queue offset, physical offset, size) of all, as dispatch sees them."""
        found, offset = [], self.log.begin_offset
        while (batch := self.log.scan(offset, size, is_body_checked=True)) is not None:
            assert batch.skipped == ()
            assert batch.next_offset > offset
            for row in range(len(batch)):
                key = batch.queues[batch.queue_numbers[row]]
                place = (int(batch.queue_offsets[row]), int(batch.physical_offsets[row]), int(batch.sizes[row]))
                found.append((key.topic, key.queue_id, *place))
            offset = batch.next_offset
        return found


class Clock:
    def __init__(self, now=1_700_000_000_000):
        self.now = now

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def open_log(tmp_path, clock):
    opened = []

    def open_one(root=None, **arguments):
        opened.append(Opened(root or tmp_path, OsFiles(), clock, **arguments))
        return opened[-1]

    return open_one


def message(body=b"hello", topic="T", queue_id=0, **fields):
    return Message(topic, body, queue_id, **fields)
