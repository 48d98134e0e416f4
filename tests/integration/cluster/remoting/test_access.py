"""Access keys at the port of the remoting protocol of a broker with users, over a socket."""

import contextlib
import json
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest

from cluster.access.access_keys import AccessKey
from cluster.access.model import Action, Policy, resource_of
from cluster.access.users import UserSettings
from cluster.fronts import callers
from cluster.fronts.callers import FrontAudit
from cluster.fronts.leader_link import LeaderLink
from cluster.local.node import choose_ports
from cluster.protocol.topic_config import GroupConfig
from cluster.remoting.admin.assembly import Administration
from cluster.remoting.admin.refusals import REFUSALS
from cluster.remoting.assembly import serve_remoting
from cluster.remoting.clients import ClientTable
from cluster.remoting.command import RemotingCode
from cluster.remoting.consumers.commits import PendingCommits
from cluster.remoting.consumers.service import Consumers
from cluster.remoting.names.part import NameServerRole
from cluster.remoting.pop.part import PopConsumers
from cluster.remoting.port import RemotingPort
from cluster.remoting.producers.part import Producers
from cluster.remoting.rights import RIGHTS
from cluster.state.access_commands import AddAccessKey, DeleteAccessKey, SetTokenKey, SetUser
from cluster.state.commands import SetGroup
from dledger.authentication.front_tokens import FrontClient
from dledger.authentication.verifier import Verifier
from dledger.config import Address
from dledger.security.settings import PLAIN
from tests.integration.cluster.api.conftest import TOPIC, Shop, run
from tests.support.brokers.front_callers import callers_of
from tests.support.brokers.remoting_peer import RemotingPeer

OK, DENIED = RemotingCode.SUCCESS, RemotingCode.NO_PERMISSION
ADMIN = UserSettings("admin", is_super=True, verifier=Verifier(b"s" * 16, 8_192, b"k" * 32, b"v" * 32))
SECRETS = {"AK0": "SK-of-the-admin", "AK1": "SK-of-the-shop", "AK2": "SK-of-another"}
# Nothing else: requests without a row, whatever this broker answers to a super user.
SUPER_ONLY = {33, 306, 309, 316, 329, *REFUSALS}


SHOP = (Policy(resource_of(f"Topic:{TOPIC}"), Action.PUB | Action.SUB), Policy(resource_of("Group:G"), Action.SUB))
SEND = {"a": "PG", "b": TOPIC, "e": 0, "f": 0, "g": 1, "h": 0}


class Parts(NamedTuple):
    """What the handlers of a front need."""

    core: Any
    link: LeaderLink
    table: ClientTable
    producers: Producers

    def codes(self, port):
        """Return the codes of all requests."""
        core, link, table, producers = self
        commits = PendingCommits(link)
        return {
            *NameServerRole(core, link, {"n0": port.endpoint}).handlers(),
            *producers.handlers(),
            *Consumers(core, link, table, callers_of(core), commits, nodes=()).handlers(),
            *PopConsumers(core, link, table).handlers(),
            *Administration(core, link, table, commits, str(port.shop.path), 1).handlers(),
        }


class Port:
    """The port of a broker, and what it records."""

    def __init__(self, shop):
        self.shop = shop
        self.endpoint = f"127.0.0.1:{choose_ports(1, None)[0]}"
        self.logins, self.lacking = [], []

    @contextlib.asynccontextmanager
    async def open(self):
        async with self.shop.open(), contextlib.AsyncExitStack() as stack:
            port = RemotingPort(Address.parse(self.endpoint), {"n0": self.endpoint}, str(self.shop.path))
            audit = FrontAudit(
                lambda *record: self.logins.append(record[2]),
                lambda user, _, *record: self.lacking.append((user, *record)),
            )
            await serve_remoting(self.shop.broker.core, port, str(self.shop.address), stack, audit)
            yield self

    @contextlib.asynccontextmanager
    async def parts(self):
        """Yield the parts of a front beside the port."""
        core, table = self.shop.broker.core, ClientTable()
        link = LeaderLink(lambda: str(self.shop.address), PLAIN)
        producers = Producers(core, link, table, callers_of(core))
        try:
            yield Parts(core, link, table, producers)
        finally:
            await producers.stop()
            await link.close()

    async def close(self, *policies):
        """Create users, which closes the broker for others."""
        users = (ADMIN, UserSettings("shop", policies=policies), UserSettings("other"))
        for command in (*map(SetUser, users), SetTokenKey(b"k" * 32)):
            await self.change(command)
        for key, name in zip(SECRETS, ("admin", "shop", "other"), strict=True):
            await self.change(AddAccessKey(AccessKey(key, name, SECRETS[key])))

    async def change(self, command):
        await self.shop.broker.core.change(command)

    def peer(self, access_key="", secret=None):
        return RemotingPeer(self.endpoint, access_key, SECRETS.get(access_key, "") if secret is None else secret)


@pytest.fixture
def port(tmp_path, monkeypatch):
    # The delay of a refusal is not what is tested.
    monkeypatch.setattr(callers.LoginFailures, "note", lambda *_: 0.0)
    return Port(Shop(tmp_path / "store"))


def test_a_user_with_the_rights_sends_and_consumes_and_the_leader_has_its_name(port):
    async def scenario():
        async with port.open():
            async with port.peer() as anyone:
                assert (await anyone.send(TOPIC)).code == OK
            await port.close(*SHOP)
            async with port.peer("AK1") as shop:
                assert (await shop.send(TOPIC)).code == OK
                assert (await shop.ask(105, topic=TOPIC)).code == OK
                found = await shop.pull(TOPIC, "G")
                assert (found.code, found.fields["nextBeginOffset"]) == (OK, "2")
                place = {"consumerGroup": "G", "topic": TOPIC, "queueId": 0}
                await port.change(SetGroup(GroupConfig("G"), is_new=True))
                assert (await shop.ask(15, commitOffset=1, **place)).code == OK
                assert (await shop.ask(14, **place)).fields["offset"] == "1"
            assert not port.logins
            assert not port.lacking

    run(scenario)


def test_a_request_without_a_valid_signature_is_refused_and_does_nothing(port):
    async def scenario():
        async with port.open():
            await port.close(*SHOP)
            causes = {}
            for name, peer, changed in (
                ("unsigned", port.peer(), None),
                ("wrong secret", port.peer("AK1", "SK-of-nobody"), None),
                ("unknown key", port.peer("AK9", SECRETS["AK1"]), None),
                ("another body", port.peer("AK1"), b"other"),
            ):
                async with peer:
                    refused = await peer.ask(310, b"body", changed_body=changed, **SEND)
                assert (name, refused.code) == (name, DENIED)
                assert "SK" not in refused.remark
                causes[name] = port.logins[-1]
            assert causes == {
                "unsigned": "no access key",
                "wrong secret": "wrong signature of access key 'AK1'",
                "unknown key": "no such access key of an enabled user",
                "another body": "wrong signature of access key 'AK1'",
            }
            assert port.shop.replica.store.max_offset(TOPIC, 0) == 0

    run(scenario)


@pytest.mark.parametrize(
    "change", [DeleteAccessKey("shop", "AK1"), SetUser(UserSettings("shop", is_enabled=False, policies=SHOP))]
)
def test_a_deleted_key_and_that_of_a_disabled_user_are_refused_at_once_on_an_open_connection(port, change):
    async def scenario():
        async with port.open():
            await port.close(*SHOP)
            async with port.peer("AK1") as shop:
                assert (await shop.send(TOPIC)).code == OK
                await port.change(change)
                for code in (await shop.send(TOPIC)).code, (await shop.ask(105, topic=TOPIC)).code:
                    assert code == DENIED
            assert set(port.logins) == {"no such access key of an enabled user"}

    run(scenario)


def test_a_right_on_another_topic_or_group_or_with_another_action_does_not_suffice(port):
    async def scenario():
        async with port.open():
            await port.shop.set_topic("other")
            await port.close(*SHOP)
            beat = {"clientID": "c", "consumerDataSet": [{"groupName": "G", "subscriptionDataSet": []}]}
            wrong = [{"topic": "other", "subString": "*", "subVersion": 1}]
            async with port.peer("AK1") as shop:
                refused = (
                    (await shop.send("other"), "Pub on Topic:other"),
                    (await shop.send("%RETRY%H"), "Sub on Group:H"),
                    (await shop.pull("other", "G"), "Sub on Topic:other"),
                    (await shop.pull(TOPIC, "H"), "Sub on Group:H"),
                    (await shop.ask(105, topic="other"), "Pub or Sub or Get on Topic:other"),
                    (await shop.ask(105, topic="missing"), "Pub or Sub or Get on Topic:missing"),
                    (await shop.ask(215, topic=TOPIC), f"Delete on Topic:{TOPIC}"),
                    (await shop.ask(17, topic=TOPIC), f"Create or Update on Topic:{TOPIC}"),
                    (await shop.ask(28), "Get on Cluster:DefaultCluster"),
                )
                for answer, need in refused:
                    assert (answer.code, need in answer.remark) == (DENIED, True), answer.remark
                assert [(each[0], each[3]) for each in port.lacking] == [
                    ("shop", f"lacks {each}") for _, each in refused
                ]
                assert port.lacking[0] == ("shop", "Remoting/310", "Topic:other", "lacks Pub on Topic:other")
                # The group is created by the first heartbeat, which this user may not.
                refused = await shop.ask(34, json.dumps(beat).encode())
                assert (refused.code, "Create on Group:G" in refused.remark) == (DENIED, True)
                await port.change(SetGroup(GroupConfig("G"), is_new=True))
                assert (await shop.ask(34, json.dumps(beat).encode())).code == OK
                beat["consumerDataSet"][0]["subscriptionDataSet"] = wrong
                assert (await shop.ask(34, json.dumps(beat).encode())).code == DENIED
            assert port.shop.replica.store.max_offset("other", 0) == 0

    run(scenario)


def test_a_consumer_without_rights_to_create_returns_messages_that_come_back(port):
    async def scenario():
        async with port.open():
            await port.close(*SHOP)
            async with port.peer("AK0") as admin:
                assert (await admin.ask(200, json.dumps({"groupName": "G"}).encode())).code == OK
            async with port.peer("AK1") as shop:
                beat = {"clientID": "c", "consumerDataSet": [{"groupName": "G", "subscriptionDataSet": []}]}
                assert (await shop.ask(34, json.dumps(beat).encode())).code == OK
                await shop.send(TOPIC)
                record = (await shop.pull(TOPIC, "G")).body
                offset = int.from_bytes(record[28:36], "big")
                back = await shop.ask(36, group="G", offset=offset, delayLevel=0, originTopic=TOPIC)
                assert back.code == OK, back.remark
                # A message of another topic by its place in the log is refused by the leader.
                assert (await shop.ask(36, group="H", offset=offset, delayLevel=0)).code == DENIED

    run(scenario)


def test_the_leader_refuses_a_returned_message_of_a_topic_that_its_user_may_not_read(port):
    async def scenario():
        async with port.open():
            await port.shop.set_topic("other")
            put = await port.shop.put(b"secret", topic="other")
            await port.close(*SHOP)
            async with port.peer("AK1") as shop:
                back = await shop.ask(36, group="G", offset=put.physical_offsets[0], delayLevel=0)
                assert (back.code, "Sub on Topic:other" in back.remark) == (DENIED, True)
                assert not back.body

    run(scenario)


def test_a_message_by_its_place_in_the_log_is_read_by_super_users_only(port):
    async def scenario():
        async with port.open():
            offset = (await port.shop.put(b"one")).physical_offsets[0]
            await port.close(*SHOP)
            async with port.peer("AK1") as shop, port.peer("AK0") as admin:
                refused = await shop.ask(33, offset=offset)
                assert (refused.code, refused.body) == (DENIED, b"")
                assert b"one" in (await admin.ask(33, offset=offset)).body
            assert port.lacking == [("shop", "Remoting/33", "", "lacks the rights of a super user")]

    run(scenario)


def test_the_id_of_a_client_of_another_user_is_refused(port):
    async def scenario():
        async with port.open():
            await port.close(*SHOP)
            beat = json.dumps({"clientID": "c", "producerDataSet": [{"groupName": "P"}]}).encode()
            async with port.peer("AK1") as shop, port.peer("AK2") as other:
                assert (await shop.ask(34, beat)).code == OK
                for refused in (await other.ask(34, beat), await other.ask(35, clientID="c", producerGroup="P")):
                    assert (refused.code, "of another user" in refused.remark) == (DENIED, True)
                # The same user, at another connection.
                async with port.peer("AK1") as again:
                    assert (await again.ask(34, beat)).code == OK
                    assert (await again.ask(35, clientID="c", producerGroup="P")).code == OK
                assert (await other.ask(34, beat)).code == OK

    run(scenario)


def test_questions_about_transactions_go_only_to_producers_that_may_send_to_the_topic(port, monkeypatch):
    """A question has the half message in it."""

    async def scenario():
        async with port.open(), port.parts() as parts:
            await port.close(*SHOP)
            members = [SimpleNamespace(connection=SimpleNamespace(caller=FrontClient(key, None))) for key in SECRETS]
            monkeypatch.setattr(parts.table, "producers_of", lambda _group: members)
            found = parts.producers._transactions._members("TG", TOPIC)
            assert [each.connection.caller.access_key for each in found] == ["AK0", "AK1"]
            await port.change(DeleteAccessKey("shop", "AK1"))
            assert parts.producers._transactions._members("TG", TOPIC) == members[:1]

    run(scenario)


def test_a_message_is_popped_and_acknowledged_by_users_with_rights_only_also_in_a_batch(port):
    async def scenario():
        async with port.open():
            await port.change(SetGroup(GroupConfig("G"), is_new=True))
            await port.shop.put(b"1")
            await port.close(*SHOP)
            pop = {"consumerGroup": "G", "topic": TOPIC, "maxMsgNums": 1, "invisibleTime": 60_000}
            async with port.peer("AK1") as shop, port.peer("AK2") as other:
                assert (await other.ask(200_050, **pop)).code == DENIED
                found = await shop.ask(200_050, **pop)
                assert found.code == OK
                serial = int(found.fields["popTime"])
                handle = f"0 {serial} 60000 0 0 b 0 0"
                ack = {"consumerGroup": "G", "topic": TOPIC, "queueId": 0, "offset": 0, "extraInfo": handle}
                item = {"c": "G", "t": TOPIC, "so": 0, "q": 0, "rq": 0, "pt": serial, "it": 60_000, "b": "AQ=="}
                batch = json.dumps({"brokerName": "b", "acks": [item]}).encode()
                mode = json.dumps({"consumerGroup": "G", "topic": TOPIC, "mode": "POP"}).encode()
                for code, fields, body in [(200_051, ack, b""), (200_151, {}, batch), (400, {}, mode), (401, {}, mode)]:
                    assert (code, (await other.ask(code, body, **fields)).code) == (code, DENIED)
                assert (await shop.ask(401, mode)).code == DENIED, "it may consume, and change no group"
                assert port.shop.replica.state.offset("G", TOPIC, 0).offset == 0
                assert (await shop.ask(200_151, batch)).code == OK
                assert port.shop.replica.state.offset("G", TOPIC, 0).offset == 1

    run(scenario)


def test_every_request_has_a_row_of_rights_or_is_one_of_super_users(port):
    async def scenario():
        async with port.open(), port.parts() as parts:
            codes = parts.codes(port)
            assert codes - RIGHTS.keys() == SUPER_ONLY
            assert RIGHTS.keys() <= codes
            await port.close(*SHOP)
            async with port.peer("AK1") as shop:
                for code in sorted(SUPER_ONLY):
                    refused = await shop.ask(code)
                    assert (code, refused.code, "super user" in refused.remark) == (code, DENIED, True)

    run(scenario)
