"""Planted bugs of consumers of the remoting protocol: what loops, skips messages, or disturbs other members; pops."""

from dataclasses import replace

from cluster.remoting import clients
from cluster.remoting.command import RemotingCode
from cluster.remoting.consumers import commits, pulls, queue_calls
from cluster.remoting.consumers.commits import PendingCommits
from cluster.remoting.consumers.offsets import Offsets
from cluster.remoting.consumers.resets import OffsetResets
from cluster.remoting.names import part
from cluster.remoting.names.pull_nodes import PullNodes
from cluster.remoting.pop import acked, acks, answers, records
from tests.mutants.mutant import Mutant, Tests

TABLE = "tests/unit/cluster/remoting/test_clients.py::"
ROUTES = "tests/unit/cluster/remoting/test_routes.py::"
HELD = "tests/unit/cluster/remoting/test_held_pulls.py::"
NODE = "tests/integration/cluster/api/remoting/test_consumers.py::"
FORMS = "tests/unit/cluster/remoting/pop/test_pop_forms.py::"
COMMITS = "tests/unit/cluster/remoting/test_commits.py::"
POPS = "tests/integration/cluster/api/remoting/test_pop_consumers.py::"


def every_heartbeat_changes_its_group(patch):
    beat = clients.ClientTable.beat

    def changing(self, heartbeat, *rest):
        found = beat(self, heartbeat, *rest)
        return replace(found, changed_groups=tuple(each.group for each in heartbeat.consumers))

    patch.setattr(clients.ClientTable, "beat", changing)


def newer_connection_ends_with_the_older_one(patch):
    patch.setattr(clients.ClientTable, "closed", lambda self, _: self._remove_where(lambda member: True))


def pull_after_the_end_is_repeated_at_once(patch):
    answer = pulls._answer

    def again(offset, found, next_node):
        response = answer(offset, found, next_node)
        is_empty = response.code == RemotingCode.PULL_NOT_FOUND
        return replace(response, code=RemotingCode.PULL_RETRY_IMMEDIATELY) if is_empty else response

    patch.setattr(pulls, "_answer", again)


def young_queue_is_begun_at_its_end(patch):
    async def never(self, topic, queue_id):
        return False

    patch.setattr(Offsets, "_is_young", never)


def lock_is_named_by_the_broker(patch):
    queues_of = queue_calls.queues_of
    patch.setattr(
        queue_calls,
        "queues_of",
        lambda given, count_max: [{**each, "brokerName": "b"} for each in queues_of(given, count_max)],
    )


def route_names_the_leader(patch):
    patch.setattr(part, "chosen", lambda ids, leader, _, __: sorted(ids, key=lambda each: (each != leader, each)))


def route_keeps_a_node_that_has_ended(patch):
    chosen = part.chosen
    patch.setattr(part, "chosen", lambda ids, leader, _, last: chosen(ids, leader, lambda each: True, last))


def route_goes_back_to_a_node_that_returns(patch):
    chosen = part.chosen
    patch.setattr(part, "chosen", lambda ids, leader, is_reachable, _: chosen(ids, leader, is_reachable, ""))


def node_that_stops_keeps_its_consumers(patch):
    next_id = PullNodes.next_id
    patch.setattr(PullNodes, "next_id", lambda self, *, is_stopping: next_id(self, is_stopping=False))


def held_pull_is_not_notified(patch):
    patch.setattr(pulls, "WAITERS_MAX", 0)


def handle_is_only_in_the_fields(patch):
    popped = records.popped_record

    def without(record, handle, attempt):
        return popped(record, "0" * 40_000, attempt)[0], True

    patch.setattr(answers, "popped_record", without)


def redeliveries_are_those_of_the_log(patch):
    popped = records.popped_record
    patch.setattr(answers, "popped_record", lambda record, handle, attempt: popped(record, handle, 1))


def bits_are_read_from_the_other_end(patch):
    class Reversed:
        from_bytes = staticmethod(lambda data, _: int.from_bytes(data, "big"))

    patch.setattr(acked, "int", Reversed, raising=False)


def retry_topic_is_taken_for_a_topic_of_its_own(patch):
    patch.setattr(acked, "own_topic", lambda group, topic, handle: topic)
    patch.setattr(acks, "own_topic", lambda group, topic, handle: topic)


def stale_acknowledgement_succeeds(patch):
    patch.setattr(acks, "_check", lambda outcomes, topic, group: None)


def commit_of_before_a_reset_is_stored(patch):
    patch.setattr(OffsetResets, "is_behind", lambda self, group, topic, queue_id: False)


def offset_is_read_at_once(patch):
    async def at_once(self, group, topic="", queue_id=None):
        return

    patch.setattr(PendingCommits, "settle", at_once)


def commit_ends_with_its_connection(patch):
    patch.setattr(commits.asyncio, "shield", lambda task: task)


def pull_below_the_first_offset_reads_from_it(patch):
    patch.setattr(pulls, "_moved_answer", lambda offset, found, _remark: pulls._answer(offset, found))


MUTANTS = [
    Mutant(
        pull_below_the_first_offset_reads_from_it,
        "a consumer learns where its queue begins before it gets messages",
        Tests(NODE + "test_a_pull_below_the_first_offset_is_answered_at_once_with_the_first_one"),
    ),
    Mutant(
        offset_is_read_at_once,
        "the next reader of a queue gets no message that was processed and committed",
        Tests(COMMITS + "test_a_question_for_an_offset_does_not_overtake_a_commit_even_if_its_connection_has_ended"),
    ),
    Mutant(
        commit_ends_with_its_connection,
        "the last commits of a consumer are stored, though it ends at once",
        Tests(COMMITS + "test_a_question_for_an_offset_does_not_overtake_a_commit_even_if_its_connection_has_ended"),
    ),
    Mutant(
        route_names_the_leader,
        "the end of a leader costs clients no new route",
        Tests(ROUTES + "test_the_end_of_the_leader_ends_no_address_to_which_a_client_sends"),
    ),
    Mutant(
        route_keeps_a_node_that_has_ended,
        "clients are not sent to a node that has ended",
        Tests(ROUTES + "test_a_route_keeps_its_bytes_until_its_first_node_leads_or_is_gone"),
    ),
    Mutant(
        route_goes_back_to_a_node_that_returns,
        "a node that returns knows no consumers yet, so it does not get its place back",
        Tests(ROUTES + "test_a_route_keeps_its_bytes_until_its_first_node_leads_or_is_gone"),
    ),
    Mutant(
        every_heartbeat_changes_its_group,
        "unchanged heartbeats balance no queues",
        Tests(TABLE + "test_only_a_new_member_or_other_topics_change_a_group"),
    ),
    Mutant(
        newer_connection_ends_with_the_older_one,
        "a client that has connected again stays in its groups",
        Tests(TABLE + "test_a_closed_connection_removes_its_clients_unless_they_have_a_newer_one"),
    ),
    Mutant(
        pull_after_the_end_is_repeated_at_once,
        "a consumer makes no busy loop",
        Tests(NODE + "test_a_pull_returns_the_stored_records_unchanged_and_says_where_to_continue"),
    ),
    Mutant(
        young_queue_is_begun_at_its_end,
        "a new group misses no message of a new queue",
        Tests(NODE + "test_offsets_of_groups_and_queues"),
    ),
    Mutant(
        lock_is_named_by_the_broker,
        "clients recognise the queues that they have locked",
        Tests(NODE + "test_a_queue_is_locked_by_one_client_and_named_as_it_was_asked_for"),
    ),
    Mutant(
        node_that_stops_keeps_its_consumers,
        "consumers leave a node that stops",
        Tests(ROUTES + "test_a_follower_keeps_its_consumers_until_it_stops_and_a_leader_sends_them_away"),
    ),
    Mutant(
        held_pull_is_not_notified,
        "a held pull is answered when its message comes",
        Tests(HELD + "test_pulls_held_at_a_node_are_answered_when_it_has_a_message_or_stops_and_do_not_look_before"),
    ),
    Mutant(
        handle_is_only_in_the_fields,
        "a client has the handle of each message, whatever leases an answer has",
        Tests(FORMS + "test_a_message_whose_properties_are_full_has_the_lease_of_the_fields"),
    ),
    Mutant(
        redeliveries_are_those_of_the_log,
        "a consumer sees how often a message was given before",
        Tests(FORMS + "test_the_forms_of_offsets_are_those_of_rocketmq"),
    ),
    Mutant(
        bits_are_read_from_the_other_end,
        "a batch acknowledges the messages that the client means",
        Tests(FORMS + "test_a_batch_has_a_handle_for_each_bit_once"),
    ),
    Mutant(
        retry_topic_is_taken_for_a_topic_of_its_own,
        "the leader decides about the topic of a group, whatever the client calls it",
        Tests(FORMS + "test_a_batch_has_a_handle_for_each_bit_once"),
    ),
    Mutant(
        stale_acknowledgement_succeeds,
        "a consumer learns that another one has got its message",
        Tests(POPS + "test_a_message_comes_again_after_its_invisible_time_and_its_first_handle_is_worth_nothing_then"),
    ),
    Mutant(
        commit_of_before_a_reset_is_stored,
        "an offset that was set back stays there",
        Tests(NODE + "test_members_follow_a_reset_with_their_next_pull_and_what_they_commit_before_is_dropped"),
    ),
]
