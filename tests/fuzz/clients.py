"""Decoders of the ports of clients: requests with their bounds, logins, tokens, registrations; and of their answers."""

from contextlib import suppress
from functools import cache

from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass
from grpc_health.v1 import health_pb2

from cluster.api.message_columns import messages_of
from cluster.nameserver.registered_brokers import RouteTable
from cluster.protocol.access_bounds import ACCESS_BOUNDS
from cluster.protocol.request_bounds import BROKER_BOUNDS, NAME_SERVER_BOUNDS
from cluster.protocol.route_table import (
    BrokerNode,
    IllegalRegistration,
    Registration,
    StaleRegistration,
    TopicQueues,
)
from cluster.protocol.wire.routes import extent_of, register_request, registration_of, route_response, routes_of
from cluster.v1 import access_pb2, broker_pb2, nameserver_pb2
from commitlog.record.compression import UnreadableBody, uncompressed_body
from commitlog.record.encoder import RecordEncoder
from commitlog.record.record import decode
from dledger.authentication.scram import (
    LoginRefused,
    ScramClient,
    ServerRefused,
    begin_exchange,
    nonce_of,
)
from dledger.authentication.tokens import (
    SESSION_PREFIX,
    Session,
    TokenRefused,
    api_token,
    digest_of_api_token,
    read_session_token,
    session_token,
)
from dledger.authentication.verifier import IllegalCredential, Verifier, make_verifier, verifier_of_text
from dledger.service.limits.field_bounds import RequestShape
from dledger.service.limits.request_bounds import LOG_BOUNDS, STANDARD_BOUNDS
from dledger.v1 import admin_pb2, log_pb2
from store.errors import IllegalExpression, IllegalMessage, IllegalRequest
from store.model.message import Host
from store.model.message_id import decode_message_id, encode_message_id
from store.model.tag_filter import TagFilter
from store.sql92.predicate import Predicate
from tests.fuzz.target import Target, text_of

HOST = Host(b"\x7f\0\0\x01", 10911)
VERIFIER = make_verifier("correct horse battery", bytes(16), 4096)
KEY = bytes(32)


@cache
def shapes() -> list[tuple[RequestShape, type]]:
    """Return the bounds and the class of the requests of all methods."""
    guarded = (
        (log_pb2, LOG_BOUNDS),
        (admin_pb2, LOG_BOUNDS),
        (broker_pb2, BROKER_BOUNDS),
        (access_pb2, ACCESS_BOUNDS),
        (nameserver_pb2, NAME_SERVER_BOUNDS),
        (health_pb2, STANDARD_BOUNDS),
    )
    methods = [
        (method, bounds)
        for module, bounds in guarded
        for service in module.DESCRIPTOR.services_by_name.values()
        for method in service.methods
    ]
    return [(RequestShape(each.input_type, bounds), GetMessageClass(each.input_type)) for each, bounds in methods]


def requests(data: bytes) -> None:
    """Check a request of any method as a server does; the first byte says of which one."""
    methods = shapes()
    shape, kind = methods[(data[0] if data else 0) % len(methods)]
    data = data[1:]
    early = shape.wire_fault_of(data, 0)
    try:
        request = kind.FromString(data)
    except DecodeError:
        return
    is_good = shape.fault_of(request) is None and len(data) <= shape.size_bytes_max
    request.DiscardUnknownFields()
    if is_good and request.SerializeToString() == data:
        # A request within all bounds must not be refused before it is parsed.
        assert early is None, early


def puts(data: bytes) -> None:
    """Turn a request of messages into records; what is accepted is stored and read back unchanged."""
    try:
        request = broker_pb2.PutRequest.FromString(data)
    except DecodeError:
        return
    try:
        messages, _ = messages_of(request, list(request.properties), HOST, 1)
        prepared = RecordEncoder(HOST).prepare(messages)
    except IllegalMessage:
        return
    view = memoryview(bytes(prepared.encode(0, range(len(messages)), 1)))
    position = 0
    for message in messages:
        record = decode(view, position)
        assert record.check() is None
        assert (record.topic, record.body, record.queue_id) == (message.topic, message.body, message.queue_id)
        position += record.size
        with suppress(UnreadableBody):
            uncompressed_body(record.sys_flag, record.body, size_max=1 << 20)
    assert position == len(view)


def login(data: bytes) -> None:
    """Lead a login with the messages of a hostile client; only the right proof is accepted."""
    first, _, final = text_of(data).partition("\n")
    known: dict[str, Verifier] = {"alice": VERIFIER}
    nonce_of(final)
    try:
        exchange = begin_exchange(first, "server-nonce-0123456789", known.get, KEY)
    except LoginRefused:
        return
    with suppress(LoginRefused):
        exchange.finish(final)
        raise AssertionError(f"accepted {data!r}")
    with suppress(LoginRefused):
        exchange.finish(f"c=biws,r={exchange.nonce},{final}")
        raise AssertionError(f"accepted {data!r}")


def login_answers(data: bytes) -> None:
    """Read the messages of a hostile server."""
    first, _, final = text_of(data).partition("\n")
    client = ScramClient("alice", "correct horse battery", "client-nonce-0123456789")
    with suppress(ServerRefused):
        client.final(f"r=client-nonce-0123456789{first}")
    with suppress(ServerRefused):
        client.check(final)
        raise AssertionError(f"accepted {data!r}")


def tokens(data: bytes) -> None:
    """Read tokens and verifiers; no invented bytes are a session."""
    text = text_of(data)
    digest_of_api_token(text)
    for each in (text, f"{SESSION_PREFIX}{text}"):
        with suppress(TokenRefused):
            read_session_token(each, [KEY[1:] + b"secret"], 0)
            raise AssertionError(f"accepted {each!r}")
    with suppress(IllegalCredential):
        verifier = verifier_of_text(text)
        assert verifier_of_text(verifier.text()) == verifier


def registrations(data: bytes) -> None:
    """Register brokers at a name server, and look their routes up as a client does."""
    table = RouteTable()
    for number, part in enumerate(data.split(b"\xff\xfe\xfd")):
        try:
            request = nameserver_pb2.RegisterRequest.FromString(part)
        except DecodeError:
            continue
        with suppress(IllegalRegistration, IllegalMessage, StaleRegistration):
            table.register(registration_of(request), number, extent_of(request))
            table.heartbeat(request.broker, request.term, request.sequence, number, request.life)
    for topic in list(table.topics()):
        assert table.routes(topic)


def routes(data: bytes) -> None:
    """Read the answer of a hostile name server."""
    with suppress(DecodeError):
        for found in routes_of(nameserver_pb2.RouteResponse.FromString(data)).values():
            for route in found:
                route.registration.check(is_leader_needed=False)


def expressions(data: bytes) -> None:
    """Read texts of requests: tags expressions and message ids; and commands of broker state."""
    text = text_of(data)
    with suppress(IllegalRequest):
        TagFilter.parse(text)
    with suppress(IllegalMessage):
        found = decode_message_id(text)
        assert encode_message_id(*found) == text.upper()


def sql92(data: bytes) -> None:
    """Compile an SQL92 expression, and evaluate it for properties; both are hostile."""
    expression, _, properties = data.partition(b"\xff")
    with suppress(IllegalExpression):
        predicate = Predicate(text_of(expression))
        verdict = predicate.matches(properties)
        assert predicate.matches(properties) is verdict
        if predicate.names:
            return
        # An expression without properties has one value.
        assert predicate.matches(b"") is verdict


# --------------------------------------------------------------------------------------------------------------- seeds

REGISTRATION = Registration(
    "broker-a",
    "cluster-1",
    3,
    7,
    "n0",
    (BrokerNode("n0", "127.0.0.1:20921"), BrokerNode("n1", "127.0.0.1:20922")),
    (TopicQueues("orders", 4, 4, 6), TopicQueues("paid", 8, 8, 6)),
)
PUT = broker_pb2.PutRequest(
    topic="orders",
    bodies=[b"one", b"two"],
    queue_ids=[0, 1],
    properties=[b"TAGS\x01paid\x02", b"KEYS\x01o-1 o-2\x02UNIQ_KEY\x01ABC\x02"],
    sys_flags=[1],
)


def seed_requests() -> list[bytes]:
    """Return one good request for some of the methods."""
    numbers = {kind.DESCRIPTOR.name: number for number, (_, kind) in enumerate(shapes())}
    good = (
        log_pb2.AppendRequest(group="g0", bodies=[b"one", b"two"], request_id=7),
        log_pb2.ReadRequest(group="g0", index=7, max_entries=10),
        PUT,
        broker_pb2.SubscribeRequest(topic="orders", queue_ids=[0], offsets=[7], tags="a || b", group="billing"),
        register_request(REGISTRATION, REGISTRATION.topics),
    )
    return [bytes((numbers[each.DESCRIPTOR.name],)) + each.SerializeToString() for each in good]


def seed_routes() -> list[bytes]:
    """Return the answer of a name server with one route."""
    table = RouteTable()
    table.register(REGISTRATION, 0)
    return [route_response({"orders": table.routes("orders")}).SerializeToString()]


def seed_login() -> list[bytes]:
    """Return the messages of an honest client."""
    client = ScramClient("alice", "correct horse battery", "client-nonce-0123456789")
    exchange = begin_exchange(client.first, "server-nonce-0123456789", lambda _: VERIFIER, KEY)
    final = client.final(exchange.server_first)
    wrong = final[:-8] + "AAAAAAA="
    return [f"{client.first}\n{wrong}".encode(), f"n,,n=bob,r=client-nonce-0123456789\n{wrong}".encode()]


TARGETS = (
    Target("requests", requests, seed_requests),
    Target("puts", puts, lambda: [PUT.SerializeToString()]),
    Target("login", login, seed_login),
    Target(
        "login_answers", login_answers, lambda: [b"server,s=QSXCR+Q6sek8bf92AAAAAA==,i=4096\nv=" + b"A" * 43 + b"="]
    ),
    Target(
        "tokens",
        tokens,
        lambda: [
            VERIFIER.text().encode(),
            api_token(KEY).encode(),
            session_token(Session("alice", 3, 1 << 40), KEY).removeprefix(SESSION_PREFIX).encode(),
        ],
    ),
    Target(
        "registrations",
        registrations,
        lambda: [register_request(REGISTRATION, REGISTRATION.topics).SerializeToString()],
    ),
    Target("routes", routes, seed_routes),
    Target("expressions", expressions, lambda: [b"a || b", encode_message_id(HOST, 4711).encode()]),
    Target(
        "sql92",
        sql92,
        lambda: [
            b"NOT (a = 'it''s') AND b BETWEEN -5 AND 5.5E1 OR c IN ('x', 'y')\xffa\x01x\x02b\x010x1p3\x02c\x01y\x02",
            b"a IS NOT NULL AND (b NOT CONTAINS 'p' OR c >= 7L) /* */ <> TRUE\xffTAGS\x01a\x02a\x01TRUE\x02",
        ],
    ),
)
