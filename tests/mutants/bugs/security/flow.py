"""Planted bugs of quotas of topics and groups, of limits of creations and readers."""

from contextlib import contextmanager

from cluster.access.token_buckets import TokenBuckets
from cluster.api.read_calls import ReadCalls
from cluster.broker.creations import Creations
from cluster.broker.flow_quotas import FlowQuotas
from cluster.broker.reader_bounds import ReaderBounds
from cluster.client.producer.sender import PutQueue
from dledger.errors import OverQuota
from tests.mutants.mutant import Mutant, Tests

FLOW = "tests/unit/cluster/broker/test_flow_quotas.py::"
FLOW_OF_BROKER = "tests/integration/cluster/api/bounds/test_flow_quotas.py::"
CREATIONS = "tests/unit/cluster/broker/test_creations.py::"
READERS = "tests/unit/cluster/broker/test_reader_bounds.py::"
LIMITS = "tests/integration/cluster/api/bounds/test_limits_of_brokers.py::"
SENDER = "tests/unit/cluster/client/test_sender.py::"
BOUNDED = "one topic or group takes a bounded share"


def refused_puts_use_the_quota_of_their_topic(patch):
    check = FlowQuotas.check_put

    def check_and_charge(self, topic):
        check(self, topic)
        self.charge_put(topic, 1, lambda: 1)

    patch.setattr(FlowQuotas, "check_put", check_and_charge)


def debt_of_a_topic_grows_without_a_bound(patch):
    patch.setattr("cluster.broker.flow_quotas.STREAM_WAIT_S_MAX", 1e9)


def group_does_not_pay_for_what_it_reads(patch):
    charge = FlowQuotas.charge_get
    patch.setattr(FlowQuotas, "charge_get", lambda self, topic, _group, *amounts: charge(self, topic, None, *amounts))


def streams_are_charged_after_they_waited(patch):
    def charge(self, topic, group, count, size_bytes):
        try:
            self.check_get(topic, group)
        except OverQuota as error:
            return error.wait_s
        return original(self, topic, group, count, size_bytes)

    original = FlowQuotas.charge_get
    patch.setattr(FlowQuotas, "charge_get", charge)


def read_that_waited_is_answered_whatever_the_quota(patch):
    check = ReadCalls._check_flow

    def check_once(self, want):
        if not self._core.replica.store.waiters_count and not self._core.metrics.counts.get_messages:
            check(self, want)

    patch.setattr(ReadCalls, "_check_flow", check_once)


def stream_that_waited_is_served_whatever_became_of_its_group(patch):
    patch.setattr(ReadCalls, "_check_still", lambda self, request: None)


def creation_in_progress_does_not_count(patch):
    @contextmanager
    def admitted(self, command, state, caller):
        with original(self, command, state, caller):
            for names in self._pending.values():
                names.clear()
            yield
            for names, each in zip(self._pending.values(), ("topic", "group"), strict=True):
                names.add(getattr(getattr(command, each, None), "name", ""))

    original = Creations.admitted
    patch.setattr(Creations, "admitted", admitted)


def minute_of_creations_is_a_second(patch):
    init = TokenBuckets.__init__
    patch.setattr(TokenBuckets, "__init__", lambda self, now_s, _burst_s=1.0: init(self, now_s))


def readers_that_have_gone_stay_counted(patch):
    patch.setattr(ReaderBounds, "give_back", lambda self, readers: None)


def waits_of_a_topic_count_for_its_group_alone(patch):
    take = ReaderBounds.take_waits
    patch.setattr(ReaderBounds, "take_waits", lambda self, _topic, group, amount: take(self, "", group, amount))


def topic_above_its_quota_delays_other_topics(patch):
    patch.setattr(PutQueue, "_hold", lambda self, topic, failure: False)


MUTANTS = (
    Mutant(
        refused_puts_use_the_quota_of_their_topic,
        BOUNDED,
        Tests(FLOW_OF_BROKER + "test_put_that_is_refused_for_another_reason_uses_no_quota"),
    ),
    Mutant(
        debt_of_a_topic_grows_without_a_bound,
        BOUNDED,
        Tests(
            FLOW + "test_debt_is_bounded_because_a_stream_with_too_long_a_wait_is_refused_and_charged_nothing",
        ),
    ),
    Mutant(
        group_does_not_pay_for_what_it_reads,
        BOUNDED,
        Tests(FLOW_OF_BROKER + "test_read_above_the_quota_of_its_group_is_refused_and_other_groups_are_served"),
    ),
    Mutant(
        streams_are_charged_after_they_waited,
        BOUNDED,
        Tests(FLOW + "test_streams_that_wait_at_the_same_time_are_served_one_after_the_other"),
    ),
    Mutant(
        read_that_waited_is_answered_whatever_the_quota,
        BOUNDED,
        Tests(FLOW_OF_BROKER + "test_many_reads_that_wait_for_one_message_get_it_as_fast_as_the_quota_allows"),
    ),
    Mutant(
        stream_that_waited_is_served_whatever_became_of_its_group,
        BOUNDED,
        Tests(FLOW_OF_BROKER + "test_stream_whose_group_is_disabled_while_it_waits_ends"),
    ),
    Mutant(
        creation_in_progress_does_not_count,
        BOUNDED,
        Tests(CREATIONS + "test_topics_that_are_being_created_count_in_the_total"),
    ),
    Mutant(
        minute_of_creations_is_a_second,
        BOUNDED,
        Tests(CREATIONS + "test_caller_creates_a_minute_of_its_rate_at_once_and_then_as_fast_as_the_rate"),
    ),
    Mutant(
        readers_that_have_gone_stay_counted,
        BOUNDED,
        Tests(LIMITS + "test_group_with_its_streams_and_waits_is_refused_and_other_groups_are_served"),
    ),
    Mutant(
        waits_of_a_topic_count_for_its_group_alone,
        BOUNDED,
        Tests(LIMITS + "test_waits_of_a_topic_are_bounded_whatever_their_groups_and_other_topics_are_served"),
    ),
    Mutant(
        topic_above_its_quota_delays_other_topics,
        BOUNDED,
        Tests(SENDER + "test_topic_above_its_quota_waits_and_the_others_of_the_broker_are_sent_meanwhile"),
    ),
)
