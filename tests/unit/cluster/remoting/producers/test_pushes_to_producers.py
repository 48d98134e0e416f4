"""Replies that are pushed to requesters: what they get, and what the replying client gets."""

import asyncio

import pytest

from cluster.remoting.command import Rejected, RemotingCode, Request, Response
from cluster.remoting.producers.replies import Replies

FIELDS = {"a": "PG", "b": "C_REPLY_TOPIC", "e": "0", "f": "0", "g": "5", "h": "0", "i": "REPLY_TO_CLIENT\x01me"}


class Connection:
    address = "10.0.0.9:4000"

    def __init__(self, answer=None):
        self.answer = answer
        self.asked = []

    async def ask(self, request, _limit_s):
        self.asked.append(request)
        if self.answer is None:
            raise Rejected(RemotingCode.CONSUMER_NOT_ONLINE, "closed")
        return self.answer


class Table:
    def __init__(self, **clients):
        self.client = clients.get


def reply(table, fields=None):
    replies = Replies(table, "127.0.0.1:9", lambda: 77)
    return asyncio.run(replies.reply(Request(325, fields or FIELDS, b"pong"), Connection()))


def test_a_reply_is_pushed_to_its_requester_before_it_is_answered():
    requester = Connection(Response())
    answer = reply(Table(me=requester))
    (pushed,) = requester.asked
    assert (pushed.code, pushed.body, pushed.fields["topic"]) == (326, b"pong", "C_REPLY_TOPIC")
    assert pushed.fields["properties"] == "REPLY_TO_CLIENT\x01me\x02PUSH_REPLY_TIME\x0177\x02"
    assert (pushed.fields["bornHost"], pushed.fields["storeHost"]) == ("10.0.0.9:4000", "127.0.0.1:9")
    assert (answer.code, answer.fields["msgId"], answer.fields["queueOffset"]) == (0, "0", "0")


@pytest.mark.parametrize("answer", [None, Response(RemotingCode.SYSTEM_ERROR)])
def test_a_reply_that_the_requester_does_not_confirm_fails(answer):
    with pytest.raises(Rejected) as refused:
        reply(Table(me=Connection(answer)))
    assert refused.value.code == RemotingCode.SYSTEM_ERROR


def test_a_reply_to_a_requester_at_another_node_fails_with_the_code_that_clients_repeat_there():
    with pytest.raises(Rejected, match="not connected") as refused:
        reply(Table())
    assert refused.value.code == RemotingCode.SYSTEM_ERROR


def test_a_reply_without_a_requester_is_refused():
    with pytest.raises(Rejected) as refused:
        reply(Table(), {**FIELDS, "i": ""})
    assert refused.value.code == RemotingCode.MESSAGE_ILLEGAL
