"""Strangers at the port of the remoting protocol of a real broker: others are still served, and nothing is left."""

import asyncio
import contextlib
import json
import struct

import pytest

from cluster.fronts.callers import FrontAudit
from cluster.local.node import choose_ports
from cluster.remoting.assembly import serve_remoting
from cluster.remoting.codec import Reply, decode_frame, encode_request, encode_response
from cluster.remoting.command import RemotingCode, Request, Response
from cluster.remoting.port import RemotingPort
from dledger.config import Address
from tests.integration.cluster.api.conftest import TOPIC, Shop, run
from tests.support.brokers.remoting_peer import RemotingPeer
from tests.support.waiting import PATIENCE_S

EMPTY_MESSAGE = struct.pack(">i8xii", 22, 0, 0) + b"\0\0"
SEND = {"a": "PG", "b": TOPIC, "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1", "h": "0", "i": ""}
PULL = {
    "consumerGroup": "g",
    "topic": TOPIC,
    "queueId": "0",
    "queueOffset": "1000",
    "maxMsgNums": "32",
    "sysFlag": "6",
    "subscription": "*",
    "suspendTimeoutMillis": "20000",
    "commitOffset": "0",
    "subVersion": "0",
}


def framed(header: bytes, body: bytes = b"") -> bytes:
    return struct.pack(">II", 4 + len(header) + len(body), len(header)) + header + body


def heartbeat(groups: int, topics: int) -> bytes:
    consumer = {"groupName": "G", "subscriptionDataSet": [{"topic": f"t{each}"} for each in range(topics)]}
    body = {"clientID": "c", "consumerDataSet": [{**consumer, "groupName": f"G{each}"} for each in range(groups)]}
    return json.dumps(body, separators=(",", ":")).encode()


NAMES_TWICE = b'{"a":{' + b",".join(b'"a%d":0' % each for each in range(60_000)) + b',"z":0,"z":0}}'
# Each is refused with a code; the connection stays.
REFUSED = {
    "groups": Request(34, {}, heartbeat(20_000, 0)),
    "subscriptions": Request(34, {}, heartbeat(2, 3_000)),
    "deep": Request(34, {}, b"[" * 500_000),
    "large": Request(34, {}, bytes(2 << 20)),
    "surrogates": Request(34, {}, b'{"clientID":"\\udc00"}'),
    "names twice": Request(18, {}, NAMES_TWICE),
    "empty messages": Request(320, {**SEND, "m": "true"}, EMPTY_MESSAGE * 190_000),
    "separators": Request(310, {**SEND, "i": "a\x01b\x01c\x02REAL_TOPIC\x01x\x01y\x02"}, b"x"),
    "path": Request(310, {**SEND, "b": "../../etc"}, b"x"),
    "half topic": Request(310, {**SEND, "b": "RMQ_SYS_TRANS_HALF_TOPIC"}, b"x"),
    "no ASCII": Request(310, {**SEND, "b": "töpic\u202e"}, b"x"),
    "sql": Request(11, {**PULL, "sysFlag": "4", "expressionType": "SQL92", "subscription": "NOT " * 4_000 + "a"}),
    "a broker registers": Request(103, {"brokerName": "evil", "brokerAddr": "10.9.9.9:1", "clusterName": "c"}, b"{}"),
    "number": Request(11, {**PULL, "queueOffset": "9" * 5_000}),
}
# Each ends its connection.
NO_FRAMES = {
    "negative": b"\xff\xff\xff\xff" + bytes(100),
    "giant": struct.pack(">I", 1 << 30),
    "too small": struct.pack(">I", 3) + b"abc",
    "header beyond the frame": struct.pack(">II", 100, 200) + bytes(96),
    "deep header": framed(b"[" * 200_000),
    "no UTF-8": framed(b"\xff\xfe"),
    "numbers": framed(b'{"code":1e999}'),
    "many fields": framed(json.dumps({"extFields": {str(each): "" for each in range(300)}}).encode()),
    "http": b"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
    "tls": bytes.fromhex("16030100c8010000c40303"),
}


class Port:
    """The port of a real broker."""

    def __init__(self, path):
        self.shop = Shop(path)
        self.endpoint = f"127.0.0.1:{choose_ports(1, None)[0]}"

    @contextlib.asynccontextmanager
    async def open(self):
        async with self.shop.open(), contextlib.AsyncExitStack() as stack:
            port = RemotingPort(Address.parse(self.endpoint), {"n0": self.endpoint}, str(self.shop.path))
            audit = FrontAudit(lambda *_: None, lambda *_: None)
            await serve_remoting(self.shop.broker.core, port, str(self.shop.address), stack, audit)
            yield self

    def limited(self):
        return self.shop.broker.core.metrics.counts.limited

    async def connect(self, sent):
        host, _, port = self.endpoint.partition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(sent)
        return reader, writer

    async def honest(self):
        async with RemotingPeer(self.endpoint) as peer:
            assert (await peer.send(TOPIC)).code == RemotingCode.SUCCESS


@pytest.fixture
def port(tmp_path):
    return Port(tmp_path / "shop")


async def ended(reader):
    async with asyncio.timeout(PATIENCE_S):
        with contextlib.suppress(ConnectionError):
            while await reader.read(1 << 16):
                pass


def test_requests_that_would_cost_seconds_or_megabytes_are_refused_and_the_connection_stays(port):
    async def scenario():
        async with port.open(), RemotingPeer(port.endpoint) as peer:
            codes, topics = {}, sorted(port.shop.replica.state.topics)
            for name, request in REFUSED.items():
                codes[name] = (await peer.ask(request.code, request.body, **request.fields)).code
            assert RemotingCode.SUCCESS not in codes.values(), codes
            assert codes["a broker registers"] == RemotingCode.REQUEST_CODE_NOT_SUPPORTED
            assert RemotingCode.SYSTEM_ERROR not in codes.values(), codes
            assert (await peer.send(TOPIC)).code == RemotingCode.SUCCESS
            assert sorted(port.shop.replica.state.topics) == topics

    run(scenario)


def test_bytes_that_are_no_frames_end_their_own_connection_and_are_counted(port):
    async def scenario():
        async with port.open():
            opened = [await port.connect(sent) for sent in NO_FRAMES.values()]
            for reader, writer in opened:
                await ended(reader)
                writer.close()
            await port.honest()
            assert port.limited()["remoting_protocol"] == len(NO_FRAMES)

    run(scenario)


def test_floods_without_reading_are_bounded_and_others_are_served(port):
    async def scenario():
        async with port.open():
            oneway = encode_request(Request(9_999, {}, b"", 1, is_oneway=True)) * 3_000
            replies = encode_response(Response(), 1) * 3_000
            same = encode_request(Request(105, {"topic": TOPIC}, opaque=7)) * 2_000
            pulls = encode_request(Request(11, PULL, opaque=8)) * 500
            opened = [await port.connect(sent) for sent in (oneway, replies, same, pulls, pulls)]
            half = [await port.connect(struct.pack(">I", 1_000) + b"x") for _ in range(30)]
            await port.honest()
            for _, writer in (*opened, *half):
                writer.close()
            await port.honest()

    run(scenario)


def test_requests_with_the_same_number_are_each_answered(port):
    async def scenario():
        async with port.open():
            reader, writer = await port.connect(encode_request(Request(105, {"topic": TOPIC}, opaque=7)) * 50)
            async with asyncio.timeout(PATIENCE_S):
                for _ in range(50):
                    (size,) = struct.unpack(">I", await reader.readexactly(4))
                    found = decode_frame(await reader.readexactly(size))
                    assert isinstance(found, Reply)
                    assert (found.opaque, found.response.code) == (7, RemotingCode.SUCCESS)
            writer.close()

    run(scenario)
