"""Planted bugs of the readable end of a log: what lets a batch or an archive leave out its last messages silently."""

import pipeline.archive.archive
import pipeline.log.stores
from commitlog.offline.durable_part import DurablePart
from pipeline.archive.coverage import Coverage
from tests.mutants.mutant import Mutant, Tests

LAST = "tests/unit/pipeline/reading/test_last_entries.py::"
LOST = LAST + "test_a_lost_last_file_is_an_error_by_each_evidence_alone"


def units_after_the_end_of_a_log_are_ignored(patch):
    patch.setattr(pipeline.log.stores, "lost_of_queues", lambda *_: None)


def index_units_after_the_end_of_a_log_are_ignored(patch):
    patch.setattr(pipeline.log.stores, "take_indexed", lambda *_: None)


def seal_of_a_plain_log_is_not_compared_with_its_end(patch):
    patch.setattr(pipeline.log.stores, "durable_part", lambda *_, **__: DurablePart(""))


def archive_counts_no_entries(patch):
    finish = Coverage.finish

    def finished(self):
        self._entries = self._part.end_index - self._part.begin_index
        finish(self)

    patch.setattr(Coverage, "finish", finished)
    patch.setattr(pipeline.archive.archive, "check_entries", lambda *_: None)


MUTANTS = (
    Mutant(units_after_the_end_of_a_log_are_ignored, "no message is left out", Tests(LOST)),
    Mutant(index_units_after_the_end_of_a_log_are_ignored, "no message is left out", Tests(LOST)),
    Mutant(seal_of_a_plain_log_is_not_compared_with_its_end, "no message is left out", Tests(LOST)),
    Mutant(
        archive_counts_no_entries,
        "archived is complete",
        Tests(LAST + "test_an_archive_counts_entries_by_headers_before_it_writes_a_mark"),
    ),
)
