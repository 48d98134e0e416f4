"""Sends, batches, transactions and recalls of the remoting protocol, by the leader link to a real broker."""

import asyncio
import dataclasses
import struct
import zlib
from types import SimpleNamespace

import pytest

from cluster.delivery.transactions.checks import CheckSettings
from cluster.fronts.leader_link import LeaderLink
from cluster.protocol.errors import Reason, RequestFailed
from cluster.protocol.topic_config import GroupConfig
from cluster.remoting.command import Language, Rejected, RemotingCode, Request
from cluster.remoting.front import Front as HandlerTable
from cluster.remoting.producers import sends, transactions
from cluster.remoting.producers.part import Producers
from cluster.state.commands import SetGroup
from commitlog.record.record import decode
from dledger.security.settings import PLAIN
from tests.support.brokers.front_callers import any_callers, callers_of
from tests.support.brokers.thread import running_broker
from tests.support.waiting import PATIENCE_S

BASE = {"a": "PG", "c": "TBW102", "d": "4", "e": "1", "f": "0", "g": "1795358939437", "h": "7"}


class Connection:
    address = "10.0.0.9:4000"
    peer = "ipv4:10.0.0.9:4000"
    caller = None

    def __init__(self):
        self.pushed = asyncio.Queue()
        self.connection = self

    def push(self, request):
        self.pushed.put_nowait(request)


class Table:
    def __init__(self):
        self.members = {}

    def producer_groups(self):
        return sorted(self.members)

    def producers_of(self, group):
        return self.members.get(group, [])

    def client(self, _client_id):
        return None


class Front:
    """The part for producers, beside a real broker."""

    def __init__(self, broker):
        self.broker = broker
        self.table = Table()
        self._connection = None

    def run(self, steps):
        async def main():
            link = LeaderLink(lambda: str(self.broker.address), PLAIN)
            core = self.broker.broker.core
            part = Producers(core, link, self.table, callers_of(core))
            self._connection = Connection()
            self._handlers = part.handlers()
            try:
                async with asyncio.timeout(PATIENCE_S):
                    return await steps(self)
            finally:
                await part.stop()
                await link.close()

        return asyncio.run(main())

    async def call(self, code, fields, body=b"", *, is_oneway=False):
        request = Request(code, fields, body, language=Language.JAVA, version=409, is_oneway=is_oneway)
        return await self._handlers[code](request, self._connection)

    async def send(self, topic, body, properties="", code=310, **fields):
        return await self.call(code, {**BASE, "b": topic, "i": properties, **fields}, body)


@pytest.fixture(scope="module")
def front(tmp_path_factory):
    with running_broker(tmp_path_factory.mktemp("remoting"), "T", "B", "C", "D", "H") as broker:
        broker.change(SetGroup(GroupConfig("G"), is_new=True))
        yield Front(broker)


@pytest.fixture
def creating(front, monkeypatch):
    core = front.broker.broker.core
    monkeypatch.setattr(core, "options", dataclasses.replace(core.options, auto_create_topic_enable=True))


def records(front, topic):
    return [each for rows in front.broker.messages(topic).values() for each in rows]


def test_a_sent_message_is_stored_as_it_was_sent_and_answered_with_its_place(front):
    answer = front.run(lambda it: it.send("T", b"hello", "KEYS\x01k1 k2\x02UNIQ_KEY\x01U1\x02TAGS\x01tagA"))
    (record,) = records(front, "T")
    assert (record.body, record.flag, record.queue_id, record.born_timestamp) == (b"hello", 7, 1, 1795358939437)
    assert {"KEYS": "k1 k2", "TAGS": "tagA", "CLUSTER": "DefaultCluster"}.items() <= record.properties.items()
    assert answer.fields == {
        "queueId": "1",
        "queueOffset": "0",
        "msgId": record.message_id,
        "transactionId": "U1",
        "MSG_REGION": "DefaultRegion",
        "TRACE_ON": "true",
    }

    again = front.run(lambda it: it.send("T", b"hello", "UNIQ_KEY\x01U1", e="0"))
    assert (again.fields["queueId"], again.fields["msgId"]) == ("1", record.message_id), "a repeated send"
    assert len(records(front, "T")) == 1


def test_a_compressed_body_and_its_flags_are_stored_unchanged(front):
    body = zlib.compress(b"x" * 5_000)
    front.run(lambda it: it.send("C", body, f=str(769 | 0x40000080)))
    (record,) = records(front, "C")
    assert (record.body, record.sys_flag) == (body, 769)


def test_tools_probe_a_broker_and_a_cluster_by_topics_that_their_first_message_creates(front):
    options = front.broker.broker.core.options
    for name in (options.broker, options.cluster):
        answers = front.run(
            lambda it, name=name: asyncio.gather(it.send(name, b"1", e="0"), it.send(name, b"2", e="0"))
        )
        assert sorted(each.fields["queueOffset"] for each in answers) == ["0", "1"]
        assert len(records(front, name)) == 2
    with pytest.raises(RequestFailed):
        front.run(lambda it: it.send(f"{options.broker}-other", b"x", e="0"))


@pytest.mark.parametrize(("code", "name"), [(320, "one"), (310, "two")])
def test_a_batch_is_stored_by_its_messages_and_answered_with_all_ids(front, monkeypatch, code, name):
    monkeypatch.setattr(sends, "PUT_MESSAGES_MAX", 2)
    before = len(records(front, "B"))
    body = b""
    for number in range(3):
        content, properties = b"b%d" % number, b"UNIQ_KEY\x01%s%d" % (name.encode(), number)
        body += struct.pack(">iiiii", 22 + len(content) + len(properties), 0, 0, number, len(content)) + content
        body += struct.pack(">h", len(properties)) + properties
    answer = front.run(lambda it: it.send("B", body, "UNIQ_KEY\x01batch\x02WAIT\x01true", code, m="true"))
    stored = records(front, "B")[before:]
    assert [(each.body, each.flag) for each in stored] == [(b"b0", 0), (b"b1", 1), (b"b2", 2)]
    assert [each.properties["UNIQ_KEY"] for each in stored] == [f"{name}{number}" for number in range(3)]
    assert answer.fields["msgId"] == ",".join(each.message_id for each in stored)
    assert answer.fields["queueOffset"] == str(stored[0].queue_offset)
    assert "transactionId" not in answer.fields


def test_a_first_send_creates_the_topic_once_with_the_queues_that_the_client_knows(front, creating):
    async def both(it):
        return await asyncio.gather(it.send("New", b"1", e="3"), it.send("New", b"2", e="-1"))

    answers = front.run(both)
    assert [each.code for each in answers] == [0, 0]
    topic = front.broker.broker.core.replica.state.topics["New"]
    assert (topic.read_queues, topic.write_queues, topic.permission) == (4, 4, 6)


@pytest.mark.parametrize("queue", ["1", "-1"])
@pytest.mark.parametrize("default", ["", "Other"])
def test_a_send_creates_no_topic_by_the_name_of_another_one_than_that_of_automatic_creation(
    front, creating, default, queue
):
    with pytest.raises(RequestFailed) as refused:
        front.run(lambda it: it.send("Unmade", b"x", c=default, e=queue))
    assert refused.value.reason is Reason.UNKNOWN_TOPIC
    assert "Unmade" not in front.broker.broker.core.replica.state.topics


@pytest.mark.parametrize("delay", ["DELAY", "TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DELIVER_MS"])
def test_a_batch_with_a_delay_of_all_its_messages_is_refused_and_none_is_stored(front, delay):
    before = len(records(front, "D"))
    body = struct.pack(">iiiii", 25, 0, 0, 0, 3) + b"one" + struct.pack(">h", 0)
    with pytest.raises(Rejected, match=delay) as refused:
        front.run(lambda it: it.send("D", body, f"WAIT\x01true\x02{delay}\x013\x02", m="true"))
    assert refused.value.code == RemotingCode.MESSAGE_ILLEGAL
    assert len(records(front, "D")) == before


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"b": "Unknown"}, RemotingCode.TOPIC_NOT_EXIST),
        ({"b": "T", "e": "2"}, RemotingCode.INVALID_PARAMETER),
        ({"b": "a b"}, RemotingCode.INVALID_PARAMETER),
        ({"b": "SCHEDULE_TOPIC_XXXX"}, RemotingCode.NO_PERMISSION),
        ({"b": "%RETRY%Nobody", "m": "true"}, RemotingCode.MESSAGE_ILLEGAL),
        ({"b": "T", "i": "A\x01" + "x" * 32_767}, RemotingCode.MESSAGE_ILLEGAL),
        ({"b": "T", "f": "4"}, RemotingCode.MESSAGE_ILLEGAL),
        ({"b": "T", "i": "TIMER_DEL_UNIQKEY\x01x"}, RemotingCode.MESSAGE_ILLEGAL),
    ],
)
def test_a_send_that_is_not_permitted_is_refused_with_the_code_of_rocketmq(front, fields, code):
    async def answer(it):
        table = HandlerTable(it._handlers, any_callers(), "C")
        return await table.answer(Request(310, {**BASE, **fields}, b"x"), it._connection)

    assert front.run(answer).code == code


def test_a_body_above_the_limit_is_refused(front):
    with pytest.raises(Rejected) as refused:
        front.run(lambda it: it.send("T", bytes(sends.BODY_BYTES_MAX + 1)))
    assert refused.value.code == RemotingCode.MESSAGE_ILLEGAL


def test_a_message_of_a_consumer_goes_to_the_retry_topic_and_in_the_end_to_the_dead_letters(front):
    async def steps(it):
        retried = await it.send("%RETRY%G", b"again", "DELAY\x0118\x02RETRY_TOPIC\x01T", j="1", l="16", e="0")
        dead = await it.send("%RETRY%G", b"dead", "DELAY\x0119\x02RETRY_TOPIC\x01T\x02REAL_TOPIC\x01x", j="17", l="16")
        return retried, dead

    retried, dead = front.run(steps)
    assert (retried.code, dead.fields["queueId"]) == (0, "0")
    (waiting,) = records(front, "SCHEDULE_TOPIC_XXXX")
    assert (waiting.reconsume_times, waiting.properties["REAL_TOPIC"]) == (1, "%RETRY%G")
    (letter,) = records(front, "%DLQ%G")
    assert (letter.body, letter.properties["DLQ_ORIGIN_TOPIC"]) == (b"dead", "T")


def test_a_message_for_a_time_can_be_recalled_once(front):
    async def steps(it):
        sent = await it.send("D", b"later", "UNIQ_KEY\x01R1\x02TIMER_DELAY_SEC\x013600")
        handle = {"topic": "D", "recallHandle": sent.fields["recallHandle"]}
        recalled = await it.call(370, handle)
        with pytest.raises(Rejected) as refused:
            await it.call(370, {**handle, "recallHandle": "rubbish"})
        return recalled, refused.value.code

    recalled, code = front.run(steps)
    assert (recalled.fields["msgId"], code) == ("R1", RemotingCode.ILLEGAL_OPERATION)


def end_fields(sent, end, **more):
    place = {
        "tranStateTableOffset": sent.fields["queueOffset"],
        "commitLogOffset": str(int(sent.fields["msgId"][16:], 16)),
    }
    key = sent.fields["transactionId"]
    return {"producerGroup": "TG", **place, "commitOrRollback": end, "msgId": key, "transactionId": key, **more}


def test_a_transaction_is_committed_or_rolled_back_by_what_its_answer_had(front):
    async def steps(it):
        sent = []
        for name in ("yes", "no", "open"):
            properties = f"TRAN_MSG\x01true\x02PGROUP\x01TG\x02UNIQ_KEY\x01{name}"
            sent.append(await it.send("H", name.encode(), properties, f="4", a="TG"))
        yes, no, unknown = sent
        # 4.9 does not send the topic.
        assert await it.call(37, end_fields(yes, "8"), is_oneway=True) is None
        await it.call(37, end_fields(no, "12", topic="H"), is_oneway=True)
        await it.call(37, end_fields(unknown, "0"), is_oneway=True)
        return sent

    sent = front.run(steps)
    assert [each.body for each in records(front, "H")] == [b"yes"]
    assert [each.fields["queueId"] for each in sent] == ["1", "1", "1"]
    assert len({each.fields["msgId"] for each in sent}) == 3


def test_the_other_end_of_an_ended_transaction_is_refused_as_not_permitted(front):
    async def steps(it):
        table = HandlerTable(it._handlers, any_callers(), "C")
        codes = []
        for end, other in (("8", "12"), ("12", "8")):
            properties = f"TRAN_MSG\x01true\x02PGROUP\x01TG\x02UNIQ_KEY\x01ended{end}"
            sent = await it.send("H", b"x", properties, f="4", a="TG")
            for each in (end, end, other):
                request = Request(37, end_fields(sent, each, topic="H"))
                codes.append((await table.answer(request, it._connection)).code)
        return codes

    assert front.run(steps) == [0, 0, 604] * 2


def test_a_producer_is_asked_about_a_transaction_and_its_answer_ends_it(tmp_path, monkeypatch):
    monkeypatch.setattr(transactions, "ROUND_S", 0.05)
    with running_broker(tmp_path, "Q") as broker:
        front = Front(broker)
        monkeypatch.setattr(broker.broker._checks, "_settings", CheckSettings(timeout_ms=50, interval_ms=100))
        producer = SimpleNamespace(connection=None)

        async def steps(it):
            producer.connection = Connection()
            it.table.members["TG"] = [producer.connection]
            properties = "TRAN_MSG\x01true\x02PGROUP\x01TG\x02UNIQ_KEY\x01asked"
            sent = await it.send("Q", b"half", properties, f="4", a="TG")
            check = await producer.connection.pushed.get()
            record = decode(memoryview(check.body), 0)
            assert (check.code, check.is_oneway, check.fields["transactionId"]) == (39, True, "asked")
            assert (record.topic, record.queue_id, record.body) == ("Q", 1, b"half")
            assert record.properties["PGROUP"] == "TG"
            names = ("tranStateTableOffset", "commitLogOffset")
            fields = end_fields(sent, "8") | {name: check.fields[name] for name in names}
            await it.call(37, fields, is_oneway=True)

        front.run(steps)
        assert [each.body for each in records(front, "Q")] == [b"half"]
