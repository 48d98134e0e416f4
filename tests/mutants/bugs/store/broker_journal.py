"""Planted bugs of the journal of broker state: what loses, reorders or invents changes of a standalone broker."""

import asyncio

import cluster.replica.journal.format
import cluster.replica.local_state
from cluster.replica.journal.journal import Journal
from cluster.replica.journal.segments import SegmentFiles
from cluster.replica.local_state import LocalState
from cluster.replica.record_effects import RecordEffects
from commitlog.conversion import old_config
from store.fs.forwarding import ForwardingFile
from tests.mutants.mutant import Mutant, Tests

CRASHES = (
    "tests/crashpoints/brokers/test_broker_journal.py::test_acknowledged_changes_survive_a_crash_at_every_operation"
)
STATE = "tests/unit/cluster/replica/test_local_state.py::"
FILES = "tests/unit/cluster/replica/test_local_state_files.py::"
FORMAT = "tests/unit/cluster/replica/test_journal_format.py::"


def journal_acknowledges_a_change_before_its_sync(patch):
    def durable(_self, _index):
        done = asyncio.get_running_loop().create_future()
        done.set_result(None)
        return done

    patch.setattr(Journal, "durable", durable)


class NeverSynced(ForwardingFile):
    """A file whose syncs do nothing."""

    def sync(self):
        pass


def journal_is_written_and_not_synced(patch):
    resume = SegmentFiles.resume

    def resumed(self, content):
        opened = resume(self, content)
        for segment in opened.segments:
            segment.file = NeverSynced(segment.file)
        return opened

    begin = SegmentFiles.begin

    def begun(self, next_index):
        opened = begin(self, next_index)
        opened.segments[0].file = NeverSynced(opened.segments[0].file)
        return opened

    patch.setattr(SegmentFiles, "resume", resumed)
    patch.setattr(SegmentFiles, "begin", begun)


def part_of_a_journal_batch_stays_after_a_crash(patch):
    resume = SegmentFiles.resume

    def resumed(self, content):
        for number, each in content.segments.items():
            content.segments[number] = each._replace(is_torn=False)
        return resume(self, content)

    patch.setattr(SegmentFiles, "resume", resumed)


def journal_is_cut_before_its_snapshot_is_durable(patch):
    begin = LocalState._begin_save

    def begun(self):
        self._journal.forget(self._journal.last_index)
        return begin(self)

    patch.setattr(LocalState, "_begin_save", begun)


def snapshot_is_saved_before_its_commands_are_in_the_journal(patch):
    run = LocalState._run_save

    def early(self):
        if self._to_save is not None:
            durable_index = self._journal.durable_index
            self._journal.durable_index = self._to_save[0]
            run(self)
            self._journal.durable_index = durable_index

    patch.setattr(LocalState, "_run_save", early)


def journal_is_replayed_after_all_effects(patch):
    replay = RecordEffects.replay

    def late(self, changes, end_offset):
        return replay(self, [each._replace(effects_offset=end_offset) for each in changes], end_offset)

    patch.setattr(RecordEffects, "replay", late)


def effects_of_lost_records_count_as_those_of_later_ones(patch):
    replay = RecordEffects.replay

    def forgetful(self, changes, end_offset):
        replay(self, changes, end_offset)
        return False

    patch.setattr(RecordEffects, "replay", forgetful)


def damaged_journal_is_taken_for_a_torn_one(patch):
    patch.setattr(cluster.replica.journal.format, "_is_torn", lambda *_: True)
    patch.setattr(cluster.replica.journal.format, "_has_batch", lambda *_: False)


def journal_has_the_feature_level_of_older_programs(patch):
    patch.setattr(cluster.replica.local_state, "FEATURE_LEVEL", 1)


def nodes_do_not_receive_the_journal_of_a_standalone_broker(patch):
    listed = old_config._names
    patch.setattr(
        old_config, "_names", lambda *arguments: [each for each in listed(*arguments) if "journal" not in each]
    )


MUTANTS = [
    Mutant(
        journal_acknowledges_a_change_before_its_sync,
        "acknowledged changes survive",
        Tests(STATE + "test_repeated_change_waits_for_the_first_one"),
    ),
    Mutant(
        journal_is_written_and_not_synced,
        "acknowledged changes survive",
        Tests(CRASHES + "[alone_and_together]"),
    ),
    Mutant(
        part_of_a_journal_batch_stays_after_a_crash,
        "acknowledged changes survive",
        Tests(FILES + "test_part_of_the_last_batch_is_cut"),
    ),
    Mutant(
        journal_is_cut_before_its_snapshot_is_durable,
        "acknowledged changes survive",
        Tests(CRASHES + "[segments_and_snapshots]"),
    ),
    Mutant(
        snapshot_is_saved_before_its_commands_are_in_the_journal,
        "an older snapshot and the journal are enough",
        Tests(CRASHES + "[large_batches]"),
    ),
    Mutant(
        journal_is_replayed_after_all_effects,
        "a start gives the same state",
        Tests(FILES + "test_effects_and_commands_are_applied_in_their_original_order"),
    ),
    Mutant(
        effects_of_lost_records_count_as_those_of_later_ones,
        "a start gives the same state",
        Tests(FILES + "test_state_with_effects_of_records_that_the_log_has_lost_is_saved_at_the_start"),
    ),
    Mutant(
        damaged_journal_is_taken_for_a_torn_one,
        "damage is not hidden",
        Tests(FORMAT + "test_changed_bit_of_a_written_batch_is_damage_and_not_a_torn_end"),
    ),
    Mutant(
        journal_has_the_feature_level_of_older_programs,
        "versions work together",
        Tests(FILES + "test_program_without_a_journal_refuses_the_directory"),
    ),
    Mutant(
        nodes_do_not_receive_the_journal_of_a_standalone_broker,
        "acknowledged changes survive",
        Tests(
            "tests/integration/cluster/replica/test_old_config.py::test_state_of_a_standalone_broker_reaches_all_nodes"
        ),
    ),
]
