"""Clients of RocketMQ with access keys: nothing that a node prints, answers or audits has a secret or a signature.

The secret of an access key is in the store, as signatures cannot be verified without it (ADR 92). A signature is
nowhere: that of a request of the remoting protocol could be sent again.
"""

from __future__ import annotations

import base64
import contextlib
import ssl
import urllib.request
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import grpc
import pytest

from cluster.access.access_keys import signature_of
from cluster.remoting.command import RemotingCode
from cluster.rocketmq_v2 import messaging_pb2 as mq
from cluster.v1 import access_pb2, broker_pb2
from tests.integration.cluster.api.test_secrets import ADMIN, Run, encodings
from tests.support.brokers.remoting_peer import RemotingPeer, signed_fields
from tests.support.brokers.rocketmq_stub import RocketMQStub, message, resource
from tests.support.waiting import PATIENCE_S, run, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SECRETS = {"AK1": "secret-of-the-key-of-alice", "AK2": "secret-of-a-deleted-key"}
WRONG = "a-secret-that-is-not-that-of-the-key"


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Run]:
    """Return a running node with all ports; it is ended after the test."""
    made = Run(tmp_path, has_fronts=True)
    yield made
    made.process.kill()
    made.process.communicate(timeout=PATIENCE_S)


class SignedRun:
    """Clients of both ports that note all signatures, and what they are answered."""

    def __init__(self, node: Run) -> None:
        self.node = node
        self.signatures: list[bytes] = []

    def stub(self, key: str, secret: str, *, signature: bytes = b"") -> RocketMQStub:
        """Return a client of gRPC; `signature` replaces the right one."""
        made = RocketMQStub(self.node.node.rocketmq, authority=self.node.authority.certificate_pem())
        date = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
        signed = signature or signature_of(secret, date.encode())
        # A secret in its place is looked for as a secret.
        self.signatures += [] if signature else [signed]
        value = f"MQv2-HMAC-SHA1 Credential={key}, SignedHeaders=x-mq-date-time, Signature={signed.hex()}"
        made.metadata += [("authorization", value), ("x-mq-date-time", date)]
        return made

    def sent(self, key: str, secret: str, **changed: Any) -> int:
        """Send by gRPC; return the code of the answer."""
        with self.stub(key, secret, **changed) as stub:
            try:
                response = stub.send(message("orders", "m1"))
            except grpc.RpcError as error:
                self.node.seen.append(str(error))
                return -1
            self.node.seen.append(str(response))
            return int(response.status.code)

    def telemetry(self, key: str, secret: str) -> None:
        """Open a stream with settings, and read its first answer or its end."""
        with self.stub(key, secret) as stub:
            settings = mq.Settings(client_type=mq.PRODUCER, publishing=mq.Publishing(topics=[resource("orders")]))
            commands = iter([mq.TelemetryCommand(settings=settings)])
            stream = stub.stub.Telemetry(commands, metadata=stub.metadata, timeout=PATIENCE_S)
            try:
                self.node.seen.append(str(next(stream)))
            except grpc.RpcError as error:
                self.node.seen.append(str(error))
            stream.cancel()

    async def asked(self, key: str, secret: str, code: int, **changed: Any) -> int:
        """Send a request of the remoting protocol; return the code of the answer."""
        context = ssl.create_default_context(cadata=self.node.authority.certificate_pem().decode())
        fields = {"a": "PG", "b": "orders", "e": 0, "f": 0, "g": 1, "h": 0}
        self.signatures.append(base64.b64decode(signed_fields(fields, b"body", key, secret)["Signature"]))
        async with RemotingPeer(self.node.node.remoting, key, secret, tls=context) as peer:
            found = await peer.ask(code, b"body", **fields, **changed)
        self.node.seen.append(f"{found.code} {found.remark} {found.fields} {found.body!r}")
        return int(found.code)


def use_access_keys(clients: SignedRun) -> None:
    """Add keys and use them; sign wrongly, type secrets in wrong places, and use a deleted key."""
    node = clients.node
    wait_until(lambda: node.log_in("admin", ADMIN))
    admin = node.log_in("admin", ADMIN)
    topic = broker_pb2.Topic(name="orders", read_queues=1, write_queues=1, permission=6)
    assert not node.ask(node.broker.SetTopic, broker_pb2.SetTopicRequest(topic=topic), admin).answer.code
    user = access_pb2.AccessUser(name="alice", policies=[access_pb2.AccessPolicy(resource="Topic:orders", actions=127)])
    assert node.ask(node.access.SetUser, access_pb2.SetUserRequest(user=user), admin).is_changed
    for name, secret in SECRETS.items():
        added = access_pb2.AddAccessKeyRequest(user="alice", id=name, secret=secret)
        wait_until(lambda added=added: getattr(node.ask(node.access.AddAccessKey, added, admin), "is_changed", False))
    node.ask(node.access.ListUsers, access_pb2.ListUsersRequest(), admin)

    right = ("AK1", SECRETS["AK1"])
    wait_until(lambda: clients.sent(*right) == mq.OK)
    clients.telemetry(*right)
    assert run(clients.asked(*right, 310)) == RemotingCode.SUCCESS

    deleted = access_pb2.DeleteAccessKeyRequest(user="alice", id="AK2")
    assert node.ask(node.access.DeleteAccessKey, deleted, admin).is_changed
    # The last three: a secret as the name of the key, a signature of another length, and a secret in place of one.
    for key, secret in (("AK1", WRONG), ("AK2", SECRETS["AK2"]), (SECRETS["AK1"], SECRETS["AK1"])):
        assert clients.sent(key, secret) == mq.UNAUTHORIZED
        assert run(clients.asked(key, secret, 310)) == RemotingCode.NO_PERMISSION
        clients.telemetry(key, secret)
    assert clients.sent(*right, signature=SECRETS["AK1"].encode()) == mq.UNAUTHORIZED
    assert run(clients.asked(*right, 310, changed_body=b"another")) == RemotingCode.NO_PERMISSION
    # Requests that are refused for another cause than the signature, and one with the secret as a name.
    assert run(clients.asked(*right, 99_999)) == RemotingCode.REQUEST_CODE_NOT_SUPPORTED
    with contextlib.suppress(grpc.RpcError), clients.stub(*right) as stub:
        route = mq.QueryRouteRequest(topic=resource("x" * 300))
        node.seen.append(str(stub.call("QueryRoute", route)))
    wrong = access_pb2.AddAccessKeyRequest(user="alice", id="AK1", secret=WRONG + "\n")
    node.ask(node.access.AddAccessKey, wrong, admin)


def test_nothing_that_is_shown_has_a_secret_or_a_signature_of_an_access_key(node: Run) -> None:
    clients = SignedRun(node)
    use_access_keys(clients)
    with urllib.request.urlopen(f"http://{node.node.metrics}/metrics", timeout=PATIENCE_S) as page:
        metrics = page.read()
    printed = node.end()
    files = {str(path): path.read_bytes() for path in node.folder.rglob("*") if path.is_file()}
    audit = {path: data for path, data in files.items() if "/audit/" in path}
    shown = {"output": printed.encode(), "metrics": metrics, "answers": "\n".join(node.seen).encode(), **audit}

    # The searched data exists.
    assert b"AccessService/AddAccessKey" in b"".join(audit.values())
    assert b"wrong signature of access key" in b"".join(audit.values())
    assert "call_refused" in printed
    for secret in SECRETS.values():
        assert any(secret.encode() in data for path, data in files.items() if path not in audit), "in the store"

    for secret in (*SECRETS.values(), WRONG):
        for form in encodings(secret.encode()):
            assert [place for place, data in shown.items() if form in data] == [], secret
    assert len(set(clients.signatures)) > len(SECRETS)
    for signature in clients.signatures:
        for form in encodings(signature):
            assert [place for place, data in {**files, **shown}.items() if form in data] == [], signature
    # The tokens of fronts for calls to the leader.
    assert [place for place, data in {**files, **shown}.items() if b"dlf1_" in data] == []
