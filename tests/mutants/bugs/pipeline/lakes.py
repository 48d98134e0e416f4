"""Planted bugs of lakes: what stores a batch twice, loses one, or deletes what is needed."""

from pipeline.lake import conversion, maintenance
from pipeline.lake.lake import Lake
from tests.mutants.mutant import Mutant, Tests

COMMITS = "tests/integration/pipeline/test_lake.py::"
ARCHIVES = "tests/integration/pipeline/test_archive.py::"
CONVERSION = "tests/integration/pipeline/test_lake_conversion.py::"


def batch_number_is_not_compared(patch):
    patch.setattr(Lake, "last_number", lambda *_: -1)


def conflict_is_decided_by_an_old_version(patch):
    patch.setattr(Lake, "_refresh", lambda _: None)


def entry_of_a_lake_is_not_synced(patch):
    patch.setattr(Lake, "_sync", lambda *_: None)


def archive_mark_is_ahead_of_the_log_of_the_table(patch):
    patch.setattr(Lake, "sync", lambda _: None)


def vacuum_takes_any_age(patch):
    patch.setattr(maintenance, "VACUUM_AGE_MIN_H", 0)


def conversion_drops_batches_that_were_not_published(patch):
    patch.setattr(conversion, "_is_in", lambda *_: True)


def conversion_forgets_the_numbers_of_queries(patch):
    adopt = Lake.adopt
    patch.setattr(Lake, "adopt", lambda self, files, _, covered: adopt(self, files, {}, covered))


MUTANTS = (
    Mutant(
        batch_number_is_not_compared,
        "each batch is stored once",
        Tests(COMMITS + "test_batch_is_stored_once_wherever_the_driver_is_killed"),
    ),
    Mutant(
        conflict_is_decided_by_an_old_version,
        "each batch is stored once",
        Tests(
            COMMITS + "test_another_driver_that_commits_the_same_batch_meanwhile_makes_this_one_leave_it_out",
        ),
    ),
    Mutant(
        entry_of_a_lake_is_not_synced,
        "a commit is durable",
        Tests(COMMITS + "test_entries_of_the_log_are_durable_when_a_commit_returns"),
    ),
    Mutant(
        archive_mark_is_ahead_of_the_log_of_the_table,
        "a broker deletes only what is archived",
        Tests(ARCHIVES + "test_the_log_of_the_table_is_durable_before_the_mark_allows_a_broker_to_delete"),
    ),
    Mutant(
        vacuum_takes_any_age,
        "vacuum deletes no file that a query is about to commit",
        Tests("tests/integration/pipeline/test_lake_commands.py::test_vacuum_refuses_an_age_below_a_day"),
    ),
    Mutant(
        conversion_drops_batches_that_were_not_published,
        "a conversion keeps every row",
        Tests(CONVERSION + "test_a_table_that_another_program_changed_keeps_the_rows_that_were_left"),
    ),
    Mutant(
        conversion_forgets_the_numbers_of_queries,
        "each batch is stored once",
        Tests(CONVERSION + "test_a_table_that_another_program_changed_keeps_the_rows_that_were_left"),
    ),
)
