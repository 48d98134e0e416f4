"""The checks of the shell's simulator: what a node that fails within a step has committed."""

from dataclasses import replace
from random import Random
from types import SimpleNamespace

import pytest

from dledger.entries.store import EntryStore, EntryStoreConfig
from dledger.testing.disk.disk import SimDisk
from dledger.testing.disk.files import SimFiles
from dledger.testing.faults import FaultCounts, Violation
from dledger.testing.shell.history import History, Life

LAST_INDEX = 9


@pytest.fixture
def store():
    files = SimFiles(SimDisk(Random(0), FaultCounts()), Random(0), FaultCounts())
    store = EntryStore.open(files, "/n0", EntryStoreConfig(data_file_size_bytes=1024, index_file_size_bytes=512))
    store.append([b"%d" % index for index in range(LAST_INDEX + 1)], 0, 1)
    return store


def failed(store, commit_index, begin_index=0, term_at=lambda index: 1):
    """Return a process that failed in a step after which the core has these indexes; it had committed 4 entries."""
    state = SimpleNamespace(log=SimpleNamespace(term_at=term_at))
    node = SimpleNamespace(commit_index=commit_index, _raft=SimpleNamespace(begin_index=begin_index, state=state))
    return Life("n0", node, store, commit_index=3)


def test_entries_that_a_failed_reset_removed_are_not_read(store):
    """Found by simulation (shell, seed 222): a sync of the reset failed after the old index files were removed."""
    history, life = History(), failed(store, commit_index=21, begin_index=22)
    store._index.queue.remove_before(1 << 20)

    history.look_at_failed(life)

    assert (history.committed, life.commit_index) == ([], LAST_INDEX)


def test_entries_that_a_failed_push_did_not_write_are_not_read(store):
    history, life = History(), failed(store, commit_index=LAST_INDEX + 5)
    entries = store.read_entries(0, LAST_INDEX)
    history.committed = entries[:7]

    history.look_at_failed(life)

    assert (history.committed, life.commit_index) == (entries, LAST_INDEX)


def test_entries_that_a_failed_push_did_not_truncate_are_not_read(store):
    """Found by simulation (shell, 70035): the sync of a truncation failed after the core had learned a commit."""
    history = History()
    entries = store.read_entries(0, LAST_INDEX)
    history.committed = [*entries[:6], replace(entries[6], term=2, body=b"of the next leader")]
    life = failed(store, commit_index=8, term_at=lambda index: 1 if index < 6 else 2)

    history.look_at_failed(life)

    assert life.commit_index == 5


def test_other_entries_in_the_store_of_a_failed_node_are_a_violation(store):
    history = History()
    history.committed = [replace(entry, body=b"other") for entry in store.read_entries(0, LAST_INDEX)]

    with pytest.raises(Violation, match="n0 committed another entry 4"):
        history.look_at_failed(failed(store, commit_index=LAST_INDEX + 5))
