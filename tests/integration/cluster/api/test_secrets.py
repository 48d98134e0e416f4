"""A run with users, logins, tokens and TLS: nothing that it prints or writes has a secret from which one could log in.

A node of a broker with the audit log of everything, snapshots, and TLS. Passwords and tokens are used, changed and
offered at wrong places. Then all output, all answers, the metrics page and every file of the node are searched for each
secret, as bytes, in hexadecimal and in base64.
"""

from __future__ import annotations

import base64
import hashlib
import re
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc
import pytest

from cluster.local.children import start_child
from cluster.local.node import choose_ports, write_node
from cluster.v1 import access_pb2, access_pb2_grpc, broker_pb2, broker_pb2_grpc
from dledger.authentication.scram import ScramClient
from dledger.authentication.tokens import api_token, digest_of_api_token
from dledger.authentication.verifier import keyed, make_verifier, salted_password
from dledger.security.channels import open_channel
from dledger.security.settings import Tls
from tests.support.certificates import new_authority, node_pair, tls_of, write_tls
from tests.support.waiting import PATIENCE_S, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

ADMIN, ALICE, CHANGED = "correct-horse-of-admin", "battery-staple-of-alice", "third-password-of-alice"
TYPED_AS_NAME = "password.typed.as.name"
SALTS = {ADMIN: b"salt-of-the-admin", ALICE: b"salt-of-alice-one", CHANGED: b"salt-of-alice-two"}
API_TOKEN = api_token(b"raw-bytes-of-the-token-of-alice!")


def encodings(secret: bytes) -> Iterator[bytes]:
    """Yield the forms in which a secret might be printed."""
    yield secret
    yield secret.hex().encode()
    # Without the end, which depends on what follows.
    yield base64.b64encode(secret)[:-4]
    yield base64.urlsafe_b64encode(secret)[:-4]


class Run:
    """A node as a process, and a client of it that records all responses.

    Args:
        folder: of all its files.
        has_fronts: it has the ports for RocketMQ's clients.
    """

    def __init__(self, folder: Path, *, has_fronts: bool = False) -> None:
        peer_port, *ports = choose_ports(6 if has_fronts else 4, None)
        authority = self.authority = new_authority()
        self.pair = node_pair(authority, "n0", group="b")
        files = write_tls(folder / "keys", tls_of(self.pair, authority))
        first = folder / "first-user"
        first.touch(mode=0o600)
        first.write_text(f"admin:{make_verifier(ADMIN, SALTS[ADMIN]).text()}\n")
        self.folder = folder / "node"
        self.folder.mkdir()
        settings = {
            "broker": "b",
            "first_user_file": str(first),
            "client_tls": "on",
            "tls_certificate_file": files.certificate,
            "tls_key_file": files.key,
            "tls_authority_file": files.authority,
            "audit": "all",
            "snapshot_threshold": 4,
            "mapped_file_size_for_entry_data": 1 << 20,
            "mapped_file_size_for_entry_index": 1 << 20,
            "max_hash_slot_num": 1_000,
            "max_index_num": 4_000,
            "min_election_timeout_ms": 100,
            "max_election_timeout_ms": 200,
            "heart_beat_time_interval_ms": 20,
        }
        self.node = write_node(self.folder, "n0", f"n0-127.0.0.1:{peer_port}", settings, ports)
        self.log = self.folder / "n0.log"
        with self.log.open("w") as output:
            command = [sys.executable, "-m", "cluster.cli", "server", "--config", self.node.config]
            self.process = start_child(command, stdout=subprocess.PIPE, stderr=output, text=True)
        self.channel = open_channel(self.node.endpoint, Tls(authority.certificate_pem()), ())
        self.access = access_pb2_grpc.AccessServiceStub(self.channel)
        self.broker = broker_pb2_grpc.BrokerServiceStub(self.channel)
        self.seen: list[str] = []

    def ask(self, method: Any, request: Any, token: str = "", scheme: str = "Bearer") -> Any:
        """Return a response, or the error of the call."""
        metadata = (("authorization", f"{scheme} {token}"),) if token else ()
        try:
            response = method(request, metadata=metadata, timeout=PATIENCE_S, wait_for_ready=True)
        except grpc.RpcError as error:
            response = error
        # The response to a login has a token for the client: it is the one that may.
        if not getattr(response, "token", ""):
            self.seen.append(str(response))
        return response

    def log_in(self, user: str, password: str) -> str:
        """Return a session token; empty: the login was refused."""
        client = ScramClient(user, password, "n" * 24)
        begun = self.ask(self.access.StartLogin, access_pb2.StartLoginRequest(client_first=client.first))
        if not begun.server_first:
            return ""
        final = access_pb2.FinishLoginRequest(client_final=client.final(begun.server_first))
        return str(self.ask(self.access.FinishLogin, final).token)

    def end(self) -> str:
        """Stop the process; return what it printed."""
        self.process.send_signal(signal.SIGTERM)
        printed, _ = self.process.communicate(timeout=PATIENCE_S)
        assert self.process.returncode == 0
        self.channel.close()
        return printed + self.log.read_text()


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Run]:
    """Return a running node; it is ended after the test."""
    run = Run(tmp_path)
    yield run
    run.process.kill()
    run.process.communicate(timeout=PATIENCE_S)


def use_everything(node: Run) -> list[str]:
    """Log in, administrate, put and read; use secrets in wrong places. Return the session tokens."""
    wait_until(lambda: node.log_in("admin", ADMIN))
    admin = node.log_in("admin", ADMIN)

    def set_alice(password: str) -> None:
        verifier = make_verifier(password, SALTS[password]).text()
        user = access_pb2.AccessUser(
            name="alice", policies=[access_pb2.AccessPolicy(resource="Topic:orders", actions=127)]
        )
        request = access_pb2.SetUserRequest(user=user, verifier=verifier)
        wait_until(lambda: node.ask(node.access.SetUser, request, admin).is_changed)

    set_alice(ALICE)
    alice = node.log_in("alice", ALICE)
    token = access_pb2.AddTokenRequest(user="alice", id="t", digest=digest_of_api_token(API_TOKEN))
    assert node.ask(node.access.AddToken, token, admin).is_changed
    topic = broker_pb2.Topic(name="orders", read_queues=1, write_queues=1, permission=6)
    assert not node.ask(node.broker.SetTopic, broker_pb2.SetTopicRequest(topic=topic), admin).answer.code
    for each in (alice, API_TOKEN):
        put = broker_pb2.PutRequest(topic="orders", queue_ids=[0], bodies=[b"x"])
        assert not node.ask(node.broker.Put, put, each).answer.code
    node.ask(node.access.RotateTokenKey, access_pb2.RotateTokenKeyRequest(), admin)
    node.ask(node.access.ListUsers, access_pb2.ListUsersRequest(), admin)
    set_alice(CHANGED)

    # Secrets in wrong places, and refused ones.
    assert not node.log_in("admin", ALICE)
    assert not node.log_in(TYPED_AS_NAME, "whatever-it-is")
    list_topics = (node.broker.ListTopics, broker_pb2.ListTopicsRequest())
    node.ask(*list_topics, alice)
    node.ask(*list_topics, API_TOKEN)
    node.ask(*list_topics, admin[:-1] + ("A" if admin[-1] != "A" else "B"))
    node.ask(*list_topics, base64.b64encode(f"admin:{ADMIN}".encode()).decode(), "Basic")
    node.ask(node.access.StartLogin, access_pb2.StartLoginRequest(client_first=f"n,,n=admin,password={ADMIN}"))
    user = access_pb2.AccessUser(name="bob")
    node.ask(node.access.SetUser, access_pb2.SetUserRequest(user=user, verifier=ADMIN), admin)
    wrong = access_pb2.AddTokenRequest(user="alice", id="u", digest=API_TOKEN[:20].encode())
    node.ask(node.access.AddToken, wrong, admin)
    return [admin, alice]


def test_nothing_that_a_run_leaves_has_a_secret(node: Run) -> None:
    sessions = use_everything(node)
    # A core dump has all of them.
    limits = Path(f"/proc/{node.process.pid}/limits").read_text()
    assert re.search(r"^Max core file size +0 ", limits, re.MULTILINE)
    with urllib.request.urlopen(f"http://{node.node.metrics}/metrics", timeout=PATIENCE_S) as page:
        metrics = page.read()
    printed = node.end()
    files = {str(path): path.read_bytes() for path in node.folder.rglob("*") if path.is_file()}
    audit = {path: data for path, data in files.items() if "/audit/" in path}
    shown = {"output": printed.encode(), "metrics": metrics, "answers": "\n".join(node.seen).encode(), **audit}

    # Another user of the machine reads none of the files.
    assert {oct(path.stat().st_mode & 0o077) for path in (node.folder / "n0").rglob("*")} == {"0o0"}

    # The searched data exists: the events of logins, the store with users, a snapshot, the audit log.
    assert "logged_in user=alice" in printed
    assert "login_refused" in printed
    assert b"dledger_broker_audit_records" in metrics
    assert len(audit) == 3
    assert b"AccessService/AddToken" in b"".join(audit.values())
    assert b'"kind":"login","user":"alice","via":"password"' in b"".join(audit.values())

    passwords = (ADMIN, ALICE, CHANGED)
    salted = {each: salted_password(each, SALTS[each], 8_192) for each in passwords}
    logs_in = {
        **{f"password {each}": each.encode() for each in passwords},
        **{f"salted password {each}": key for each, key in salted.items()},
        **{f"client key {each}": keyed(key, b"Client Key") for each, key in salted.items()},
        **{f"session {number}": each.encode() for number, each in enumerate(sessions)},
        **{f"MAC of session {number}": each[-40:].encode() for number, each in enumerate(sessions)},
        "API token": API_TOKEN.encode(),
        "bytes of the API token": b"raw-bytes-of-the-token-of-alice!",
        "private key": node.pair.key.private_numbers().private_value.to_bytes(32, "big"),
        "line of the key's file": node.pair.key_pem().splitlines()[1],
        "name that may be a password": TYPED_AS_NAME.encode(),
    }
    for what, secret in logs_in.items():
        for form in encodings(secret):
            assert [place for place, data in {**files, **shown}.items() if form in data] == [], what

    # Verifiers, from which no password follows, are in the store alone.
    kept = {f"stored key {each}": hashlib.sha256(keyed(key, b"Client Key")).digest() for each, key in salted.items()}
    kept |= {f"server key {each}": keyed(key, b"Server Key") for each, key in salted.items()}
    kept["digest of the API token"] = digest_of_api_token(API_TOKEN) or b""
    for what, value in kept.items():
        assert any(value in data for data in files.values()), what
        for form in encodings(value):
            assert [place for place, data in shown.items() if form in data] == [], what
