"""Settings of clients whose user lacks a right: they are answered, and the client is neither asked nor listed."""

import asyncio
from contextlib import asynccontextmanager

import pytest

from cluster.access.access_keys import AccessKey
from cluster.access.model import Action, Policy, resource_of
from cluster.access.users import UserSettings
from cluster.fronts.callers import Callers, FrontAudit, RightLacking, act_for
from cluster.grpc_v2 import telemetry as module
from cluster.grpc_v2.memberships import FrontMembers, MemberKey
from cluster.grpc_v2.orphan_checks import OrphanChecks
from cluster.grpc_v2.renewal_table import FrontConsumer
from cluster.grpc_v2.telemetry import Telemetry
from cluster.grpc_v2.topics import KnownTopics
from cluster.protocol.topic_config import GroupConfig, TopicConfig
from cluster.rocketmq_v2 import messaging_pb2 as mq
from cluster.state.access_commands import AddAccessKey, SetTokenKey, SetUser
from cluster.state.broker_state import BrokerState
from cluster.state.commands import SetGroup, SetTopic
from dledger.authentication.front_tokens import FrontClient
from dledger.authentication.verifier import Verifier
from tests.support.brokers.rocketmq_stub import resource
from tests.support.waiting import in_a_loop, until

ADMIN = UserSettings("admin", is_super=True, verifier=Verifier(b"s" * 16, 8_192, b"k" * 32, b"v" * 32))
RIGHTS = (Policy(resource_of("Topic:T"), Action.PUB | Action.SUB), Policy(resource_of("Group:G"), Action.SUB))
CLIENT = FrontClient("AK1", None)


class Link:
    """A leader that is asked for questions about transactions; `asked` has the topics."""

    def __init__(self):
        self.asked = []

    async def checks(self, topic, _place):
        self.asked.append(topic)
        await asyncio.Event().wait()
        yield

    async def stay(self, _beat):
        await asyncio.Event().wait()


class Streams:
    """The telemetry of a node whose only client has the key of `shop`.

    Attributes:
        state: topics, groups and users.
        members: consumers.
        link: to the leader.
        lacking: what was recorded for the audit log.
    """

    def __init__(self):
        self.state, self.link, self.lacking = BrokerState(), Link(), []
        topic = TopicConfig("T", 1, 1, attributes=(("message.type", "TRANSACTION"),))
        for command in (
            *(SetUser(each) for each in (ADMIN, UserSettings("shop"))),
            SetTokenKey(b"k" * 32),
            AddAccessKey(AccessKey("AK1", "shop", "SK123456")),
            SetTopic(topic),
            SetGroup(GroupConfig("G", is_orderly=True, retry_max_times=3), is_new=True),
        ):
            assert self.state.apply_command(command).is_done
        callers = Callers(
            lambda: self.state.access,
            lambda: 0,
            lambda: True,
            FrontAudit(lambda *_: None, lambda *record: self.lacking.append(record[-1])),
        )
        topics = KnownTopics(self.state, self.link)
        self.checks = OrphanChecks(self.link, topics, callers)
        self.members = FrontMembers(self.link, lambda: 0)
        self.telemetry = Telemetry(topics, self.checks, callers, self.members)
        self._asked = asyncio.Queue()

    def allow(self, *policies):
        assert self.state.apply_command(SetUser(UserSettings("shop", policies=policies))).is_done

    @asynccontextmanager
    async def stream(self):
        """Yield a function that sends settings and returns the answer."""
        act_for(CLIENT)

        async def asked():
            while True:
                yield mq.TelemetryCommand(settings=await self._asked.get())

        answers = self.telemetry.serve("c", asked())

        async def answer(settings):
            self._asked.put_nowait(settings)
            return await anext(answers)

        try:
            yield answer
        finally:
            await answers.aclose()
            await self.checks.stop()
            await self.members.stop()

    def subscriptions(self):
        """Return the subscriptions that are noted of the client."""
        request = self.members._subscribed.get(MemberKey(FrontConsumer("c", CLIENT), "G"))
        return None if request is None else dict(request)


def producer():
    return mq.Settings(client_type=mq.PRODUCER, publishing=mq.Publishing(topics=[resource("T")]))


def consumer(kind=mq.SIMPLE_CONSUMER):
    subscription = mq.Subscription(group=resource("G"), subscriptions=[mq.SubscriptionEntry(topic=resource("T"))])
    return mq.Settings(client_type=kind, subscription=subscription)


@pytest.fixture(autouse=True)
def _only_once(monkeypatch):
    # The second answer is the subject of another test.
    monkeypatch.setattr(module, "REPEAT_S", 1_000)


@in_a_loop
async def test_a_producer_without_the_right_to_send_is_answered_and_not_asked_about_transactions():
    streams = Streams()
    async with streams.stream() as answer:
        found = await answer(producer())
        assert (found.status.code, found.settings.publishing.max_body_size) == (mq.OK, 4 << 20)
        assert streams.lacking == ["lacks Pub on Topic:T"]
        assert not streams.checks._counts
        streams.allow(*RIGHTS)
        await answer(producer())
        await until(lambda: streams.link.asked == ["T"], "its topic has a stream of questions")
        assert len(streams.lacking) == 1
        streams.allow()
        assert (await answer(producer())).status.code == mq.OK
        assert not streams.checks._counts, "a right that was taken away ends it"


@in_a_loop
async def test_a_simple_consumer_without_rights_is_answered_and_shown_neither_its_group_nor_as_a_member():
    streams = Streams()
    async with streams.stream() as answer:
        hidden = (await answer(consumer())).settings
        assert (hidden.subscription.fifo, hidden.backoff_policy.max_attempts) == (False, 17)
        assert (streams.lacking, streams.subscriptions()) == (["lacks Sub on Group:G"], None)
        streams.allow(*RIGHTS)
        shown = (await answer(consumer())).settings
        assert (shown.subscription.fifo, shown.backoff_policy.max_attempts) == (True, 4)
        assert streams.subscriptions() == {"T": "*"}
        streams.allow(RIGHTS[1])
        assert not (await answer(consumer())).settings.subscription.fifo
        assert (streams.lacking[1:], streams.subscriptions()) == (["lacks Sub on Topic:T"], None)


@in_a_loop
async def test_a_push_consumer_without_rights_is_refused_as_no_call_of_it_could_report_that():
    streams = Streams()
    async with streams.stream() as answer:
        with pytest.raises(RightLacking, match="lacks Sub on Group:G"):
            await answer(consumer(mq.PUSH_CONSUMER))
    assert streams.subscriptions() is None
