"""A process is killed, the next one starts and votes or acknowledges, and then the power is cut.

What the killed process wrote may be in the page cache only. The next one sees all of it and guarantees it to others by
its answers: so its start must have made it durable. Crashes of the disk alone, or within a start, do not show that.
"""

from collections import Counter

import pytest

from dledger.entries.format.codec import RAW_ENTRY_CODEC
from dledger.entries.membership_file import MembershipFile
from dledger.entries.store import EntryStore
from dledger.storage.hard_state import HardStateFile
from dledger.types import HardState
from tests.crashpoints.crashes import IS_LONG
from tests.crashpoints.images import TORN_IN_A_SECTOR, crash_images, killed
from tests.crashpoints.workload import CONFIG, DIRECTORY, WORKLOADS, Workload, files_on

# One in this many operations is a place to kill the process; a prime, so that none of a file's steps is always missed.
STRIDE = 1 if IS_LONG else 7
SHORT_WORKLOADS = ("restart_log", "vote_and_lead")


def refuse(damage):
    """Nothing is damaged: a kill changes no byte, and a disk writes whole sectors."""
    raise damage.refusal()


class Life:
    """A process that starts on a disk, votes and acknowledges entries."""

    def __init__(self, disk):
        files = files_on(disk)
        self.store = EntryStore.open(files, DIRECTORY, CONFIG, RAW_ENTRY_CODEC, refuse)
        self.hard_state_file = HardStateFile.open(files, DIRECTORY)
        self.hard_state = self.hard_state_file.load()
        self.memberships = MembershipFile.open(files, DIRECTORY).load()
        assert self.store.durable_index == self.store.last_index

    def found(self):
        """Return the recovered state, for comparison with the next start."""
        store = self.store
        entries = [(store.term_at(at), store.get(at).body) for at in range(store.begin_index, store.last_index + 1)]
        aside = store.aside
        kept = (aside.record, aside.files_count) if aside.is_kept else None
        return store.begin_index, store.begin_prev_term, entries, self.hard_state, self.memberships, kept

    def vote(self):
        """Save a vote."""
        self.hard_state = HardState(self.hard_state.term + 10, "n2")
        self.hard_state_file.save(self.hard_state)

    def acknowledge(self):
        """Append entries and make them durable."""
        term = max(self.hard_state.term, 100)
        self.store.append([b"x" * 40, b"y" * 600], self.store.last_index + 1, term)
        ticket = self.store.begin_flush()
        ticket.sync()
        self.store.end_flush(ticket)


class Killer:
    """Kills the process before some of its operations, and cuts the power after each step of the next one."""

    def __init__(self, stride):
        self.counts = Counter()
        self._stride = stride

    def see(self, place, disk, _guarantees):
        self.counts["operations"] += 1
        if self.counts["operations"] % self._stride:
            return
        self.counts["kills"] += 1
        disk = killed(disk).disk
        life = Life(disk)
        self._cut_power(f"{place}: start", disk, life)
        life.vote()
        self._cut_power(f"{place}: vote", disk, life)
        life.acknowledge()
        self._cut_power(f"{place}: acknowledgement", disk, life)

    def _cut_power(self, place, disk, life):
        expected = life.found()
        for image in crash_images(disk):
            if TORN_IN_A_SECTOR not in image.label:
                self.counts["power cuts"] += 1
                assert Life(image.disk).found() == expected, f"{place}: {image.label}"


@pytest.mark.slow
@pytest.mark.parametrize("name", WORKLOADS)
def test_state_that_a_start_finds_and_guarantees_survives_a_power_cut(name, capsys):
    killer = Killer(1 if name in SHORT_WORKLOADS else STRIDE)
    work = Workload(killer.see)

    WORKLOADS[name](work)
    work.end()

    with capsys.disabled():
        print(f"\nkilled, started, guaranteed, power cut: {name}: {dict(killer.counts)}")
    assert killer.counts["power cuts"] > killer.counts["kills"]
