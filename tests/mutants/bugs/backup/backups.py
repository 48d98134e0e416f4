"""Planted bugs in backups, restores and recoveries."""

from dataclasses import replace

import cluster.backup.create
import cluster.backup.recovery
import cluster.backup.restore
from cluster.backup.chain import UNKNOWN_CHAIN, follow
from cluster.backup.create import BackupRun
from cluster.backup.folder import BackupFolder
from cluster.backup.log_copy import LogCopy
from cluster.backup.restore import Restore
from tests.mutants.mutant import Mutant, Tests

CREATE = "tests/unit/cluster/backup/test_create.py::"
RESTORE = "tests/unit/cluster/backup/test_restore.py::"
RECOVERY = "tests/unit/cluster/backup/test_recovery.py::"


def backup_continues_entries_of_another_history(patch):
    patch.setattr(
        cluster.backup.create, "follow", lambda end, entry: follow(replace(end, chain_crc=UNKNOWN_CHAIN), entry)
    )


def backup_ignores_a_gap_that_retention_left(patch):
    check = BackupRun._check

    def check_without_begin(self, facts, last):
        check(self, facts if last is None else facts._replace(begin_index=0), last)

    patch.setattr(BackupRun, "_check", check_without_begin)


def manifest_of_a_backup_does_not_name_the_one_before_it(patch):
    patch.setattr(BackupFolder, "digest", lambda self, manifest: "")


def restored_log_keeps_the_group_id_of_the_backup(patch):
    patch.setattr(LogCopy, "_body_of", lambda self, entry: entry.body)


def restored_nodes_with_different_ends_share_a_group_id(patch):
    patch.setattr(Restore, "_group_id", lambda self: 1 + sum(self._run_name.encode()) + len(self._node.group))


def restored_messages_are_not_limited_by_time(patch):
    patch.setattr(cluster.backup.restore, "store_time_of", lambda entry: None)


def recovered_group_continues_the_term_of_the_lost_one(patch):
    complete = cluster.backup.recovery.complete
    patch.setattr(
        cluster.backup.recovery,
        "complete",
        lambda *parts, term, **others: complete(*parts, term=term - 1, **others),
    )


MUTANTS = [
    Mutant(
        backup_continues_entries_of_another_history,
        "a backup is one history",
        Tests(CREATE + "test_log_with_other_entries_at_the_same_indexes_is_not_added"),
    ),
    Mutant(
        backup_ignores_a_gap_that_retention_left,
        "a gap is refused before anything is read",
        Tests(CREATE + "test_gap_after_retention_is_refused_with_both_indexes"),
    ),
    Mutant(
        manifest_of_a_backup_does_not_name_the_one_before_it,
        "manifests are a chain",
        Tests(CREATE + "test_next_backup_reads_only_new_entries"),
    ),
    Mutant(
        restored_log_keeps_the_group_id_of_the_backup,
        "a new member of a restored group accepts its leader",
        Tests(RESTORE + "test_restored_node_has_the_same_entries_and_is_a_voter_of_the_new_group"),
    ),
    Mutant(
        restored_nodes_with_different_ends_share_a_group_id,
        "nodes with different logs never form a group",
        Tests(RESTORE + "test_nodes_that_were_restored_differently_have_different_groups"),
    ),
    Mutant(
        restored_messages_are_not_limited_by_time,
        "a point in time has no later message",
        Tests(RESTORE + "test_log_ends_before_the_first_message_that_was_stored_later"),
    ),
    Mutant(
        recovered_group_continues_the_term_of_the_lost_one,
        "a term has one leader",
        Tests(RECOVERY + "test_recovered_node_is_the_only_voter_of_a_new_group_with_all_entries"),
    ),
]
