"""Producer, Consumer and other clients of a secured broker: TLS, user certificates, tokens, logins, unknown users."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from cluster import Consumer, MessageNotAppended, Producer, RequestFailed
from cluster.access.model import Action, Policy, resource_of
from cluster.access.users import ApiToken, UserSettings
from cluster.client import login
from cluster.client.broker_calls import BrokerCalls
from cluster.client.login import LoggedIn, LoginResult
from cluster.protocol.topic_config import TopicConfig
from cluster.state.access_commands import AddApiToken, SetTokenKey, SetUser
from cluster.state.commands import SetTopic
from cluster.v1 import broker_pb2 as pb
from dledger.authentication.tokens import api_token, digest_of_api_token
from dledger.authentication.verifier import make_verifier
from dledger.security.settings import PLAIN, Plain, Tls
from tests.support.brokers.thread import BrokerThread
from tests.support.certificates import new_authority, node_pair, tls_of, user_pair
from tests.support.waiting import PATIENCE_S, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from dledger.security.settings import Security

OURS, FOREIGN = new_authority(), new_authority("a foreign authority")
NODE = node_pair(OURS, "b", group="b")
MUTUAL = tls_of(NODE, OURS, is_certificate_required=True)
TLS = tls_of(NODE, OURS)
PASSWORD = "correct horse"
TOKENS = {name: api_token(name.encode().ljust(32)) for name in ("alice", "mallory", "expired", "eve")}


def trusting(name: str = "", *, by: Any = OURS, **changes: Any) -> Tls:
    return Tls(by.certificate_pem(), token=(lambda: TOKENS[name]) if name else None, **changes)


def by_certificate(name: str, *, group: str = "b", signer: Any = OURS) -> Tls:
    return tls_of(user_pair(signer, name, group=group), OURS)


def self_signed(name: str) -> Tls:
    """Return a certificate that names a user, and that an authority of the same name and another key signed."""
    return by_certificate(name, signer=new_authority())


@contextmanager
def closed_broker(path: Path, security: Security) -> Iterator[BrokerThread]:
    """Run a broker with three users: an administrator, alice with rights to send and receive, mallory without any."""
    broker = BrokerThread(path, security=security)
    broker.start()
    try:
        broker.change(SetTopic(TopicConfig("orders", 1, 1)))
        for settings in (
            UserSettings("admin", is_super=True, verifier=make_verifier(PASSWORD, b"s" * 16)),
            UserSettings(
                "alice",
                policies=(
                    Policy(resource_of("Topic:orders"), Action.PUB | Action.SUB),
                    Policy(resource_of("Group:billing"), Action.SUB),
                ),
            ),
            UserSettings("mallory"),
        ):
            broker.change(SetUser(settings))
        broker.change(SetTokenKey(b"K" * 32))
        for name in ("alice", "mallory"):
            broker.change(AddApiToken(name, ApiToken("t", digest_of_api_token(TOKENS[name]) or b"")))
        broker.change(AddApiToken("alice", ApiToken("old", digest_of_api_token(TOKENS["expired"]) or b"", expires_s=1)))
        yield broker
    finally:
        broker.close()


def send_and_receive(endpoints: str, security: Security) -> bytes:
    """Send a message with the blocking producer, and receive it with the asyncio consumer."""
    with Producer(endpoints, security=security, deadline_s=PATIENCE_S) as producer:
        producer.send("orders", b"a message")

    async def receive() -> bytes:
        async with Consumer(endpoints, group="billing", topics="orders", start="first", security=security) as consumer:
            async with asyncio.timeout(PATIENCE_S):
                async for message in consumer:
                    return message.body
        raise AssertionError("the consumer ended")

    return asyncio.run(receive())


@pytest.mark.parametrize(
    ("server", "client"),
    [
        (MUTUAL, by_certificate("alice")),
        (MUTUAL, tls_of(user_pair(OURS, "mallory", group="b"), OURS, token=lambda: TOKENS["alice"])),
        (TLS, trusting("alice")),
        (PLAIN, Plain(lambda: TOKENS["alice"])),
    ],
    ids=["certificate of a user", "a token goes before a certificate", "token over TLS", "token on loopback"],
)
def test_user_with_rights_sends_and_receives(tmp_path: Path, server: Security, client: Security) -> None:
    with closed_broker(tmp_path, server) as broker:
        assert send_and_receive(broker.endpoints, client) == b"a message"


# A client that is refused by TLS sees different errors, depending on the side that ends the connection.
NO_CONNECTION = "not reachable|accepts no connection|may require TLS|certificate is refused|does not use TLS"
BAD_CLIENTS: dict[str, tuple[Security, dict[str, tuple[Security, str]]]] = {
    "TLS": (
        TLS,
        {
            "plain": (PLAIN, NO_CONNECTION),
            "trusts another authority": (trusting("alice", by=FOREIGN), NO_CONNECTION),
            "expects another host": (trusting("alice", server_name="db0.example.net"), NO_CONNECTION),
            "no token": (trusting(), "expected credentials"),
            "user without rights": (trusting("mallory"), "'mallory' lacks"),
            "expired token": (trusting("expired"), "a token that exists and is valid"),
            "token that was not issued": (trusting("eve"), "a token that exists and is valid"),
        },
    ),
    "mutual TLS": (
        MUTUAL,
        {
            "plain": (PLAIN, NO_CONNECTION),
            "no certificate": (trusting("alice"), NO_CONNECTION),
            "foreign certificate": (by_certificate("alice", signer=FOREIGN), NO_CONNECTION),
            "certificate of its own": (self_signed("alice"), NO_CONNECTION),
            "another broker's user": (by_certificate("alice", group="c"), "an enabled user of this broker"),
            "unknown user": (by_certificate("eve"), "an enabled user of this broker"),
            "user without rights": (by_certificate("mallory"), "'mallory' lacks"),
            "another broker's node": (tls_of(node_pair(OURS, "b", group="c"), OURS), "an enabled user of this broker"),
        },
    ),
    "plain": (PLAIN, {"TLS": (trusting("alice"), NO_CONNECTION), "no token": (PLAIN, "expected credentials")}),
    "another host": (
        tls_of(node_pair(OURS, "b", group="b", hosts=["db0.example.net"]), OURS),
        {"alice": (trusting("alice"), NO_CONNECTION)},
    ),
    "expired": (
        tls_of(node_pair(OURS, "b", group="b", is_expired=True), OURS),
        {"alice": (trusting("alice"), NO_CONNECTION)},
    ),
    "a user's certificate": (
        tls_of(user_pair(OURS, "b", group="b"), OURS),
        {"alice": (trusting("alice"), NO_CONNECTION)},
    ),
}


@pytest.mark.parametrize("server", BAD_CLIENTS)
def test_client_that_is_not_allowed_sends_nothing_and_learns_why(tmp_path: Path, server: str) -> None:
    security, clients = BAD_CLIENTS[server]
    with closed_broker(tmp_path, security) as broker:
        for name, (client, reason) in clients.items():
            # A refused connection is retried until the deadline; a wrong user is not.
            deadline_s = 0.3 if reason is NO_CONNECTION else PATIENCE_S
            print("the client is", name)
            with (
                Producer(broker.endpoints, security=client, deadline_s=deadline_s) as producer,
                pytest.raises(MessageNotAppended, match=reason),
            ):
                producer.send("orders", b"untrusted")
            with (
                BrokerCalls(broker.endpoints, deadline_s, security=client) as calls,
                pytest.raises(RequestFailed, match=reason),
            ):
                calls.ask(lambda stub: stub.ListTopics, pb.ListTopicsRequest())
        assert broker.bodies("orders") == []


def test_login_gives_a_token_that_is_renewed_while_the_program_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: the password is used once for each renewal, and connections stay. Method: half-lives of milliseconds."""
    monkeypatch.setattr(login, "_RETRY_S", 0.01)
    sessions: list[LoginResult] = []
    log_in = login.log_in

    def kept(*arguments: Any) -> LoginResult:
        sessions.append(log_in(*arguments)._replace(expires_s=0))
        if len(sessions) == 2:
            raise RequestFailed("ANSWER_LOST", "a renewal that fails")
        return sessions[-1]

    monkeypatch.setattr(login, "log_in", kept)
    with closed_broker(tmp_path, TLS) as broker:
        with LoggedIn(broker.endpoints, "admin", PASSWORD, security=trusting()) as admin:
            assert "dls1_" not in repr(admin.security)
            with Producer(broker.endpoints, security=admin.security, deadline_s=PATIENCE_S) as producer:
                producer.send("orders", b"one")
                wait_until(lambda: len(sessions) > 3, "the login is renewed")
                producer.send("orders", b"two")
        assert sorted(broker.bodies("orders")) == [b"one", b"two"]
        with (
            pytest.raises(RequestFailed, match="user or password is wrong"),
            LoggedIn(broker.endpoints, "admin", "wrong", security=trusting()),
        ):
            pass
