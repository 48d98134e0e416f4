"""Planted bugs of the answers to RocketMQ's tools: each lets a tool say success, or nothing, where it must not."""

from cluster.remoting.admin import statistics
from cluster.remoting.admin.groups import AdminGroups
from cluster.remoting.consumers import offsets
from cluster.remoting.names.part import NameServerRole
from cluster.remoting.producers import sends
from tests.mutants.mutant import Mutant, Tests

ADMIN = "tests/integration/cluster/remoting/test_administration.py::"
ROUTES = "tests/unit/cluster/remoting/test_routes.py::"
SENDS = "tests/integration/cluster/remoting/test_producers.py::"


async def _nothing(*_):
    return None


def offsets_are_copied_to_a_group_that_does_not_exist(patch):
    patch.setattr(offsets, "check_group", _nothing)


def value_of_an_ordered_topic_is_taken_without_a_look_at_it(patch):
    patch.setattr(NameServerRole, "_put_value", NameServerRole._forget_topic)


def value_of_an_ordered_topic_is_said_to_be_deleted(patch):
    patch.setattr(NameServerRole, "_delete_value", NameServerRole._forget_topic)


def probes_of_tools_find_no_topic(patch):
    patch.setattr(sends, "probe_topics", lambda _: ())


def day_begins_when_its_number_is_first_asked_for(patch):
    async def mornings(self):
        if self._mornings is None:
            messages = await self.messages()
            self._mornings = 0, (messages, messages)
        return self._mornings[1]

    patch.setattr(statistics.AdminStatistics, "mornings", mornings)


def lags_of_ordered_topics_have_all_topics(patch):
    steps = AdminGroups._lag_steps
    patch.setattr(AdminGroups, "_lag_steps", lambda self, broker, **_: steps(self, broker, is_ordered=False))


MUTANTS = [
    Mutant(
        offsets_are_copied_to_a_group_that_does_not_exist,
        "a mistyped group is not created by a tool",
        Tests(ADMIN + "test_an_offset_of_a_group_that_does_not_exist_is_refused_unless_it_has_pulled"),
    ),
    Mutant(
        value_of_an_ordered_topic_is_taken_without_a_look_at_it,
        "a tool says success only for what is kept",
        Tests(ROUTES + "test_a_value_is_taken_only_if_it_is_that_of_an_ordered_topic"),
    ),
    Mutant(
        value_of_an_ordered_topic_is_said_to_be_deleted,
        "a tool says success only for what is deleted",
        Tests(ROUTES + "test_the_value_of_an_ordered_topic_stays_and_deleting_that_of_another_one_succeeds"),
    ),
    Mutant(
        probes_of_tools_find_no_topic,
        "tools can test whether a broker takes messages",
        Tests(SENDS + "test_tools_probe_a_broker_and_a_cluster_by_topics_that_their_first_message_creates"),
    ),
    Mutant(
        day_begins_when_its_number_is_first_asked_for,
        "the messages of a day do not depend on when they are asked for",
        Tests(ADMIN + "test_the_messages_of_a_day_are_those_since_midnight_whenever_they_are_first_asked_for"),
    ),
    Mutant(
        lags_of_ordered_topics_have_all_topics,
        "a tool that asks for ordered topics gets those",
        Tests(ADMIN + "test_offsets_of_a_topic_and_of_a_group_are_those_of_the_queues"),
    ),
]
