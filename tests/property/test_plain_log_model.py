"""Compares a plain log with a list: appends, flushes in any order, truncations, deletions, kills, power cuts."""

from random import Random

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from commitlog.plain.commit_log import CommitLogConfig, LastExit, PlainCommitLog
from dledger.testing.disk.disk import SimDisk
from dledger.testing.disk.files import SimFiles
from dledger.testing.faults import FaultCounts, SimulatedCrash
from store.errors import Certainty, DiskFull
from store.model.message import Message

DIRECTORY = "/n0/commitlog"
FILE_SIZE = 2048


class OneLog(RuleBasedStateMachine):
    """The model is a list of (body, properties); `begin` of them have been deleted."""

    @initialize(seed=st.integers(0, 2**32 - 1), is_flush_sync=st.booleans(), has_property_crc=st.booleans())
    def start(self, seed, is_flush_sync, has_property_crc):
        self.random = Random(seed)
        self.disk = SimDisk(self.random, FaultCounts())
        self.config = CommitLogConfig(
            mapped_file_size=FILE_SIZE, is_flush_sync=is_flush_sync, has_property_crc=has_property_crc
        )
        self.now_ms = 1_700_000_000_000
        self.checkpoint = 0
        self.model = []
        self.begin = self.acknowledged = self.flushed = 0
        self.open(is_clean=False)

    def open(self, *, is_clean):
        self.tickets = []
        self.files = SimFiles(self.disk, self.random, FaultCounts())
        last_exit = LastExit(is_clean, self.checkpoint)
        self.log = PlainCommitLog.open(self.files, DIRECTORY, self.config, last_exit, lambda: self.now_ms)
        self.flushed = len(self.model)

    # ------------------------------------------------------------------------------------------------- operations

    @rule(
        sizes=st.lists(st.integers(0, 100) | st.integers(0, 1900), min_size=1, max_size=8),
        step_ms=st.sampled_from([0, 0, 0, 1, 4_000, -500]),
        keys_size=st.sampled_from([0, 0, 5, 900]),
        dies_in=st.sampled_from([0, 0, 0, 1, 2, 3]),
    )
    def append(self, sizes, step_ms, keys_size, dies_in):
        self.now_ms += step_ms
        properties = {"KEYS": "k" * keys_size} if keys_size else {}
        # A batch must fit into a file; the last one may be shortened.
        while sum(sizes) + len(sizes) * (120 + keys_size) > FILE_SIZE - 8:
            if len(sizes) == 1:
                sizes, properties = [100], {}
                break
            sizes = sizes[:-1]
        bodies = [self.random.randbytes(size) if self.random.random() < 0.8 else bytes(size) for size in sizes]
        messages = [Message("T", body, properties=properties) for body in bodies]
        begun, count = list(self.model), len(self.model) + len(bodies)

        def ended(outcome):
            if outcome.certainty is Certainty.APPENDED and self.config.is_flush_sync:
                self.flushed = max(self.flushed, count)

        self.model += [(body, properties) for body in bodies]
        if dies_in:
            self.files.crash_point.arm(dies_in)
        try:
            self.log.append(messages, range(len(messages))).when_done(ended)
        except SimulatedCrash:
            self.recover(begun)
        self.files.crash_point.disarm()

    def recover(self, at_least=()):
        """Open the log after a kill, with or without a power cut."""
        is_power_cut = self.random.random() < 0.5
        if is_power_cut:
            self.disk.cut_power()
        flushed = self.flushed
        self.open(is_clean=False)
        found = self.found()
        assert found == self.model[self.begin : self.begin + len(found)]
        assert self.begin + len(found) >= (flushed if is_power_cut else len(at_least))
        del self.model[self.begin + len(found) :]
        self.flushed = len(self.model)

    @rule(step=st.booleans())
    def begin_flush(self, step):
        ticket = self.log.begin_flush() if len(self.tickets) < 3 else None
        if ticket is not None:
            self.tickets.append(ticket)
        self.now_ms += step

    @rule(data=st.data())
    def end_flush(self, data):
        """Complete any of the pending flushes, not always the oldest."""
        if self.tickets:
            ticket = self.tickets.pop(data.draw(st.integers(0, len(self.tickets) - 1)))
            ticket.sync()
            self.log.end_flush(ticket)

    @rule()
    def flush_all(self):
        for ticket in self.tickets:
            ticket.sync()
            self.log.end_flush(ticket)
        self.tickets.clear()
        ticket = self.log.begin_flush()
        if ticket is not None:
            ticket.sync()
            self.log.end_flush(ticket)
        assert self.log.flushed_offset == self.log.written_offset
        self.flushed = len(self.model)

    @rule()
    def save_checkpoint(self):
        self.checkpoint = max(self.log.flushed_store_timestamp, 0)

    @rule()
    def make_next_file(self):
        job = self.log.prepare_next_file()
        if job is not None and self.random.random() < 0.7:
            job.make()

    @precondition(lambda self: len(self.model) > self.begin)
    @rule(data=st.data(), dies_in=st.sampled_from([0, 0, 1, 2, 3, 4]))
    def truncate(self, data, dies_in):
        self.flush_all()
        places = [offset for offset, _ in self.places()]
        number = data.draw(st.integers(0, len(places) - 1))
        self.checkpoint = self.log.peek(places[number - 1], 1).store_timestamp if number else 0
        begun = self.model[: self.begin + number]
        self.flushed = len(begun)
        if dies_in:
            self.files.crash_point.arm(dies_in)
        try:
            self.log.truncate(places[number])
            self.files.crash_point.disarm()
            self.model = begun
        except SimulatedCrash:
            self.recover(begun)

    @rule(data=st.data(), dies_in=st.sampled_from([0, 0, 1, 2, 3]))
    def delete_before(self, data, dies_in):
        self.flush_all()
        places = self.places()
        offset = data.draw(st.integers(0, self.log.written_offset + FILE_SIZE))
        if dies_in:
            self.files.crash_point.arm(dies_in)
        try:
            self.log.delete_before(offset)
            self.files.crash_point.disarm()
        except SimulatedCrash:
            if self.random.random() < 0.5:
                self.disk.cut_power()
            self.open(is_clean=False)
        self.begin += sum(at < self.log.begin_offset for at, _ in places)
        assert self.log.begin_offset <= max(offset, places[0][0] if places else 0)

    @rule()
    def fill_the_disk(self):
        self.disk.capacity_bytes = self.disk.used_bytes
        before = self.log.written_offset
        try:
            self.log.append([Message("T", bytes(1900))], [0])
        except DiskFull:
            assert self.log.written_offset == before
        else:
            self.model.append((bytes(1900), {}))
        self.disk.capacity_bytes = 1 << 60

    @rule()
    def close_and_open(self):
        self.log.close()
        self.checkpoint = max(self.log.flushed_store_timestamp, 0)
        self.open(is_clean=True)
        assert self.log.recovery_notes == ()

    @rule()
    def kill(self):
        self.log.abandon("killed")
        self.open(is_clean=False)
        assert len(self.found()) == len(self.model) - self.begin

    @rule()
    def cut_power(self):
        self.log.abandon("the power was cut")
        flushed = self.flushed
        self.disk.cut_power()
        self.open(is_clean=False)
        found = self.found()
        assert found == self.model[self.begin : self.begin + len(found)]
        assert self.begin + len(found) >= flushed
        del self.model[self.begin + len(found) :]
        self.flushed = len(self.model)

    # --------------------------------------------------------------------------------------------------- invariants

    def places(self):
        """Return offset and size of each readable record."""
        offset, found = self.log.begin_offset, []
        while (batch := self.log.scan(offset, 1 << 20, is_body_checked=True)) is not None:
            assert batch.skipped == ()
            found += zip(batch.physical_offsets.tolist(), batch.sizes.tolist(), strict=True)
            offset = batch.next_offset
        return found

    def found(self):
        records = [self.log.read(*place) for place in self.places()]
        return [(each.body, {k: v for k, v in each.properties.items() if k != "__CRC32#"}) for each in records]

    @invariant()
    def log_holds_the_model(self):
        if not hasattr(self, "log"):
            return
        found = self.found()
        assert found == self.model[self.begin : self.begin + len(found)]
        assert self.begin + len(found) >= self.flushed
        if not self.config.is_flush_sync or self.log.flushed_offset == self.log.written_offset:
            assert self.begin + len(found) == len(self.model)


@pytest.mark.slow
def test_log_holds_what_the_model_holds():
    run_state_machine_as_test(
        OneLog,
        settings=settings(
            max_examples=150,
            stateful_step_count=30,
            deadline=None,
            derandomize=True,
            suppress_health_check=list(HealthCheck),
        ),
    )
