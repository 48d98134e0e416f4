"""A secured broker of three nodes and a closed name server: applications, the loss of a leader, untrusted clients."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from cluster import Consumer, MessageNotAppended, OutgoingMessage, Producer, RequestFailed
from cluster.client.broker_calls import BrokerCalls
from cluster.client.login import LoggedIn
from cluster.client.token_file import write_token
from cluster.local.secured import ADMINISTRATOR, APPLICATION, LocalSecurity
from cluster.protocol.errors import Reason
from cluster.v1 import access_pb2, broker_pb2
from dledger import LogClient, NotAppended
from dledger.authentication.tokens import api_token, digest_of_api_token
from dledger.security.settings import PLAIN
from pipeline.common.errors import BrokerRefused
from pipeline.source.options import parse_source_options
from pipeline.source.parts import ReadSettings
from pipeline.source.plan import batch_parts
from tests.integration.cluster.local_brokers.conftest import SMALL, running_brokers, set_topic
from tests.support.waiting import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from cluster.local.brokers import LocalBrokers
    from dledger.security.settings import Security

TOPICS = ("orders", "read", "closed")


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalBrokers]:
    """Return a secured broker with topics."""
    with running_brokers(tmp_path_factory.mktemp("secured") / "run", is_secured=True, **SMALL) as started:
        with BrokerCalls(started.endpoints, PATIENCE_S, security=started.security) as calls:
            for topic in TOPICS:
                set_topic(calls, topic, 2)
        yield started


@pytest.fixture
def secrets(brokers: LocalBrokers) -> LocalSecurity:
    assert brokers.secrets is not None
    return brokers.secrets


def add_user_without_rights(brokers: LocalBrokers, token: str) -> None:
    digest = digest_of_api_token(token) or b""
    with BrokerCalls(brokers.endpoints, PATIENCE_S, security=brokers.security) as calls:
        user = access_pb2.AccessUser(name="mallory")
        calls.ask_access(lambda stub: stub.SetUser, access_pb2.SetUserRequest(user=user))
        request = access_pb2.AddTokenRequest(user="mallory", id="t", digest=digest)
        calls.ask_access(lambda stub: stub.AddToken, request)


def test_acknowledged_messages_survive_the_loss_of_the_leader(brokers: LocalBrokers, secrets: LocalSecurity) -> None:
    """Goal: routes, TLS and users also hold for the next leader. Method: kill -9 between two batches."""
    (cluster,) = brokers.clusters.values()
    bodies = [b"%d" % number for number in range(60)]
    app = secrets.client(APPLICATION)
    with Producer(
        name_servers=brokers.name_servers, security=app, is_unknown_retried=True, deadline_s=PATIENCE_S
    ) as producer:
        producer.send_many([OutgoingMessage("orders", body) for body in bodies[:30]])
        killed = cluster.wait_for_leader(PATIENCE_S)
        cluster.kill(killed)
        producer.send_many([OutgoingMessage("orders", body) for body in bodies[30:]])
    cluster.start_node(killed, PATIENCE_S)

    login = replace(app, token=None)
    with (
        LoggedIn(brokers.endpoints, APPLICATION, secrets.password_of(APPLICATION), security=login) as session,
        Consumer(
            name_servers=brokers.name_servers,
            group="billing",
            topics="orders",
            start="first",
            security=session.security,
        ) as consumer,
    ):
        found: set[bytes] = set()
        for message in consumer:
            found.add(message.body)
            if len(found) == len(bodies):
                break
    assert found == set(bodies)


def test_untrusted_clients_are_refused_with_a_reason_and_send_nothing(
    brokers: LocalBrokers, secrets: LocalSecurity, tmp_path: Path
) -> None:
    token = api_token(b"m" * 32)
    add_user_without_rights(brokers, token)
    app = secrets.client(APPLICATION)
    foreign = LocalSecurity.create(tmp_path, has_users=True)
    of_another_authority = replace(foreign.client(), authority=app.authority)
    untrusted: dict[str, tuple[Security, Reason]] = {
        "plain": (PLAIN, Reason.NOT_REACHED),
        "a foreign certificate": (replace(of_another_authority, token=app.token), Reason.NOT_REACHED),
        "no token": (replace(app, token=None), Reason.NOT_AUTHENTICATED),
        "a token of another cluster": (replace(app, token=foreign.client(APPLICATION).token), Reason.NOT_AUTHENTICATED),
        "a user without rights": (replace(app, token=lambda: token), Reason.ACCESS_DENIED),
    }
    for name, (security, reason) in untrusted.items():
        # A refused connection is tried again until the time is over; a wrong user is not.
        deadline_s = 0.5 if reason is Reason.NOT_REACHED else PATIENCE_S
        with (
            Producer(brokers.endpoints, security=security, deadline_s=deadline_s) as producer,
            pytest.raises(MessageNotAppended) as refused,
        ):
            producer.send("closed", b"untrusted")
        assert refused.value.reason is reason, name
        with (
            LogClient(brokers.endpoints, group="broker-a", security=security, deadline_s=deadline_s) as log,
            pytest.raises(NotAppended),
        ):
            log.append(b"untrusted")
    with (
        pytest.raises(RequestFailed) as refused_login,
        LoggedIn(brokers.endpoints, ADMINISTRATOR, "wrong password", security=replace(app, token=None)),
    ):
        pass
    assert refused_login.value.reason is Reason.NOT_AUTHENTICATED

    for name in ("plain", "a foreign certificate"):
        with (
            Producer(name_servers=brokers.name_servers, security=untrusted[name][0], deadline_s=0.5) as producer,
            pytest.raises(MessageNotAppended),
        ):
            producer.send("closed", b"untrusted")
    with BrokerCalls(brokers.endpoints, PATIENCE_S, security=app) as calls:
        offsets = calls.ask(lambda stub: stub.Offsets, broker_pb2.OffsetsRequest(topic="closed"))
    assert list(offsets.max_offsets) == [0, 0]


def test_pipeline_reads_by_the_environment_what_the_user_may(
    brokers: LocalBrokers, secrets: LocalSecurity, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: an application reads most of the log, queue by queue; only an administrator reads it by ranges."""
    bodies = [b"%d-" % number + b"x" * 1_000 for number in range(200)]
    with Producer(brokers.endpoints, security=secrets.client(APPLICATION), deadline_s=PATIENCE_S) as producer:
        producer.send_many([OutgoingMessage("read", body) for body in bodies])

    are_by_queue = {}
    for user in (APPLICATION, ADMINISTRATOR):
        for variable, path in secrets.files_of(user).environment().items():
            monkeypatch.setenv(variable, path)
        parts = batch_parts(parse_source_options({"endpoints": brokers.endpoints, "subscribe": "read"}))
        reading = ReadSettings(("body",))
        read = [row["body"] for part in parts for batch in reading.read(part) for row in batch.to_pylist()]
        assert sorted(read) == sorted(bodies)
        are_by_queue[user] = {bool(part.place.topic) for part in parts}
    assert are_by_queue == {APPLICATION: {True}, ADMINISTRATOR: {False}}

    token = api_token(b"p" * 32)
    write_token(tmp_path / "token", token)
    monkeypatch.setenv("DLEDGER_TOKEN_FILE", str(tmp_path / "token"))
    with pytest.raises(BrokerRefused, match="a token that exists"):
        batch_parts(parse_source_options({"endpoints": brokers.endpoints, "subscribe": "read"}))
