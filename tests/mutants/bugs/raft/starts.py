"""Planted bugs of starts, of the log that was set aside, and of the bounds for non-members."""

import dledger.node.files
import dledger.peer.transport
import dledger.peer.unverified_peers
from dledger.entries.aside import Aside
from dledger.entries.membership_file import MembershipFile
from dledger.node.persistent_state import SavedMemberships
from dledger.storage.hard_state import HardStateFile
from dledger.testing.disk.files import SimFiles
from store.fs.linux.files import OsFiles
from tests.mutants.mutant import Mutant, Tests

LOST_VOTE = "tests/unit/dledger/node/test_lost_vote.py::"
ASIDE = "tests/unit/dledger/entries/test_aside.py::"
UNVERIFIED = "tests/unit/dledger/peer/test_unverified_peers.py::"
NON_MEMBERS = "tests/integration/dledger/peer/test_non_members.py::"
AFTER_A_KILL = (
    "tests/crashpoints/test_guarantees_after_a_kill.py::"
    "test_state_that_a_start_finds_and_guarantees_survives_a_power_cut"
)
exists, remove = OsFiles.exists, OsFiles.remove


# ------------------------------------------------------------------------------------------- the vote taken back


def vote_is_restored_without_permission_of_an_operator(patch):
    patch.setattr(OsFiles, "exists", lambda self, path: "restore-vote" in path or exists(self, path))
    patch.setattr(OsFiles, "remove", lambda self, path: None if "restore-vote" in path else remove(self, path))


def permission_for_the_vote_is_kept_permanently(patch):
    patch.setattr(OsFiles, "remove", lambda self, path: None if "restore-vote" in path else remove(self, path))


def permission_for_the_vote_is_valid_for_any_loss(patch):
    """The name of the file is not compared with the incarnation that lost its vote."""

    def names_any(self, path):
        directory, _, name = path.rpartition("/")
        if not name.startswith("restore-vote"):
            return exists(self, path)
        return any(other.startswith("restore-vote") for other in self.list_directory(directory))

    patch.setattr(OsFiles, "exists", names_any)
    patch.setattr(OsFiles, "remove", lambda self, path: remove(self, path) if exists(self, path) else None)


def permission_for_the_vote_is_removed_before_the_vote_is_saved(patch):
    """A crash in between loses the permission, and the node still has no vote."""

    def take(self, path):
        is_there = exists(self, path)
        if is_there and "restore-vote" in path:
            remove(self, path)
        return is_there

    patch.setattr(OsFiles, "exists", take)
    patch.setattr(OsFiles, "remove", lambda self, path: remove(self, path) if exists(self, path) else None)


# ------------------------------------------------------------------------------------------- what a start makes durable


def _without_syncs_of_directories(patch, owner, method):
    original = getattr(owner, method)

    def call(*arguments, **others):
        with patch.context() as inner:
            inner.setattr(SimFiles, "sync_directory", lambda self, path: None)
            return original(*arguments, **others)

    patch.setattr(owner, method, call)


def rename_of_a_killed_process_is_not_made_durable(patch):
    patch.setattr(Aside, "sync_renames", lambda self: None)


def membership_of_a_killed_process_is_not_made_durable(patch):
    _without_syncs_of_directories(patch, MembershipFile, "open")


def vote_of_a_killed_process_is_not_made_durable(patch):
    _without_syncs_of_directories(patch, HardStateFile, "open")


def begin_that_another_program_set_is_not_recorded(patch):
    patch.setattr(dledger.node.files, "note_beginning", lambda head_file, found: None)


# ------------------------------------------------------------------------------------------- the log set aside


def old_log_is_deleted_before_its_record(patch):
    """A crash in between leaves a log without its end that looks complete."""
    original = Aside._delete_one

    def delete_one(self, *, is_waiting):
        has_record, record, self._has_record = self._has_record, self.record, False
        original(self, is_waiting=is_waiting)
        if has_record and self._names:
            self._has_record, self.record = has_record, record
            self._files.remove(self._record_path)
            self._files.sync_directory(self._path)
            self._has_record, self.record = False, None

    patch.setattr(Aside, "_delete_one", delete_one)


def old_log_is_deleted_from_its_start(patch):
    """The remaining files must be a valid log: its first files, not its last."""
    original = Aside._delete_one

    def delete_one(self, *, is_waiting):
        self._names.reverse()
        original(self, is_waiting=is_waiting)
        self._names.reverse()

    patch.setattr(Aside, "_delete_one", delete_one)


# ------------------------------------------------------------------------------------------- memberships


def memberships_that_the_log_lacks_stay_in_the_file(patch):
    original = SavedMemberships.load

    def load(self, store, hard_state, settings):
        entries = self._file.load()
        settled = original(self, store, hard_state, settings)
        if entries is not None:
            self._file.save(entries)
        return settled

    patch.setattr(SavedMemberships, "load", load)


# ------------------------------------------------------------------------------------------- no members


def non_members_are_not_bounded(patch):
    patch.setattr(dledger.peer.transport.PeerTransport, "_has_place_for", lambda self, peer_id: True)


def non_members_of_one_address_are_not_bounded(patch):
    patch.setattr(dledger.peer.transport.PeerTransport, "_make_place_at", lambda self, host: None)


def connections_that_have_not_greeted_are_not_bounded(patch):
    patch.setattr(dledger.peer.unverified_peers.UnverifiedPeers.__init__, "__defaults__", (1 << 30, 1 << 30))


def newest_unverified_peer_is_closed_instead_of_the_oldest(patch):
    original = dledger.peer.unverified_peers.UnverifiedPeers._end

    def end(self, _connection, reason):
        original(self, next(reversed(self._hosts)), reason)

    patch.setattr(dledger.peer.unverified_peers.UnverifiedPeers, "_end", end)


VOTE = "one vote a term"
KILLED = "what a start finds is durable before it is acknowledged"
SET_ASIDE = "a reset loses nothing before the new log has it"
MUTANTS = (
    Mutant(
        memberships_that_the_log_lacks_stay_in_the_file,
        "what is in force as committed was committed",
        Tests(
            "tests/unit/dledger/entries/test_membership.py::"
            "test_membership_that_a_crash_kept_from_the_log_is_not_in_force_once_the_head_is_deleted"
        ),
    ),
    Mutant(
        vote_is_restored_without_permission_of_an_operator,
        VOTE,
        Tests(LOST_VOTE + "test_permission_for_another_incarnation_restores_nothing"),
    ),
    Mutant(
        permission_for_the_vote_is_kept_permanently,
        VOTE,
        Tests(LOST_VOTE + "test_permission_of_an_operator_restores_the_vote_once"),
    ),
    Mutant(
        permission_for_the_vote_is_valid_for_any_loss,
        VOTE,
        Tests(LOST_VOTE + "test_permission_for_another_incarnation_restores_nothing"),
    ),
    Mutant(
        permission_for_the_vote_is_removed_before_the_vote_is_saved,
        "a permission is used once",
        Tests(LOST_VOTE + "test_permission_survives_a_crash_before_the_vote_is_saved"),
    ),
    Mutant(rename_of_a_killed_process_is_not_made_durable, KILLED, Tests(f"{AFTER_A_KILL}[restart_log]")),
    Mutant(membership_of_a_killed_process_is_not_made_durable, KILLED, Tests(f"{AFTER_A_KILL}[change_members]")),
    Mutant(vote_of_a_killed_process_is_not_made_durable, KILLED, Tests(f"{AFTER_A_KILL}[vote_and_lead]")),
    Mutant(
        begin_that_another_program_set_is_not_recorded,
        "a log that lost its start is detected",
        Tests("tests/compat/test_java_directories.py"),
    ),
    Mutant(
        old_log_is_deleted_before_its_record,
        SET_ASIDE,
        Tests(ASIDE + "test_deletion_that_crashes_anywhere_is_completed_later"),
    ),
    Mutant(
        old_log_is_deleted_from_its_start,
        "what is left of an old log can be opened",
        Tests(ASIDE + "test_deletion_that_a_crash_interrupted_continues"),
    ),
    Mutant(
        non_members_are_not_bounded,
        "bounded memory",
        Tests(NON_MEMBERS + "test_non_members_beyond_the_bound_are_refused_with_the_reason"),
    ),
    Mutant(
        non_members_of_one_address_are_not_bounded,
        "unverified peers block no member",
        Tests(NON_MEMBERS + "test_one_address_cannot_exhaust_the_bound_of_non_members"),
    ),
    Mutant(
        connections_that_have_not_greeted_are_not_bounded,
        "bounded memory",
        Tests(UNVERIFIED + "test_the_oldest_connections_are_closed_when_there_are_too_many"),
    ),
    Mutant(
        newest_unverified_peer_is_closed_instead_of_the_oldest,
        "unverified peers block no member",
        Tests(UNVERIFIED + "test_the_oldest_connections_are_closed_when_there_are_too_many"),
    ),
)
