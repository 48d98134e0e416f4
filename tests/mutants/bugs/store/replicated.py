"""Planted bugs of the replicated broker: known faults of RocketMQ, and likely omissions."""

import cluster.client.routing.finder
import cluster.nameserver.registration_checks
import cluster.replica.bootstrap
import cluster.replica.local_base_log
import commitlog.replicated.commit_log
import commitlog.replicated.put_outcomes
import store.access.dedupe
from cluster.client.consumer.progress import QueueProgress
from cluster.nameserver.registered_brokers import RouteTable
from cluster.nameserver.registration import Registrar
from cluster.replica.local_base_log import LocalBaseLog
from cluster.replica.replicated import ReplicatedReplica
from cluster.replica.replicated_background import ReplicatedLogTasks
from cluster.replica.standalone import StandaloneReplica
from cluster.state.offsets import CommittedOffsets
from commitlog.conversion.base_log_files import BaseLogFetch
from commitlog.conversion.old_config import find_config
from commitlog.replicated.commit_log import DLedgerCommitLog
from commitlog.replicated.leadership import Leadership
from dledger.errors import ResponseCode
from dledger.types import NO_INDEX
from store.access.dedupe import DedupeWindow
from store.access.message_store import MessageStore
from store.maintenance.background import BackgroundTasks
from store.maintenance.debouncer import Debouncer
from store.maintenance.retention import StoreRetention
from store.queues.offsets import QueueOffsets
from tests.mutants.mutant import Mutant, Tests

REPLICATED = "tests/unit/commitlog/replicated/"
CONVERSION = "tests/unit/commitlog/conversion/"
LOG = REPLICATED + "test_commit_log.py::"
PUTS = REPLICATED + "test_puts.py::"
GROUP = "tests/integration/cluster/replica/"
PACE = "tests/unit/store/dispatch/test_dispatch_pace.py::"
FORGED = "tests/integration/cluster/nameserver/test_forged_registrations.py::"
HAND_OVER = "tests/integration/cluster/client/test_hand_over.py::"
NAME_SERVER = "tests/integration/cluster/nameserver/test_name_server.py::"
UNKNOWN_TOPIC = "test_put_to_a_topic_that_a_node_does_not_know_is_sent_to_the_leader_that_may_know_it"
YOUNG = "test_a_topic_is_unknown_only_by_a_name_server_that_has_run_long_enough"
SETTLED = "test_announcement_ends_when_every_reachable_name_server_has_the_change"
ROUND = GROUP + "test_queue_offsets.py::test_no_gap_and_no_reused_offset_when_leadership_rotates"
CONFIRMED = GROUP + "test_three_nodes.py::test_acknowledged_messages_are_read_on_every_node_after_a_confirmation"


def recreated_topic_has_its_old_offsets(patch):
    def remove_topic(self, name):
        if name in self._topics:
            self._removed_topics.append((name, self._topics[name]))

    patch.setattr(CommittedOffsets, "remove_topic", remove_topic)


def put_replaced_by_another_leaders_entry_fails(patch):
    """It is not appended for certain, and the producer must repeat it."""
    patch.delitem(commitlog.replicated.put_outcomes.STATUS_OF, ResponseCode.TERM_CHANGED)


def messages_are_dispatched_before_they_are_committed(patch):
    patch.setattr(DLedgerCommitLog, "commit_index", property(lambda self: self._entries.last_index))


def puts_are_accepted_before_the_leader_is_ready(patch):
    """As soon as it is elected: its queues may still lack messages that earlier leaders acknowledged."""
    patch.setattr(Leadership, "is_ready", property(lambda self: self._node.is_leader))


def leader_is_ready_before_its_no_op_is_committed(patch):
    patch.setattr(Leadership, "_is_own_committed", lambda self, term: True)


def leader_is_ready_before_its_state_is_applied(patch):
    """It answers that acknowledged topics are unknown."""
    aim = Leadership._aim

    def aim_at_dispatch_alone(self, term):
        aim(self, term)
        self._target = (*self._target[:2], NO_INDEX)

    patch.setattr(Leadership, "_aim", aim_at_dispatch_alone)


def queue_offsets_are_not_determined_again_by_a_new_leader(patch):
    patch.setattr(MessageStore, "recover_queue_offsets", lambda self: None)


def queue_offsets_of_a_late_refusal_are_lost(patch):
    patch.setattr(Leadership, "invalidate_offsets", lambda self: None)


def queue_offsets_of_a_put_that_is_refused_at_once_are_lost(patch):
    patch.setattr(QueueOffsets, "take_back", lambda self, messages, offsets: None)


def entries_are_deleted_before_the_base_log(patch):
    patch.setattr(DLedgerCommitLog, "retention_floor", lambda self, offset: self._entries.index_before(offset) + 1)


def base_log_is_deleted_before_a_snapshot_has_the_ends_of_its_queues(patch):
    """Then the end of a queue whose messages have all expired is unknown."""
    begin = StoreRetention.__init__

    def begin_without_floor(self, store, log, files, directory, config, clocks, floor=None):
        begin(self, store, log, files, directory, config, clocks)

    patch.setattr(StoreRetention, "__init__", begin_without_floor)


def records_do_not_contain_their_offset(patch):
    patch.setattr(commitlog.replicated.commit_log, "STAMP_AT", None)


def reads_are_confirmed_before_they_are_dispatched(patch):
    async def dispatched_to(self, offset):
        pass

    patch.setattr(BackgroundTasks, "dispatched_to", dispatched_to)


def reads_are_not_confirmed_at_all(patch):
    async def confirm(self, mode):
        pass

    patch.setattr(ReplicatedReplica, "confirm", confirm)


def reads_of_a_single_broker_are_not_confirmed(patch):
    async def confirm(self, mode):
        pass

    patch.setattr(StandaloneReplica, "confirm", confirm)


def waiting_readers_wait_for_the_pace_of_dispatch(patch):
    patch.setattr(Debouncer, "soon", Debouncer.later)


def confirmed_reads_wait_for_the_pace_of_dispatch(patch):
    patch.setattr(BackgroundTasks, "_is_dispatch_urgent", lambda self: self._log.is_dispatch_urgent())


def new_leader_waits_for_the_pace_of_dispatch(patch):
    patch.setattr(ReplicatedLogTasks, "_is_dispatch_urgent", lambda self: False)


def dedupe_window_is_empty_at_the_start(patch):
    def load(self, end_offset):
        self._next_offset = end_offset

    patch.setattr(DedupeWindow, "load", load)


def dedupe_window_does_not_follow_the_log(patch):
    """It contains the puts of this node, but none of the previous leader."""
    patch.setattr(DedupeWindow, "dispatched", lambda self, batch: None)


def retry_of_a_put_with_an_unknown_outcome_is_never_answered(patch):
    def known(self, key, hashed, budget):
        put = self._undispatched.get(key)
        return (
            self._stored(key, hashed, budget)
            if put is None
            else store.access.dedupe.WaitingRow(put, put.keys.index(key))
        )

    patch.setattr(DedupeWindow, "_known", known)


def fetched_file_is_used_before_it_is_durable(patch):
    class Unsynced:
        def __init__(self, file):
            self._file = file

        def __getattr__(self, name):
            return (lambda: None) if name == "sync" else getattr(self._file, name)

    end_file = BaseLogFetch._end_file
    patch.setattr(BaseLogFetch, "_end_file", lambda self, file, wanted: end_file(self, Unsynced(file), wanted))


def group_is_founded_without_unreachable_nodes(patch):
    """As if an unreachable node could have no old store."""
    rule = cluster.replica.bootstrap.decide

    def decide(own, received, _founders, *, is_joining):
        return rule(own, received, (), is_joining=is_joining)

    patch.setattr(cluster.replica.bootstrap, "decide", decide)


def base_log_that_appears_later_is_accepted(patch):
    patch.setattr(LocalBaseLog, "_check_present", lambda self, manifest: None)


def partial_configuration_after_a_crash_counts_as_complete(patch):
    def size(files, root, _node_directory):
        return sum(file.size for file in find_config(files, root))

    patch.setattr(cluster.replica.local_base_log, "own_config_size", size)


def topic_is_looked_up_before_the_leader(patch):
    """A follower answers that a topic is unknown although its leader has it."""
    patch.setattr(ReplicatedReplica, "serving_puts", lambda self: self)


def topics_are_unknown_to_name_servers_that_have_just_started(patch):
    looked_up = cluster.client.routing.finder.LookedUp

    def complete(routes, _may_lack_topics):
        return looked_up(routes, may_lack_topics=False)

    patch.setattr(cluster.client.routing.finder, "LookedUp", complete)


def creation_of_a_topic_is_answered_before_name_servers_know(patch):
    async def settled(_self, _time_limit_s):
        pass

    patch.setattr(Registrar, "settled", settled)


def name_server_accepts_a_leader_that_does_not_know_its_process(patch):
    def confirms(_known, claim, answer):
        return (answer.report.term, answer.report.leader.id) == (claim.term, claim.leader_id)

    patch.setattr(cluster.nameserver.registration_checks, "_confirms", confirms)


def name_server_accepts_heartbeats_of_another_process(patch):
    heartbeat = RouteTable.heartbeat

    def believing(self, broker, term, sequence, now_ms, life=b""):
        known = self._brokers.get(broker)
        return heartbeat(self, broker, term, sequence, now_ms, known.registration.life if known else life)

    patch.setattr(RouteTable, "heartbeat", believing)


def queue_is_handed_over_while_messages_are_processed(patch):
    patch.setattr(QueueProgress, "is_settled", True)


MUTANTS = (
    Mutant(
        queue_is_handed_over_while_messages_are_processed,
        "a change of members repeats nothing",
        Tests(HAND_OVER + "test_a_queue_moves_when_its_messages_are_processed_and_committed"),
    ),
    Mutant(
        put_replaced_by_another_leaders_entry_fails,
        "what may be repeated is repeated",
        Tests("tests/unit/cluster/protocol/test_errors.py::test_put_is_worth_trying_again_whenever_the_append_is"),
    ),
    Mutant(
        messages_are_dispatched_before_they_are_committed,
        "what is read stays",
        Tests(LOG + "test_uncommitted_messages_are_neither_read_nor_scanned"),
    ),
    Mutant(puts_are_accepted_before_the_leader_is_ready, "queue offsets are given once", Tests(ROUND)),
    Mutant(
        leader_is_ready_before_its_no_op_is_committed,
        "queue offsets are given once",
        Tests(REPLICATED + "test_leadership.py::test_no_op_of_an_older_term_does_not_count"),
    ),
    Mutant(
        leader_is_ready_before_its_state_is_applied,
        "what was acknowledged is known",
        Tests(GROUP + "test_reopening.py::test_leader_accepts_puts_only_when_it_knows_all_acknowledged_topics"),
    ),
    Mutant(queue_offsets_are_not_determined_again_by_a_new_leader, "queue offsets are given once", Tests(ROUND)),
    Mutant(
        queue_offsets_of_a_late_refusal_are_lost,
        "queues without gaps",
        Tests(PUTS + "test_queue_offsets_of_a_put_that_is_refused_late_are_determined_again_before_the_next_put"),
    ),
    Mutant(
        queue_offsets_of_a_put_that_is_refused_at_once_are_lost,
        "queues without gaps",
        Tests(PUTS + "test_put_that_is_refused_at_once_uses_no_queue_offset"),
    ),
    Mutant(
        entries_are_deleted_before_the_base_log,
        "no message is lost",
        Tests(CONVERSION + "test_divide.py"),
    ),
    Mutant(
        base_log_is_deleted_before_a_snapshot_has_the_ends_of_its_queues,
        "queue offsets are given once",
        Tests(GROUP + "test_disks.py::test_base_log_is_deleted_soon_after_a_snapshot_has_the_ends_of_its_queues"),
    ),
    Mutant(
        fetched_file_is_used_before_it_is_durable,
        "the base log is the same on all nodes",
        Tests("tests/crashpoints/test_base_log_fetch.py"),
    ),
    Mutant(
        group_is_founded_without_unreachable_nodes,
        "the base log is the same on all nodes",
        Tests(
            GROUP + "test_bootstrap.py::test_group_begins_at_0_only_after_all_founders_stated_that_they_have_nothing"
        ),
    ),
    Mutant(
        base_log_that_appears_later_is_accepted,
        "the base log is the same on all nodes",
        Tests(GROUP + "test_bootstrap.py::test_base_log_that_appears_after_the_statement_of_none_is_refused"),
    ),
    Mutant(
        records_do_not_contain_their_offset,
        "a message has its physical offset",
        Tests(LOG + "test_put_ends_when_it_is_committed_and_returns_its_position"),
    ),
    Mutant(
        reads_are_confirmed_before_they_are_dispatched,
        "reads are linearizable",
        Tests(
            GROUP + "test_queue_offsets.py"
            "::test_confirmed_read_waits_until_this_node_has_dispatched_all_acknowledged_messages"
        ),
    ),
    Mutant(
        recreated_topic_has_its_old_offsets,
        "offsets of a deleted topic are gone",
        Tests(
            "tests/unit/cluster/state/test_offsets.py::test_offsets_behave_like_a_dictionary_and_frozen_copies_stay_unchanged"
        ),
    ),
    Mutant(reads_are_not_confirmed_at_all, "reads are linearizable", Tests(CONFIRMED)),
    Mutant(
        reads_of_a_single_broker_are_not_confirmed,
        "reads are linearizable",
        Tests(PACE + "test_a_confirmed_read_sees_what_was_acknowledged_before"),
    ),
    Mutant(
        waiting_readers_wait_for_the_pace_of_dispatch,
        "a waiting reader is woken",
        Tests(PACE + "test_a_waiting_reader_is_woken_at_once_whether_it_came_before_the_put_or_after"),
    ),
    Mutant(
        confirmed_reads_wait_for_the_pace_of_dispatch,
        "a confirmed read returns",
        Tests(PACE + "test_a_confirmed_read_sees_what_was_acknowledged_before"),
    ),
    Mutant(
        new_leader_waits_for_the_pace_of_dispatch,
        "a leader soon accepts puts",
        Tests(GROUP + "test_three_nodes.py::test_dispatch_is_not_delayed_for_waiting_readers"),
    ),
    Mutant(
        dedupe_window_is_empty_at_the_start,
        "a retry is put once",
        Tests("tests/unit/store/access/test_dedupe.py::test_the_window_is_the_same_after_a_restart"),
    ),
    Mutant(
        dedupe_window_does_not_follow_the_log,
        "a retry is put once",
        Tests(GROUP + "test_queue_offsets.py::test_retry_at_another_leader_returns_the_first_position"),
    ),
    Mutant(
        retry_of_a_put_with_an_unknown_outcome_is_never_answered,
        "a retry is answered",
        Tests(PUTS + "test_retry_of_a_put_with_an_unknown_outcome_is_answered_when_it_was_dispatched_after_all"),
    ),
    Mutant(
        partial_configuration_after_a_crash_counts_as_complete,
        "the state of an old store is imported completely",
        Tests("tests/crashpoints/test_base_log_fetch.py"),
    ),
    Mutant(
        topic_is_looked_up_before_the_leader,
        "answers to clients are true",
        Tests(GROUP + "test_three_nodes.py::" + UNKNOWN_TOPIC + "[refused]"),
    ),
    Mutant(
        topics_are_unknown_to_name_servers_that_have_just_started,
        "answers to clients are true",
        Tests(NAME_SERVER + YOUNG),
    ),
    Mutant(
        creation_of_a_topic_is_answered_before_name_servers_know,
        "answers to clients are true",
        Tests(NAME_SERVER + SETTLED),
    ),
    Mutant(
        name_server_accepts_a_leader_that_does_not_know_its_process,
        "forged registrations replace no broker",
        Tests(FORGED + "test_forged_registrations_are_refused_while_an_honest_node_is_alive"),
    ),
    Mutant(
        name_server_accepts_heartbeats_of_another_process,
        "forged registrations replace no broker",
        Tests(FORGED + "test_unknown_senders_neither_renew_nor_remove_a_registration"),
    ),
)
