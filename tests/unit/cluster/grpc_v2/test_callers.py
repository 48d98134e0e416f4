"""Callers of a front: signatures that are accepted, refused, delayed; and what an unknown client may do."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from cluster.access.access_keys import AccessKey, SignatureRefused, signature_of
from cluster.access.model import Action, Policy, ResourceType, resource_of
from cluster.access.users import UserSettings
from cluster.api.rights import Need
from cluster.fronts import callers as module
from cluster.fronts.callers import CallerRefused, Callers, FrontAudit, RightLacking, act_for, current_client
from cluster.grpc_v2.signatures import DATE_WINDOW_S, check_date, signed_call
from cluster.grpc_v2.status_codes import status_of
from cluster.remoting.command import RemotingCode
from cluster.remoting.responses import response_of
from cluster.rocketmq_v2 import messaging_pb2 as mq
from cluster.state.access_commands import AddAccessKey, DeleteAccessKey, SetTokenKey, SetUser
from cluster.state.broker_state import BrokerState
from dledger.authentication.front_tokens import FRONT_PREFIX, read_front_token
from dledger.authentication.verifier import Verifier
from dledger.errors import AccessUnknown
from tests.support.waiting import in_a_loop

NOW_S = 1_800_000_000
DATE = datetime.fromtimestamp(NOW_S, UTC).strftime("%Y%m%dT%H%M%SZ")
ADMIN = UserSettings("admin", is_super=True, verifier=Verifier(b"s" * 16, 8_192, b"k" * 32, b"v" * 32))
ALICE = UserSettings("alice", policies=(Policy(resource_of("Topic:a"), Action.PUB, sources=("10.0.0.0/8",)),))
KEY = AccessKey("AK1", "alice", "SK123456")
PUB_ON_A = Need(ResourceType.TOPIC, "a", Action.PUB)


def signed(secret="SK123456", credential="AK1", date=DATE, upper=False):
    signature = signature_of(secret, date.encode()).hex()
    text = f"MQv2-HMAC-SHA1 Credential={credential}, SignedHeaders=x-mq-date-time, Signature="
    return [("authorization", text + (signature.upper() if upper else signature)), ("x-mq-date-time", date)]


class Front:
    """Callers of a node with users, and what they record; delays are noted, not waited for."""

    def __init__(self, monkeypatch, is_current=True):
        self.state = BrokerState()
        self.has_caught_up = True
        self.records, self.lacking, self.delays, self.now_s = [], [], [], 0.0
        self.on_delay = lambda: None
        for command in (SetUser(ADMIN), SetUser(ALICE), SetTokenKey(b"k" * 32), AddAccessKey(KEY)):
            assert self.state.apply_command(command).is_done
        self.callers = Callers(
            lambda: self.state.access,
            lambda: NOW_S * 1_000,
            lambda: is_current,
            FrontAudit(lambda *record: self.records.append(record), lambda *record: self.lacking.append(record)),
            lambda: self.now_s,
            has_caught_up=lambda: self.has_caught_up,
        )

        async def sleep(seconds):
            self.delays.append(seconds)
            self.on_delay()

        monkeypatch.setattr(module.asyncio, "sleep", sleep)

    async def admit(self, metadata, peer="ipv4:10.0.0.1:40000"):
        await self.callers.admit(peer, lambda: signed_call(metadata, NOW_S))

    async def refused(self, metadata):
        with pytest.raises(CallerRefused):
            await self.admit(metadata)
        assert current_client() is None
        return self.records[-1][2]


@pytest.mark.parametrize("form", [{}, {"credential": "AK1//Rocketmq"}, {"upper": True}])
@in_a_loop
async def test_the_signatures_of_official_clients_are_accepted(monkeypatch, form):
    front = Front(monkeypatch)
    await front.admit(signed(**form))
    client = current_client()
    assert (client.access_key, str(client.address)) == ("AK1", "10.0.0.1")
    token = front.callers.token()
    assert read_front_token(token, (b"k" * 32,), {"AK1": "SK123456"}.get, NOW_S)[0] == client
    assert front.records == front.delays == []


@in_a_loop
async def test_the_last_of_repeated_headers_count_as_a_go_client_adds_those_of_each_attempt(monkeypatch):
    front = Front(monkeypatch)
    before = datetime.fromtimestamp(NOW_S - 1, UTC).strftime("%Y%m%dT%H%M%SZ")
    await front.admit([*signed(date=before), *signed()])
    assert current_client().access_key == "AK1"
    assert "wrong signature" in await front.refused([*signed(), signed(date=before)[1]])
    assert "wrong signature" in await front.refused([*signed(), *signed("SK654321")])


@in_a_loop
async def test_wrong_unknown_old_and_missing_signatures_are_refused_delayed_and_recorded(monkeypatch):
    front = Front(monkeypatch)
    old = datetime.fromtimestamp(NOW_S - DATE_WINDOW_S - 1, UTC).strftime("%Y%m%dT%H%M%SZ")
    assert "wrong signature" in await front.refused(signed("SK654321"))
    assert "no such access key" in await front.refused(signed(credential="AK2"))
    assert "more than 15 h" in await front.refused(signed(date=old))
    assert await front.refused([]) == "no access key"
    assert await front.refused(signed(credential="")) == "no access key"
    assert len(front.delays) == len(front.records) == 5
    assert min(front.delays) >= 0.1
    front.state.apply_command(DeleteAccessKey("alice", "AK1"))
    assert "no such access key" in await front.refused(signed())


@in_a_loop
async def test_after_many_failures_an_address_is_refused_unseen_and_another_one_is_not(monkeypatch):
    front = Front(monkeypatch)
    for _ in range(10):
        await front.refused(signed("SK654321"))
    assert "too many failed calls" in await front.refused(signed())
    await front.admit(signed(), "ipv4:10.0.0.2:1")
    front.now_s = 2.0
    await front.admit(signed())


@in_a_loop
async def test_a_follower_looks_again_for_a_key_that_it_learns_of_meanwhile(monkeypatch):
    front = Front(monkeypatch, is_current=False)
    front.state.apply_command(DeleteAccessKey("alice", "AK1"))
    front.on_delay = lambda: front.state.apply_command(AddAccessKey(KEY))
    await front.admit(signed())
    assert current_client().access_key == "AK1"
    assert not front.records


@in_a_loop
async def test_a_node_that_has_not_caught_up_with_a_leader_has_no_final_refusals(monkeypatch):
    front = Front(monkeypatch, is_current=False)
    front.has_caught_up = False
    await front.admit(signed())
    for check in (
        lambda: front.callers.require([PUB_ON_A._replace(name="b")], "Send"),
        lambda: front.callers.require_super("Look"),
    ):
        with pytest.raises(AccessUnknown, match="has not caught up"):
            check()
    for _ in range(12):
        # The last of them are refused because of their number.
        with pytest.raises(AccessUnknown, match="has not caught up"):
            await front.admit(signed(credential="AK2"))
        assert current_client() is None
    assert front.records == front.lacking == []
    front.has_caught_up = True
    assert "too many failed calls" in await front.refused(signed(credential="AK2"))


def test_clients_repeat_what_is_refused_because_a_node_does_not_know_the_users_yet():
    assert status_of(AccessUnknown("no such access key")).code == mq.HA_NOT_AVAILABLE
    assert response_of(AccessUnknown("no such access key")).code == RemotingCode.SERVICE_NOT_AVAILABLE
    assert status_of(CallerRefused("")).code == mq.UNAUTHORIZED
    assert response_of(CallerRefused("")).code == RemotingCode.NO_PERMISSION


@in_a_loop
async def test_rights_are_those_of_the_user_at_the_address_of_the_client(monkeypatch):
    front = Front(monkeypatch)
    await front.admit(signed())
    front.callers.require([PUB_ON_A], "Send")
    for need in (PUB_ON_A._replace(name="b"), PUB_ON_A._replace(actions=Action.SUB)):
        with pytest.raises(RightLacking):
            front.callers.require([need], "Send")
    address = current_client().address
    assert front.lacking == [
        ("alice", address, "Send", "Topic:b", "lacks Pub on Topic:b"),
        ("alice", address, "Send", "Topic:a", "lacks Sub on Topic:a"),
    ]
    await front.admit(signed(), "ipv4:192.168.0.1:1")
    assert not front.callers.may(current_client(), PUB_ON_A)


@in_a_loop
async def test_only_a_super_user_passes_where_there_is_no_right(monkeypatch):
    front = Front(monkeypatch)
    await front.admit(signed())
    with pytest.raises(RightLacking, match="super user"):
        front.callers.require_super("Look")
    assert front.lacking[0][2:] == ("Look", "", "lacks the rights of a super user")
    front.state.apply_command(AddAccessKey(AccessKey("AK0", "admin", "SK123456")))
    await front.admit(signed(credential="AK0"))
    front.callers.require_super("Look")
    front.state.apply_command(DeleteAccessKey("admin", "AK0"))
    with pytest.raises(RightLacking):
        front.callers.require_super("Look")


@in_a_loop
async def test_without_a_client_the_front_has_no_rights_and_a_token_that_is_refused(monkeypatch):
    front = Front(monkeypatch)
    act_for(None)
    assert front.callers.token() == FRONT_PREFIX
    assert not front.callers.may(None, PUB_ON_A)
    await front.admit(signed())
    front.state.apply_command(DeleteAccessKey("alice", "AK1"))
    assert front.callers.token() == FRONT_PREFIX
    assert not front.callers.may(current_client(), PUB_ON_A)


@pytest.mark.parametrize(
    "metadata",
    [
        [("authorization", "Bearer dla1_x")],
        [("authorization", b"\xff"), signed()[1]],
        [("authorization", "MQv2-HMAC-SHA1 " + "x" * 10_000), signed()[1]],
        [signed()[0], ("x-mq-date-time", "")],
        [signed()[0]],
        [signed()[0], ("x-mq-date-time", "20261399T999999Z0")],
        [signed()[0], ("x-mq-date-time", "2026-11-30T00:00:00")],
        [signed()[0], ("x-mq-date-time", "2026-11-30")],
        [(signed()[0][0], signed()[0][1][:-1]), signed()[1]],
        [(signed()[0][0], signed()[0][1].replace("x-mq-date-time", "x-mq-client-id")), signed()[1]],
        [(signed()[0][0], signed()[0][1].replace("SHA1", "SHA256")), signed()[1]],
    ],
)
def test_hostile_metadata_are_refused(metadata):
    with pytest.raises(SignatureRefused):
        signed_call(metadata, NOW_S)


@in_a_loop
async def test_dates_in_the_form_of_the_client_in_rust_are_accepted(monkeypatch):
    front = Front(monkeypatch)
    for zone in (UTC, timezone(timedelta(hours=8)), timezone(-timedelta(hours=9, minutes=30))):
        local = datetime.fromtimestamp(NOW_S, zone)
        text = local.strftime("%Y-%m-%dT%H:%M:%S.123456789") + local.isoformat()[-6:]
        for date in (text, text.replace("+00:00", "Z"), local.isoformat()):
            await front.admit(signed(date=date))
            assert current_client().access_key == "AK1"
    old = datetime.fromtimestamp(NOW_S - DATE_WINDOW_S - 1, UTC).isoformat()
    assert "more than 15 h" in await front.refused(signed(date=old))


def test_a_date_that_is_none_is_refused():
    check_date(DATE, NOW_S)
    for date in (
        "20261399T999999Z",
        "00000000T000000Z",
        "2026-13-01T00:00:00Z",
        "0000-01-01T00:00:00Z",
        "2026-11-30T00:00:00+99:00",
    ):
        with pytest.raises(SignatureRefused):
            check_date(date, NOW_S)
