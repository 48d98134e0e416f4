"""Every field of every request about users and logins is sent as large and as hostile as it can be.

As in `test_hostile_requests`; the sender is an administrator, because others are refused before their request is read.
"""

import grpc
import pytest

from cluster.access.users import ApiToken
from cluster.api import login_calls
from cluster.protocol.access_bounds import ACCESS_BOUNDS
from cluster.state.access_commands import AddApiToken
from cluster.v1 import access_pb2 as pb
from dledger.authentication.failures import LoginFailures
from dledger.authentication.scram import ScramClient
from dledger.authentication.tokens import api_token, digest_of_api_token
from tests.integration.cluster.api.access.test_access_service import Client, bearer, first_administrator
from tests.integration.cluster.api.conftest import run
from tests.support.network.hostile_requests import try_all

pytestmark = pytest.mark.slow

TOKEN = api_token(b"t" * 32)
BASE = {"name": "other", "id": "ci"}
OWN_BASE = {
    "StartLogin": {"client_first": ScramClient("admin", "x", "client-nonce-0123456789").first},
    "SetUser": {"user": pb.AccessUser(name="other")},
    "SetRole": {"role": pb.AccessRole(name="other")},
    "AddToken": {"user": "admin", "id": "ci", "digest": digest_of_api_token(api_token(b"u" * 32))},
    "DeleteToken": {"user": "admin", "id": "ci"},
    "AddAccessKey": {"user": "admin", "id": "ak", "secret": "SK123456"},
    "DeleteAccessKey": {"user": "admin", "id": "ak"},
    "ListUsers": {},
    "ListRoles": {},
    "Explain": {"user": "wide", "resource": "Topic:orders", "actions": 127, "address": "10.0.0.1"},
}
SOURCES = [f"10.{number >> 8}.{number & 255}.0/24" for number in range(256)]
# As many as a user may have; then as many as the fields of a request may have, which are too many for a user.
POLICIES = [pb.AccessPolicy(resource=f"Topic:{number:03}-*", actions=1 + number % 127) for number in range(1_000)]
SOURCED = [pb.AccessPolicy(resource="*", actions=127, sources=SOURCES), *POLICIES[1:]]
TOO_MANY = [pb.AccessPolicy(resource=f"Topic:{number:03}*", actions=1, sources=SOURCES) for number in range(1_000)]
WIDE = {"name": "wide", "policies": SOURCED}
# A user with as many policies as one can have, all of which match one name.
NAME = "a" * 200
PREFIXES = [
    pb.AccessPolicy(resource=f"Topic:{NAME[: 1 + number % 60]}*", actions=1 + number % 127, is_denied=number % 2 == 0)
    for number in range(1_000)
]
ROLES = [pb.SetRoleRequest(role=pb.AccessRole(name=f"r{number}", policies=PREFIXES)) for number in range(16)]
RIGHTS = pb.AccessUser(name="rights", roles=[each.role.name for each in ROLES])
WHOLE = {
    "Explain": [pb.ExplainRequest(user="rights", resource=f"Topic:{NAME}", actions=127, address="10.0.0.1")],
    "SetRole": [
        pb.SetRoleRequest(role=pb.AccessRole(**WIDE)),
        pb.SetRoleRequest(role=pb.AccessRole(policies=TOO_MANY)),
    ],
    "SetUser": [
        pb.SetUserRequest(user=pb.AccessUser(**WIDE, roles=["wide"])),
        pb.SetUserRequest(user=pb.AccessUser(name="wide", policies=TOO_MANY)),
    ],
}


class _WithToken(grpc.UnaryUnaryClientInterceptor):
    def intercept_unary_unary(self, continuation, details, request):
        return continuation(details._replace(metadata=(("authorization", f"Bearer {TOKEN}"),)), request)


class NoDelays(LoginFailures):
    """Does not delay failed logins, nor refuse further ones unread."""

    def may_try(self, address, now_s):
        return True

    def note(self, address, user, now_s):
        return 0.0


def test_no_request_about_users_blocks_the_loop_of_a_broker(shop, monkeypatch):
    monkeypatch.setattr(login_calls, "LoginFailures", NoDelays)

    async def scenario():
        service = pb.DESCRIPTOR.services_by_name["AccessService"]
        async with shop.open(), Client(shop) as client:
            await first_administrator(shop)
            await shop.broker.core.change(AddApiToken("admin", ApiToken("test", digest_of_api_token(TOKEN) or b"")))
            before = [("SetRole", WHOLE["SetRole"][0]), *(("SetRole", each) for each in ROLES)]
            before += [("SetUser", WHOLE["SetUser"][0]), ("SetUser", pb.SetUserRequest(user=RIGHTS))]
            for name, request in before:
                assert not (await getattr(client.stub, name)(request, metadata=bearer(TOKEN))).answer.code
            with grpc.insecure_channel(str(shop.address)) as plain:
                channel = grpc.intercept_channel(plain, _WithToken())
                slow, odd = await try_all(channel, service, ACCESS_BOUNDS, BASE, OWN_BASE, WHOLE)
            assert (await client.stub.ListUsers(pb.ListUsersRequest(), metadata=bearer(TOKEN))).users
        assert ([], []) == (slow, odd), "\n".join(slow + odd)

    run(scenario)
