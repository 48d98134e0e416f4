"""One byte of a store is changed: it is never served or pushed, and no guarantee is violated.

Every byte of every file, in several patterns, before the store is opened and while it is open. The short form flips one
bit of each byte and sets the byte to 0 and to 0xff. Inside of long bodies, which one checksum covers, it changes one
byte in seven. `make bit-flips` runs the long form with every bit of every byte.
"""

import os
from collections import Counter
from dataclasses import replace

import pytest

from commitlog.record.system_records import MessageEntryCodec
from dledger.entries.format.codec import RAW_ENTRY_CODEC
from dledger.entries.format.entry import HEADER_SIZE
from dledger.entries.membership_file import MembershipFile, drop_unheld
from dledger.entries.push_check import check_payload
from dledger.entries.store import EntryStore
from dledger.node.log_reader import LogReader
from dledger.node.lost_vote import VoteGivenUp
from dledger.pending.reads import RequestRefused
from dledger.storage.hard_state import HardStateFile
from dledger.types import HardState, Membership
from store.errors import CorruptData, StoreError
from tests.crashpoints.images import killed
from tests.crashpoints.workload import CONFIG, DIRECTORY, Workload, files_on, unstamped

IS_LONG = os.environ.get("DLEDGER_BIT_FLIPS") == "long"
# The random incarnation of a node that loses its vote.
INCARNATION = 77
KINDS = ("data", "index", "currterm", "checkpoint", "loghead", "membership")
# The membership file is padded with spaces after its text; one byte in this many is changed.
FILLER_STRIDE = 1 if IS_LONG else 211
# Inside of a body that is longer than its ends, one byte in this many is changed.
BODY_STRIDE = 1 if IS_LONG else 7
# Clients and peers read from every entry on; for one changed byte from one entry in this many, for the next byte from
# the next entries.
START_STRIDE = 1 if IS_LONG else 4
# Bytes at both ends of a body that are all changed; of a message those before and after its own body.
BODY_ENDS = 16
MESSAGE_ENDS = 128


def message_codec():
    return MessageEntryCodec(clock=lambda: 1_700_000_000_000)


def what_is(entry):
    return entry.term, (entry.magic, entry.channel), unstamped(entry)


class SmallStore:
    """Entries of three terms in two data files after deleted ones; a checkpoint in the second; all durable."""

    def __init__(self, codec=RAW_ENTRY_CODEC):
        self.codec = codec
        work = Workload(lambda *_: None, codec)
        work.vote(7, "n1")
        work.change_membership("n0", "n1", "n2")
        work.append(700, 1200)
        work.append(60, 200, 0, 90)
        work.change_membership("n0", "n1", "n2", "n3")
        work.append(40)
        work.term = 5
        work.append(100, 700, 30)
        work.flush()
        work.term = 7
        work.append(600, 0, 40, 500)
        work.flush()
        work.checkpoint()
        self.checkpoint_index = work.begin_index + len(work.log) - 1
        work.append(50, 300, 20)
        work.flush()
        work.delete_before(2)
        assert work.begin_index == 2
        self.log = dict(enumerate(work.log, work.begin_index))
        (self.memberships,) = work.guarantees().memberships
        self.hard_state = HardState(7, "n1")
        work.kill()
        self.disk = work.disk
        self.inner_positions = self._inner_positions()

    def _inner_positions(self):
        """Return the positions in the log of all bytes inside of bodies, far from their ends."""
        store, _, _ = open_damaged(killed(self.disk).disk, self.codec)
        bodies = [(entry.position + HEADER_SIZE, entry.position + entry.size) for entry in map(store.get, self.log)]
        ends = BODY_ENDS if self.codec is RAW_ENTRY_CODEC else MESSAGE_ENDS
        return {at for begin, end in bodies for at in range(begin + ends, end - ends)}

    def places(self, kind):
        """Yield (directory, name, position, new byte) for each way to change one byte of the files of a kind."""
        for path, directory in sorted(self.disk.directories.items()):
            for name, inode in sorted(directory.cached.items()):
                if kind in (name, path.rpartition("/")[2]):
                    text_end = len(inode.cache.rstrip(b" "))
                    log_begin = int(name) if kind == "data" else None
                    for position, byte in enumerate(inode.cache):
                        is_inner = log_begin is not None and log_begin + position in self.inner_positions
                        stride = FILLER_STRIDE if position > text_end else BODY_STRIDE if is_inner else 1
                        if position % stride == 0:
                            yield from ((path, name, position, value) for value in patterns(position, byte))


def patterns(position, byte):
    bits = range(8) if IS_LONG else (position % 8,)
    return sorted({*(byte ^ 1 << bit for bit in bits), 0, 0xFF} - {byte})


def flip(disk, path, name, position, value):
    inode = disk.directories[path].cached[name]
    inode.cache[position] = inode.durable[position] = value


def open_damaged(disk, codec=RAW_ENTRY_CODEC):
    """Open a disk with production code; return (store, hard state, memberships), or the error."""
    files = files_on(disk)
    give_up = VoteGivenUp(files, DIRECTORY, self_id="n0", settings=Membership(), draw=lambda *_: INCARNATION)
    try:
        store = EntryStore.open(files, DIRECTORY, CONFIG, codec, give_up)
        hard_state = HardStateFile.open(files, DIRECTORY).load()
        memberships = MembershipFile.open(files, DIRECTORY).load()
        return store, hard_state, drop_unheld(memberships, store)
    except StoreError as error:
        return error


def terms_of(store):
    state = store.log_state()
    terms = {}
    for number, run in enumerate(state.term_runs):
        is_last = number + 1 == len(state.term_runs)
        end = state.last_index + 1 if is_last else state.term_runs[number + 1].first_index
        terms.update(dict.fromkeys(range(run.first_index, end), run.term))
    return terms


def read_in_every_way(store, log, position):
    """Read all that clients and peers can read; return the number of refusals.

    Args:
        store: whose file has a changed byte.
        log: what was written.
        position: of the changed byte in its file; it chooses where the reads of several entries start.

    Raises: AssertionError: other bytes than the written ones were served.
    """
    refused = 0
    for index in range(store.begin_index, store.last_index + 1):
        try:
            entry = store.get(index)
            assert what_is(entry) == log[index], index
        except CorruptData:
            refused += 1
        if (index - position) % START_STRIDE == 0:
            refused += not is_read_by_client(store, index, log)
            refused += not is_pushed(store, index, log)
    return refused


def is_read_by_client(store, index, log):
    cursor = LogReader(store).cursor(index)
    try:
        entries = cursor.read_entries(store.last_index)
        encoded = LogReader(store).cursor(index).read_encoded(store.last_index)
    except RequestRefused:
        return False
    for entry in entries:
        assert what_is(entry) == log[entry.index]
    assert sum(entry.size for entry in entries) == len(encoded)
    return True


def is_pushed(store, index, log):
    """Return whether the entries from `index` on would be sent to a peer."""
    try:
        span = store.fit(index, store.last_index, 1 << 20)
        payload = store.read_span(span)
    except CorruptData:
        return False
    check_payload(span, payload, CONFIG.data_file_size_bytes, store.codec)
    assert span.term == log[span.first_index][0]
    assert len(payload) == sum(48 + len(log[at][2]) for at in range(span.first_index, span.last_index + 1))
    return True


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "codec"),
    [
        *(pytest.param(kind, RAW_ENTRY_CODEC, id=kind) for kind in KINDS),
        pytest.param("data", message_codec(), id="messages"),
    ],
)
def test_changed_byte_of_a_stopped_node_is_refused_or_repaired(kind, codec, capsys):
    small = SmallStore(codec)
    counts = Counter()
    for place in small.places(kind):
        disk = killed(small.disk).disk
        flip(disk, *place)
        try:
            counts[judge(open_damaged(disk, codec), small, place)] += 1
        except Exception as error:
            raise AssertionError(f"{place}: {type(error).__name__}: {error}") from error

    with capsys.disabled():
        print(f"\nchanged bytes of {kind}, {counts.total()}: {dict(counts)}")
    if kind in ("index", "checkpoint"):
        assert set(counts) == {"all served"}
    elif kind == "data":
        assert counts["without a vote"] > 0
    else:
        assert set(counts) <= {"start refused", "all served"}
        assert counts["start refused"] > 0


def judge(opened, small, place):
    """Return the outcome of the damage.

    Raises: AssertionError: a guarantee was violated.
    """
    if isinstance(opened, StoreError):
        assert opened.path.startswith(DIRECTORY), opened
        assert 0 <= getattr(opened, "position", 0) <= CONFIG.data_file_size_bytes, opened
        return "start refused"
    store, hard_state, memberships = opened
    is_non_voting = hard_state.incarnation == INCARNATION
    assert hard_state == replace(small.hard_state, incarnation=hard_state.incarnation)
    assert memberships == small.memberships
    assert store.begin_index == min(small.log)
    assert store.last_index >= small.checkpoint_index, "cut below what was durable"
    assert terms_of(store) == {at: small.log[at][0] for at in range(store.begin_index, store.last_index + 1)}
    is_cut = store.last_index < max(small.log)
    assert is_non_voting or not is_cut, "cut what was durable, and kept its vote"
    assert is_non_voting == any("damaged tail cut" in note for note in store.recovery_notes)
    _, _, position, _ = place
    if read_in_every_way(store, small.log, position):
        return "read and push refused"
    return "without a vote" if is_non_voting else "all served"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "codec"),
    [
        *(pytest.param(kind, RAW_ENTRY_CODEC, id=kind) for kind in ("data", "index")),
        pytest.param("data", message_codec(), id="messages"),
    ],
)
def test_changed_byte_of_a_running_node_is_not_served_and_not_pushed(kind, codec, capsys):
    small = SmallStore(codec)
    counts = Counter()
    disk = killed(small.disk).disk
    store, _, _ = open_damaged(disk, codec)
    for path, name, position, value in small.places(kind):
        cache = disk.directories[path].cached[name].cache
        before, cache[position] = cache[position], value
        try:
            counts["refused" if read_in_every_way(store, small.log, position) else "all served"] += 1
        except Exception as error:
            raise AssertionError(f"{path}/{name} {position}, {value}: {type(error).__name__}: {error}") from error
        cache[position] = before

    with capsys.disabled():
        print(f"\nchanged bytes of {kind} while open, {counts.total()}: {dict(counts)}")
    assert counts["refused"] > 0
