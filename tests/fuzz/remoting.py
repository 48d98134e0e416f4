"""The front for clients of the remoting protocol: its frames, and the requests in them, up to calls of the leader."""

import json
from functools import cache

from cluster.remoting.admin.assembly import Administration
from cluster.remoting.clients import ClientTable
from cluster.remoting.codec import (
    FRAME_SIZE_BYTES_MAX,
    BadCommand,
    FrameSplitter,
    Reply,
    decode_frame,
    encode_request,
    encode_response,
)
from cluster.remoting.command import Request, Response
from cluster.remoting.consumers.commits import PendingCommits
from cluster.remoting.consumers.service import Consumers
from cluster.remoting.front import Front
from cluster.remoting.names.part import NameServerRole
from cluster.remoting.pop.part import PopConsumers
from cluster.remoting.producers.part import Producers
from tests.fuzz.target import Target
from tests.support.brokers.front_callers import callers_of
from tests.support.brokers.fuzzed_leader import LOOP, FuzzedLeader, fuzzed_core

BATCH = b"\0\0\0\x1c" + bytes(8) + b"\0\0\0\x07\0\0\0\x02hi\0\x04a\x01b\x02"
SEND = {"a": "PG", "b": "T", "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1", "h": "0", "i": "KEYS\x01k\x02"}
PULL = {
    "consumerGroup": "G",
    "topic": "T",
    "queueId": "0",
    "queueOffset": "0",
    "maxMsgNums": "32",
    "sysFlag": "5",
    "commitOffset": "1",
    "subscription": "a || b",
    "suspendTimeoutMillis": "0",
    "expressionType": "TAG",
}
HEARTBEAT = {
    "clientID": "c@1",
    "producerDataSet": [{"groupName": "PG"}],
    "consumerDataSet": [
        {
            "groupName": "G",
            "consumeType": "CONSUME_PASSIVELY",
            "messageModel": "CLUSTERING",
            "subscriptionDataSet": [{"topic": "T", "subString": "a || b", "subVersion": 7, "expressionType": "TAG"}],
        }
    ],
}
END = {"tranStateTableOffset": "0", "commitLogOffset": "0", "transactionId": "K"}
LOCKS = {"consumerGroup": "G", "clientId": "c@1", "mqSet": [{"brokerName": "b", "queueId": 0, "topic": "T"}]}
TOPIC = {"topicName": "T", "readQueueNums": 2, "attributes": {"+message.type": "FIFO"}}
GROUP = {"groupName": "G", "groupRetryPolicy": {"type": "EXPONENTIAL", "exponentialRetryPolicy": {"max": 1}}}


class FuzzedClient:
    """A connection."""

    address = "10.0.0.1:4000"
    peer = "ipv4:10.0.0.1:4000"
    caller = None

    def push(self, request: Request) -> None:
        """Encode a request of the server."""
        encode_request(request)

    async def ask(self, request: Request, _limit_s: float) -> Response:
        """Encode a request of the server, and answer."""
        encode_request(request)
        return Response()

    def when_closed(self, _callback: object) -> None:
        """The connection stays open."""


def splits(pieces: list[bytes]) -> tuple[list[bytes], bool]:
    """Return the frames in what is received in these pieces, and whether it is refused."""
    splitter, found = FrameSplitter(), []
    for piece in pieces:
        try:
            found += splitter.received(piece)
        except BadCommand:
            return found, True
        assert splitter.size_bytes <= FRAME_SIZE_BYTES_MAX
    return found, False


def remoting_frames(data: bytes) -> None:
    """Split bytes into frames, in pieces that make no difference; a command is encoded as it was decoded."""
    size, data = (data[0] if data else 0) + 1, data[1:]
    whole, is_refused = splits([data])
    split, is_split_refused = splits([data[at : at + size] for at in range(0, len(data), size)])
    assert is_refused == is_split_refused
    # In one piece the frames before a bad one are not returned: the connection ends.
    assert whole == split or (is_refused and not whole)
    for frame in split:
        try:
            found = decode_frame(frame)
        except BadCommand:
            continue
        again = encode_response(found.response, found.opaque) if isinstance(found, Reply) else encode_request(found)
        (rest,) = FrameSplitter().received(again)
        back = decode_frame(rest)
        if isinstance(found, Reply):
            assert back == found
        else:
            assert isinstance(back, Request)
            assert (back.code, back.fields, back.body) == (found.code, found.fields, found.body)
            assert (back.opaque, back.is_oneway) == (found.opaque, found.is_oneway)


@cache
def front() -> tuple[Front, Producers, ClientTable]:
    """Return all parts of the front, beside a node that is none."""

    async def made() -> tuple[Front, Producers, ClientTable]:
        core, link, clients = fuzzed_core(), FuzzedLeader(), ClientTable()
        callers = callers_of(core)
        commits, producers = PendingCommits(link), Producers(core, link, clients, callers)
        parts = (
            NameServerRole(core, link, {"n0": "127.0.0.1:1"}),
            producers,
            Consumers(core, link, clients, callers, commits, nodes=()),
            PopConsumers(core, link, clients),
            Administration(core, link, clients, commits, "/", 1),
        )
        handlers = {code: each for part in parts for code, each in part.handlers().items()}
        return Front(handlers, callers, core.options.cluster), producers, clients

    return LOOP.run_until_complete(made())


def remoting_requests(data: bytes) -> None:
    """Answer a request of any code: whatever it contains, with a response that can be sent."""
    try:
        found = decode_frame(data)
    except BadCommand:
        return
    if isinstance(found, Reply):
        return
    parts = front()
    response = LOOP.run_until_complete(parts[0].answer(found, FuzzedClient()))
    assert response is not None or found.is_oneway
    if response is not None:
        (frame,) = FrameSplitter().received(encode_response(response, found.opaque))
        assert decode_frame(frame) == Reply(found.opaque, response)


def seed_requests() -> list[bytes]:
    """Return one good request for most of the codes."""
    queue = {"consumerGroup": "G", "topic": "T", "queueId": "0"}
    names = {"topic": "T", "group": "G", "consumerGroup": "G", "producerGroup": "PG", "groupName": "G"}
    requests = [
        Request(310, SEND, b"hello"),
        Request(310, {**SEND, "b": "%RETRY%G", "j": "3", "l": "16"}, b"hello"),
        Request(320, {**SEND, "m": "true"}, BATCH),
        Request(325, {**SEND, "i": "REPLY_TO_CLIENT\x01c@1\x02"}, b"reply"),
        Request(11, PULL),
        Request(11, {**PULL, "subscription": "a > 5 AND b IN ('x')", "expressionType": "SQL92"}),
        Request(34, {}, json.dumps(HEARTBEAT).encode()),
        Request(35, {"clientID": "c@1", "consumerGroup": "G"}),
        Request(36, {"offset": "0", "group": "G", "delayLevel": "3", "maxReconsumeTimes": "16"}),
        Request(
            37, {"producerGroup": "PG", "tranStateTableOffset": "0", "commitLogOffset": "0", "commitOrRollback": "8"}
        ),
        Request(41, {}, json.dumps(LOCKS).encode()),
        Request(46, {}, b'{"subscriptionData":{"topic":"T","subString":"a"}}'),
        Request(14, queue),
        Request(15, {**queue, "commitOffset": "1"}),
        Request(29, {**queue, "timestamp": "1", "boundaryType": "upper"}),
        Request(370, {"topic": "T", "recallHandle": "djEgVCBiIDEgSw=="}),
        Request(12, {"topic": "T", "key": "k", "maxNum": "32", "beginTimestamp": "0", "endTimestamp": "9"}),
        Request(17, {"topic": "T", "readQueueNums": "2", "attributes": "+a=b,-c", "perm": "6", "order": "true"}),
        Request(18, {}, json.dumps({"topicConfigList": [TOPIC]}).encode()),
        Request(200, {}, json.dumps(GROUP).encode()),
        Request(
            222, {"topic": "T", "group": "G", "timestamp": "-1", "queueId": "0", "offset": "0", "isForce": "false"}
        ),
        Request(307, {"consumerGroup": "G", "clientId": "c@1"}),
        Request(315, {"statsName": "TOPIC_PUT_NUMS", "statsKey": "T"}),
        *(Request(code, names) for code in (105, 203, 204, 206, 208, 303, 317, 328, 345)),
    ]
    return [encode_request(each)[4:] for each in requests]


def seed_frames() -> list[bytes]:
    """Return requests in both forms, and a response."""
    request = encode_request(Request(310, SEND, b"hello", 7))
    fields = b"\0\x01b\0\0\0\x01T"
    header = b"\x01\x36\x00\x01\xdf\0\0\0\x07\0\0\0\0\0\0\0\x02hi" + len(fields).to_bytes(4, "big") + fields
    binary = (len(header) + 8).to_bytes(4, "big") + b"\x01" + len(header).to_bytes(3, "big") + header + b"body"
    reply = encode_response(Response(0, {"queueId": "0"}, b"x", "remark"), 7)
    return [bytes((size,)) + data for data in (request, binary, reply + binary) for size in (0, 255)]


TARGETS = (
    Target("remoting_frames", remoting_frames, seed_frames),
    Target("remoting_requests", remoting_requests, seed_requests),
)
