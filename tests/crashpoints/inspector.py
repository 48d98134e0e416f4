"""Opens every possible disk after a crash, and compares its content with the guarantees."""

from functools import partial

from commitlog.record.system_records import MEMBERSHIP_CHANNEL
from dledger.entries.format.codec import RAW_ENTRY_CODEC
from dledger.entries.format.entry import ENTRY_CONFIG_CHANGE, ENTRY_NORMAL
from dledger.entries.membership_file import MembershipFile, drop_unheld
from dledger.entries.store import EntryStore
from dledger.storage.hard_state import HardStateFile
from dledger.types import MembershipEntry
from tests.crashpoints.crashes import IS_LONG, Crashes
from tests.crashpoints.workload import CONFIG, DIRECTORY, Log, files_on, unstamped

# One in this many images is also crashed within its recovery.
SECOND_CRASH_STRIDE = 5 if IS_LONG else 17


class Inspector:
    """Opens every image and compares it with the guarantees."""

    def __init__(self, codec=RAW_ENTRY_CODEC):
        self.codec = codec
        self.crashes = Crashes(SECOND_CRASH_STRIDE)
        self.counts = self.crashes.counts

    def see(self, place, disk, guarantees):
        self.crashes.see(place, disk, partial(self.open, guarantees), owed=guarantees)

    def open(self, guarantees, disk, before_operation):
        files = files_on(disk, before_operation)
        store = EntryStore.open(files, DIRECTORY, CONFIG, self.codec, self.crashes.give_up)
        found = []
        for index in range(store.begin_index, store.last_index + 1):
            entry = store.get(index)
            assert store.index_at_position(store.position_of(index)) == index
            found.append((entry.term, (entry.magic, entry.channel), unstamped(entry)))
        log = Log(store.begin_index, store.begin_prev_term, tuple(found), store.durable_index)
        expected = [(log.begin_index, log.durable_index, len(log.entries)) for log in guarantees.logs]
        assert any(guaranteed.may_leave(log) for guaranteed in guarantees.logs), (
            f"{log.begin_index}+{len(found)}: {expected}"
        )
        assert store.durable_index == store.last_index
        newest = guarantees.logs[0]
        if guarantees.aside is not None and newest.begin_index == log.begin_index:
            self._check_aside(files, guarantees.aside)
        hard_state = HardStateFile.open(files, DIRECTORY).load()
        assert hard_state in guarantees.hard_states, (hard_state, guarantees.hard_states)
        self._check_memberships(MembershipFile.open(files, DIRECTORY).load(), store, log, guarantees)
        self.counts["entries"] += len(found)
        self.counts["repairs"] += bool(store.recovery_notes)

    def _check_aside(self, files, guaranteed):
        """Check that the log that a reset replaced can be opened."""
        store = EntryStore.open(files, f"{DIRECTORY}/aside", CONFIG, self.codec, self.crashes.give_up)
        found = [store.get(index) for index in range(store.begin_index, store.last_index + 1)]
        entries = tuple((entry.term, (entry.magic, entry.channel), unstamped(entry)) for entry in found)
        assert guaranteed.may_leave(Log(store.begin_index, store.begin_prev_term, entries, store.durable_index))
        self.counts["logs set aside"] += 1

    def _check_memberships(self, saved, store, log, guarantees):
        """Check that the memberships in the file, restricted to entries of the log, equal those in the log."""
        assert saved in guarantees.memberships
        if saved is None:
            return
        held = drop_unheld(saved, store)
        memberships = [
            MembershipEntry(log.begin_index + number, self.codec.decode(*kind, body))
            for number, (_, kind, body) in enumerate(log.entries)
            if kind in ((ENTRY_CONFIG_CHANGE, 0), (ENTRY_NORMAL, MEMBERSHIP_CHANNEL))
        ]
        assert [entry for entry in held if entry.index >= log.begin_index] == memberships
        assert held[0].index < log.begin_index
