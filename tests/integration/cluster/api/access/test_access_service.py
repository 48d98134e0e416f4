"""Logins and the administration of users over gRPC: from the first administrator to a client with rights."""

from __future__ import annotations

import grpc
import pytest

from cluster.access.users import UserSettings
from cluster.api.access_service import AccessService
from cluster.broker.core import wall_clock_ms
from cluster.protocol.errors import CAUSES, Reason
from cluster.state.access_commands import SetTokenKey, SetUser
from cluster.v1 import access_pb2 as pb
from cluster.v1 import access_pb2_grpc, broker_pb2
from dledger.authentication import failures
from dledger.authentication.scram import ScramClient
from dledger.authentication.tokens import api_token, digest_of_api_token
from dledger.authentication.verifier import make_verifier
from tests.integration.cluster.api.conftest import TOPIC, run
from tests.support.waiting import until

SALT = b"s" * 16
ADMIN = UserSettings("admin", is_super=True, verifier=make_verifier("correct horse", SALT))
ORDERS = [pb.AccessPolicy(resource=f"Topic:{TOPIC}", actions=2, sources=["127.0.0.1", "::1"])]


def bearer(token: str) -> list[tuple[str, str]]:
    return [("authorization", f"Bearer {token}")]


async def first_administrator(shop) -> None:
    await shop.broker.core.change(SetTokenKey(b"K" * 32))
    await shop.broker.core.change(SetUser(ADMIN))


class Caller:
    """The context of a call from this machine."""

    def peer(self) -> str:
        return "ipv4:127.0.0.1:5"


class Client:
    """A stub that sends a token with each call."""

    def __init__(self, shop) -> None:
        self.channel = grpc.aio.insecure_channel(str(shop.address))
        self.stub = access_pb2_grpc.AccessServiceStub(self.channel)
        self.token = ""

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_) -> None:
        await self.channel.close()

    async def login(self, user: str, password: str, nonce: str = "client-nonce-0123456789") -> pb.FinishLoginResponse:
        scram = ScramClient(user, password, nonce)
        begun = await self.stub.StartLogin(pb.StartLoginRequest(client_first=scram.first))
        if begun.answer.code:
            return pb.FinishLoginResponse(answer=begun.answer)
        final = scram.final(begun.server_first)
        ended = await self.stub.FinishLogin(pb.FinishLoginRequest(client_final=final))
        if not ended.answer.code:
            scram.check(ended.server_final)
            self.token = ended.token
        return ended

    def call(self, method: str, **fields):
        request = getattr(pb, f"{method}Request")(**fields)
        return getattr(self.stub, method)(request, metadata=bearer(self.token))


def test_an_administrator_creates_a_role_and_a_user_that_reads(shop) -> None:
    async def scenario() -> None:
        async with shop.open() as stub, Client(shop) as admin, Client(shop) as alice:
            await shop.put(b"x")
            await first_administrator(shop)
            ended = await admin.login("admin", "correct horse")
            assert abs(ended.expires_s - wall_clock_ms() // 1_000 - 3_600) < 60

            made = await admin.call("SetRole", role=pb.AccessRole(name="readers", policies=ORDERS), is_new=True)
            assert made.is_changed
            verifier = make_verifier("battery staple", SALT).text()
            user = pb.AccessUser(name="alice", roles=["readers"])
            assert (await admin.call("SetUser", user=user, verifier=verifier, is_new=True)).is_changed
            assert not (await alice.login("alice", "battery staple")).answer.code

            get = broker_pb2.GetRequest(topic=TOPIC)
            assert (await stub.Get(get, metadata=bearer(alice.token))).max_offset == 1
            with pytest.raises(grpc.aio.AioRpcError, match="lacks the rights of a super user"):
                await alice.call("ListUsers")

            # An API token of hers, of which the broker gets the digest.
            token = api_token(b"t" * 32)
            added = await admin.call("AddToken", user="alice", id="ci", digest=digest_of_api_token(token))
            assert added.is_changed
            assert (await stub.Get(get, metadata=bearer(token))).max_offset == 1

            # Password and session are kept when other settings change; disabling ends both.
            assert (await admin.call("SetUser", user=pb.AccessUser(name="alice", policies=ORDERS))).is_changed
            assert (await stub.Get(get, metadata=bearer(alice.token))).max_offset == 1
            disabled = pb.AccessUser(name="alice", policies=ORDERS, is_disabled=True)
            assert (await admin.call("SetUser", user=disabled)).is_changed
            for ended_token in (alice.token, token):
                with pytest.raises(grpc.aio.AioRpcError, match=r"expected a"):
                    await stub.Get(get, metadata=bearer(ended_token))
            assert (await alice.login("alice", "battery staple")).answer.reason == "NOT_AUTHENTICATED"

    run(scenario)


def test_the_first_user_enables_access_control_from_the_start(shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cluster.server.first_user._RETRY_S", 0.01)
    shop.first_user = ADMIN

    async def scenario() -> None:
        async with shop.open() as stub, Client(shop) as admin:
            with pytest.raises(grpc.aio.AioRpcError, match=r"credentials|first user of this broker"):
                await stub.Status(broker_pb2.BrokerStatusRequest())
            await until(lambda: shop.replica.state.access.rules.is_enforced)
            assert not (await admin.login("admin", "correct horse")).answer.code
            assert [each.user.name for each in (await admin.call("ListUsers")).users] == ["admin"]
            token = admin.token
        # It is in the state now: another file is ignored, and tokens outlive the process.
        shop.first_user = UserSettings("other", is_super=True, verifier=ADMIN.verifier)
        async with shop.open(), Client(shop) as admin:
            admin.token = token
            assert [each.user.name for each in (await admin.call("ListUsers")).users] == ["admin"]

    run(scenario)


def test_users_and_roles_are_listed_in_pages_without_secrets(shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cluster.api.access_calls.NAMES_PER_PAGE", 2)

    async def scenario() -> None:
        async with shop.open(), Client(shop) as admin:
            await first_administrator(shop)
            await admin.login("admin", "correct horse")
            for name in ("r1", "r2", "r3"):
                await admin.call("SetRole", role=pb.AccessRole(name=name, policies=ORDERS))
                await admin.call("SetUser", user=pb.AccessUser(name=f"user-{name}", roles=[name]))

            users, roles, after = [], [], ""
            while True:
                page = await admin.call("ListUsers", after=after)
                users += page.users
                after = page.users[-1].user.name
                if not page.has_more:
                    break
            assert [each.user.name for each in users] == ["admin", "user-r1", "user-r2", "user-r3"]
            assert [each.has_password for each in users] == [True, False, False, False]
            assert all(secret not in str(users) for secret in (ADMIN.verifier.text()[40:], "ssss"))
            page = await admin.call("ListRoles", after="r1")
            roles = [
                (role.name, [(each.resource, list(each.sources)) for each in role.policies]) for role in page.roles
            ]
            assert roles == [(name, [(f"Topic:{TOPIC}", ["127.0.0.1/32", "::1/128"])]) for name in ("r2", "r3")]
            assert not page.has_more
            assert [each.user.name for each in (await admin.call("ListUsers", name="admin")).users] == ["admin"]
            assert (await admin.call("ListUsers", name="bob")).answer.reason == "UNKNOWN_USER"
            assert (await admin.call("ListRoles", name="bob")).answer.reason == "UNKNOWN_ROLE"

    run(scenario)


def test_login_before_the_first_user_exists_is_to_be_repeated(shop) -> None:
    async def scenario() -> None:
        async with shop.open(), Client(shop):
            logins = AccessService(shop.broker.core, is_closed=True)
            start = pb.StartLoginRequest(client_first=ScramClient("admin", "correct horse", "n" * 24).first)
            begun = await logins.StartLogin(start, Caller())
            assert begun.answer.reason == "LEADER_NOT_READY"
            assert CAUSES[Reason(begun.answer.reason)].is_retriable

            await first_administrator(shop)
            assert (await logins.StartLogin(start, Caller())).server_first

    run(scenario)


def test_what_administrators_cannot_do(shop) -> None:
    async def scenario() -> None:
        async with shop.open(), Client(shop) as admin:
            # Before the first user there is no administrator, and no other caller must become one.
            user = pb.AccessUser(name="intruder", is_super=True)
            made = await admin.call("SetUser", user=user, verifier=ADMIN.verifier.text())
            assert made.answer.reason == "ACCESS_CONTROL_OFF"
            assert (await admin.login("admin", "correct horse")).answer.reason == "ACCESS_CONTROL_OFF"
            await first_administrator(shop)
            await admin.login("admin", "correct horse")

            refused = {
                "LAST_ADMINISTRATOR": admin.call("DeleteUser", name="admin"),
                "UNKNOWN_ROLE": admin.call("DeleteRole", name="nothing"),
                "UNKNOWN_USER": admin.call("AddToken", user="bob", id="t", digest=b"d" * 32),
                "UNKNOWN_TOKEN": admin.call("DeleteToken", user="admin", id="t"),
                "USER_EXISTS": admin.call("SetUser", user=pb.AccessUser(name="admin"), is_new=True),
                "ACCESS_CHANGED": admin.call("SetRole", role=pb.AccessRole(name="r"), access_version=99),
            }
            assert {(await call).answer.reason for call in refused.values()} == set(refused)
            illegal = [
                admin.call("SetUser", user=pb.AccessUser(name="a b")),
                admin.call("SetUser", user=pb.AccessUser(name="a"), verifier="password"),
                admin.call(
                    "SetRole", role=pb.AccessRole(name="r", policies=[pb.AccessPolicy(resource="x", actions=1)])
                ),
                admin.call(
                    "SetRole", role=pb.AccessRole(name="r", policies=[pb.AccessPolicy(resource="*", actions=128)])
                ),
                admin.call("AddToken", user="admin", id="t", digest=b"short"),
                admin.call("Explain", user="admin", resource="Topic:*", actions=1),
                admin.call("Explain", user="admin", resource="Topic:a", actions=0),
                admin.call("Explain", user="admin", resource="Topic:a", actions=1, address="here"),
                admin.call("ListUsers", name="x" * 10_000),
            ]
            for number, call in enumerate(illegal):
                assert (await call).answer.reason in ("ILLEGAL_REQUEST", "ILLEGAL_MESSAGE"), number

    run(scenario)


@pytest.mark.parametrize(
    ("resource", "expected"), [("Namespace:x", "Topic:x%* and Group:x%*"), ("namespace:*", "NAME%")]
)
def test_policy_on_a_namespace_is_refused_with_what_has_its_effect(shop, resource: str, expected: str) -> None:
    """No request names a namespace, so a deny of one would deny nothing."""

    async def scenario() -> None:
        async with shop.open(), Client(shop) as admin:
            await first_administrator(shop)
            await admin.login("admin", "correct horse")
            policy = pb.AccessPolicy(resource=resource, actions=2, is_denied=True)

            answer = (await admin.call("SetUser", user=pb.AccessUser(name="alice", policies=[policy]))).answer

            assert answer.reason in ("ILLEGAL_REQUEST", "ILLEGAL_MESSAGE")
            assert expected in answer.message
            policy.resource = "Topic:x%*"
            assert not (await admin.call("SetUser", user=pb.AccessUser(name="alice", policies=[policy]))).answer.code
            denied = await admin.call("Explain", user="alice", resource="Topic:x%orders", actions=2)
            assert denied.reason == "user alice: deny Sub on Topic:x%*"

    run(scenario)


def test_explain_names_the_policy(shop) -> None:
    async def scenario() -> None:
        async with shop.open(), Client(shop) as admin:
            await first_administrator(shop)
            await admin.login("admin", "correct horse")
            await admin.call("SetUser", user=pb.AccessUser(name="alice", policies=ORDERS))

            near = await admin.call("Explain", user="alice", resource=f"Topic:{TOPIC}", actions=2, address="127.0.0.1")
            far = await admin.call("Explain", user="alice", resource=f"Topic:{TOPIC}", actions=2, address="192.0.2.1")

            assert near.is_allowed
            assert near.reason == f"user alice: allow Sub on Topic:{TOPIC} from 127.0.0.1/32,::1/128"
            assert list(near.matches) == [near.reason]
            assert not far.is_allowed
            assert "denied by default" in far.reason

    run(scenario)


def test_logins_fail_alike_and_an_address_is_refused_after_ten(
    shop, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(failures, "DELAY_S_MIN", 0)
    monkeypatch.setattr(failures, "DELAY_S_MAX", 0)

    async def scenario() -> None:
        async with shop.open(), Client(shop) as client:
            await first_administrator(shop)
            # A stopped clock: however slow the machine is, no failure is forgotten.
            monkeypatch.setattr(shop.broker._access_service._logins, "_clock_s", lambda: 100.0)
            texts = set()
            for number in range(12):
                user = "admin" if number % 2 else "nobody"
                texts.add((await client.login(user, "wrong password", f"client-nonce-{number:012}")).answer.message)
            assert len(texts) == 2, "refused by the password, then by the address"
            assert any("too many failed logins" in text for text in texts)
            final = pb.FinishLoginRequest(client_final="c=biws,r=" + "x" * 40 + ",p=AAAA")
            assert (await client.stub.FinishLogin(final)).answer.reason == "NOT_AUTHENTICATED"
        assert "cause='wrong password'" in caplog.text
        assert "cause='unknown user'" in caplog.text
        assert all(secret not in caplog.text for secret in ("correct horse", "wrong password,", ADMIN.verifier.text()))

    run(scenario)


def test_a_key_is_replaced_while_sessions_last(shop) -> None:
    async def scenario() -> None:
        async with shop.open(), Client(shop) as admin:
            await first_administrator(shop)
            await admin.login("admin", "correct horse")
            assert (await admin.call("RotateTokenKey")).is_changed
            assert (await admin.call("RotateTokenKey")).answer.code == 0
            with pytest.raises(grpc.aio.AioRpcError, match="key that was replaced"):
                await admin.call("RotateTokenKey")

    run(scenario)
