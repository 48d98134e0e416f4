"""Every request of the remoting protocol: without credentials, with wrong ones, and as a user without rights."""

from __future__ import annotations

import json

import pytest

from cluster.fronts import callers
from cluster.remoting.command import RemotingCode, Request
from cluster.remoting.rights import RIGHTS
from tests.integration.cluster.api.conftest import TOPIC, Shop, run
from tests.integration.cluster.remoting.test_access import Port

DENIED = RemotingCode.NO_PERMISSION
NAMES = ("consumerGroup", "group", "groupName", "producerGroup", "clientID", "clientId", "a", "key", "brokerName")
FIELDS = {**dict.fromkeys(NAMES, "G"), "topic": TOPIC, "b": TOPIC, "e": "0", "f": "0", "g": "1", "h": "0"}
SUBSCRIBED = {"groupName": "G", "subscriptionDataSet": [{"topic": TOPIC}]}
BODY = json.dumps(
    {
        "clientID": "c",
        "consumerGroup": "G",
        "topic": TOPIC,
        "consumerDataSet": [SUBSCRIBED],
        "mqSet": [{"topic": TOPIC, "queueId": 0}],
    }
).encode()
# Such a request names nothing of others: the leader decides by its content, or there is nothing to decide.
NAMES_NOTHING = {18, 37, 46, 200, 225, 401, 200_151}


@pytest.fixture
def port(tmp_path, monkeypatch):
    """Return the port; delays after refusals, and their number, are not what is tested."""
    monkeypatch.setattr(callers.LoginFailures, "note", lambda *_: 0.0)
    monkeypatch.setattr(callers.LoginFailures, "may_try", lambda *_: True)
    return Port(Shop(tmp_path / "store"))


async def codes_of(port):
    async with port.parts() as parts:
        return sorted(parts.codes(port))


def test_no_request_is_served_to_a_stranger(port):
    async def scenario():
        async with port.open():
            await port.close()
            topics = sorted(port.shop.replica.state.topics)
            strangers = {
                "unsigned": port.peer(),
                "unknown key": port.peer("AK9", "SK-of-nobody"),
                "wrong secret": port.peer("AK0", "SK-of-nobody"),
            }
            for name, peer in strangers.items():
                async with peer:
                    for code in await codes_of(port):
                        found = await peer.ask(code, BODY, **FIELDS)
                        assert (found.code, found.body) == (DENIED, b""), (name, code)
            assert sorted(port.shop.replica.state.topics) == topics
            assert port.shop.replica.store.max_offset(TOPIC, 0) == 0

    run(scenario)


def test_no_request_is_served_to_a_user_without_rights(port):
    async def scenario():
        async with port.open(), port.parts() as parts:
            await port.close()
            open_codes = set()
            async with port.peer("AK2") as other:
                for code in parts.codes(port):
                    row = RIGHTS.get(code)
                    found = await other.ask(code, BODY, **FIELDS)
                    if row is not None and not list(row(Request(code, FIELDS, BODY), "DefaultCluster")):
                        open_codes.add(code)
                    else:
                        assert found.code == DENIED, code
            assert open_codes == NAMES_NOTHING

    run(scenario)
