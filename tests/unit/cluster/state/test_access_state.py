"""Users, roles, tokens and keys in broker state: the table, bounds, snapshots of older and current versions."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cluster.access.model import ALL_ACTIONS, Action, Policy, ResourceType, policy_order, resource_of
from cluster.access.users import AccessRole, ApiToken, UserSettings
from cluster.protocol.errors import Reason
from cluster.protocol.topic_config import TopicConfig
from cluster.state import access_state
from cluster.state.access_commands import (
    AddApiToken,
    DeleteApiToken,
    DeleteRole,
    DeleteUser,
    SetRole,
    SetTokenKey,
    SetUser,
)
from cluster.state.broker_state import BrokerState
from cluster.state.commands import SetTopic, decode_command, encode_command
from cluster.state.compact_bytes import Unreadable, Writer
from cluster.state.verdicts import CommandVerdict
from dledger.authentication.verifier import Verifier
from store.errors import IllegalMessage

VERIFIER = Verifier(b"s" * 16, 8_192, b"k" * 32, b"v" * 32)
ADMIN = UserSettings("admin", is_super=True, verifier=VERIFIER)
ALICE = UserSettings("alice", roles=("readers",), policies=(Policy(resource_of("Topic:a"), Action.PUB),))
READERS = AccessRole("readers", (Policy(resource_of("Topic:*"), Action.SUB),))
TOKEN = ApiToken("ci", b"d" * 32, expires_s=1_000)
TOPIC = ResourceType.TOPIC


def state_with(*commands) -> BrokerState:
    state = BrokerState()
    for command in (SetUser(ADMIN), SetRole(READERS), SetUser(ALICE), *commands):
        assert state.apply_command(command).is_done, command
    return state


def bytes_of(state: BrokerState) -> bytes:
    return b"".join(state.snapshot_save())


def verdict(state: BrokerState, command) -> str:
    before, version = bytes_of(state), state.access.version
    found = state.apply_command(command)
    # Only a change changes anything: state, version, bytes.
    assert (found.verdict is CommandVerdict.CHANGED) == (bytes_of(state) != before) == (state.access.version > version)
    assert found.is_done == (not found.detail)
    return found.verdict.value


def test_rules_follow_each_change() -> None:
    state = state_with()
    rules = state.access.rules

    assert rules.allows("alice", TOPIC, "b", Action.SUB)
    assert not rules.allows("alice", TOPIC, "b", Action.PUB)
    assert verdict(state, SetRole(replace(READERS, policies=()))) == "CHANGED"

    # What was taken before keeps its decisions; the new one has the new ones and another version.
    assert rules.allows("alice", TOPIC, "b", Action.SUB)
    assert not state.access.rules.allows("alice", TOPIC, "b", Action.SUB)
    assert state.access.rules.version == rules.version + 1 == state.access.version


def test_users_and_roles_are_created_changed_and_deleted() -> None:
    state = state_with()

    assert verdict(state, SetUser(ALICE)) == "UNCHANGED"
    assert verdict(state, SetUser(replace(ALICE, roles=()), is_new=True)) == "USER_EXISTS"
    assert verdict(state, SetUser(replace(ALICE, roles=("nobody",)))) == "UNKNOWN_ROLE"
    assert verdict(state, SetRole(replace(READERS, policies=()), is_new=True)) == "ROLE_EXISTS"
    assert verdict(state, SetRole(READERS, is_new=True)) == "UNCHANGED"
    assert verdict(state, DeleteRole("readers")) == "ROLE_IN_USE"
    assert verdict(state, DeleteRole("writers")) == "UNKNOWN_ROLE"
    assert verdict(state, DeleteUser("bob")) == "UNKNOWN_USER"
    assert verdict(state, DeleteUser("alice")) == "CHANGED"
    assert verdict(state, DeleteRole("readers")) == "CHANGED"
    assert list(state.access.users) == ["admin"]
    assert not state.access.roles


def test_an_administrator_is_always_left() -> None:
    state = BrokerState()

    assert verdict(state, SetUser(ALICE)) == "UNKNOWN_ROLE"
    assert verdict(state, SetUser(UserSettings("alice"))) == "LAST_ADMINISTRATOR"
    assert not state.access.rules.is_enforced
    assert verdict(state, SetUser(ADMIN)) == "CHANGED"
    for less in (replace(ADMIN, is_super=False), replace(ADMIN, is_enabled=False), replace(ADMIN, verifier=None)):
        assert verdict(state, SetUser(less)) == "LAST_ADMINISTRATOR"
    assert verdict(state, DeleteUser("admin")) == "LAST_ADMINISTRATOR"
    assert verdict(state, SetUser(replace(ADMIN, name="other"))) == "CHANGED"
    assert verdict(state, DeleteUser("admin")) == "CHANGED"
    assert state.access.rules.is_enforced


def test_a_command_composed_from_an_older_version_is_refused() -> None:
    state = state_with()
    seen = state.access.version
    mine, theirs = replace(ALICE, roles=()), replace(ALICE, is_enabled=False)

    assert verdict(state, SetUser(theirs, version=seen)) == "CHANGED"
    for late in (SetUser(mine, version=seen), DeleteUser("alice", seen), SetRole(AccessRole("new"), version=seen)):
        assert verdict(state, late) == "ACCESS_CHANGED"
    assert verdict(state, DeleteRole("readers", seen)) == "ACCESS_CHANGED"
    # A retry of what was done is no conflict.
    assert verdict(state, SetUser(theirs, version=seen)) == "UNCHANGED"


def test_a_session_ends_with_the_password_or_the_user_and_with_nothing_else() -> None:
    state = state_with()
    access = state.access
    epoch = access.users["admin"].epoch

    state.apply_command(SetUser(replace(ADMIN, roles=("readers",))))
    assert access.has_epoch("admin", epoch)
    state.apply_command(SetUser(replace(ADMIN, verifier=replace(VERIFIER, salt=b"t" * 16))))
    assert not access.has_epoch("admin", epoch)

    epoch = access.users["alice"].epoch
    state.apply_command(SetUser(replace(ALICE, is_enabled=False)))
    assert not access.has_epoch("alice", access.users["alice"].epoch)
    state.apply_command(SetUser(ALICE))
    assert not access.has_epoch("alice", epoch)
    epoch = access.users["alice"].epoch
    state.apply_command(DeleteUser("alice"))
    assert not access.has_epoch("alice", epoch)
    state.apply_command(SetUser(ALICE))
    assert not access.has_epoch("alice", epoch)


def test_tokens_are_found_by_their_digest_until_they_expire() -> None:
    state = state_with(AddApiToken("alice", TOKEN))
    access = state.access

    assert access.user_of_token(TOKEN.digest, 999) == "alice"
    assert access.user_of_token(TOKEN.digest, 1_000) is None
    assert access.user_of_token(b"e" * 32, 0) is None
    assert verdict(state, AddApiToken("alice", TOKEN)) == "UNCHANGED"
    assert verdict(state, AddApiToken("alice", replace(TOKEN, digest=b"e" * 32))) == "TOKEN_EXISTS"
    assert verdict(state, AddApiToken("admin", TOKEN)) == "TOKEN_EXISTS"
    assert verdict(state, AddApiToken("bob", TOKEN)) == "UNKNOWN_USER"
    assert verdict(state, AddApiToken("admin", ApiToken("ci", b"e" * 32))) == "CHANGED"
    assert access.user_of_token(b"e" * 32, 1 << 40) == "admin"
    assert verdict(state, DeleteApiToken("admin", "cd")) == "UNKNOWN_TOKEN"
    assert verdict(state, DeleteApiToken("bob", "ci")) == "UNKNOWN_USER"
    assert verdict(state, DeleteApiToken("admin", "ci")) == "CHANGED"
    assert access.user_of_token(b"e" * 32, 0) is None

    state.apply_command(SetUser(replace(ALICE, is_enabled=False)))
    assert access.user_of_token(TOKEN.digest, 0) is None
    state.apply_command(SetUser(ALICE))
    assert access.user_of_token(TOKEN.digest, 0) == "alice"
    state.apply_command(DeleteUser("alice"))
    assert access.user_of_token(TOKEN.digest, 0) is None


def test_the_last_two_token_keys_are_kept_and_the_salt_key_stays() -> None:
    state = state_with()
    keys = [bytes([number]) * 32 for number in range(3)]

    salt_keys = set()
    for key in keys:
        assert verdict(state, SetTokenKey(key)) == "CHANGED"
        salt_keys.add(state.access.salt_key)
    assert verdict(state, SetTokenKey(keys[2])) == "UNCHANGED"
    assert state.access.token_keys == (keys[2], keys[1])
    assert len(salt_keys) == 1
    assert len(salt_keys.pop()) == 32


def test_disabled_users_have_no_verifier() -> None:
    state = state_with(SetUser(replace(ADMIN, name="off", is_enabled=False)))

    assert state.access.verifier_of("admin") == VERIFIER
    assert state.access.verifier_of("off") is None
    assert state.access.verifier_of("alice") is None
    assert state.access.verifier_of("bob") is None


def test_everything_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    state = state_with()
    monkeypatch.setattr(access_state, "USERS_MAX", 2)
    assert verdict(state, SetUser(UserSettings("bob"))) == "TOO_MUCH_STATE"
    assert verdict(state, SetUser(replace(ALICE, roles=()))) == "CHANGED"
    monkeypatch.setattr(access_state, "ROLES_MAX", 1)
    assert verdict(state, SetRole(AccessRole("more"))) == "TOO_MUCH_STATE"
    monkeypatch.setattr(access_state, "POLICIES_MAX", 2)
    two = tuple(sorted((*ALICE.policies, *READERS.policies), key=policy_order))
    assert verdict(state, SetRole(AccessRole("readers", two))) == "TOO_MUCH_STATE"
    assert verdict(state, SetUser(replace(ALICE, policies=two))) == "TOO_MUCH_STATE"
    assert verdict(state, SetRole(AccessRole("readers"))) == "CHANGED"
    assert verdict(state, SetUser(replace(ALICE, policies=two))) == "CHANGED"
    for number in range(16):
        assert verdict(state, AddApiToken("alice", ApiToken(f"t{number}", bytes([number]) * 32))) == "CHANGED"
    assert verdict(state, AddApiToken("alice", TOKEN)) == "TOO_MUCH_STATE"
    monkeypatch.setattr(access_state, "TOKENS_MAX", 16)
    assert verdict(state, AddApiToken("admin", TOKEN)) == "TOO_MUCH_STATE"


BAD = [
    SetUser(UserSettings("a b")),
    SetUser(UserSettings("a", roles=("b", "a"))),
    SetUser(UserSettings("a", roles=tuple(f"r{number:02}" for number in range(17)))),
    SetUser(UserSettings("a", roles=("b/c",))),
    SetUser(UserSettings("a", policies=(Policy(resource_of("*"), Action(0)),))),
    SetUser(UserSettings("a", verifier=replace(VERIFIER, rounds=1))),
    SetUser(ADMIN, version=-1),
    SetRole(AccessRole("", ())),
    SetRole(READERS, version=1 << 63),
    DeleteUser(""),
    DeleteRole("x" * 256),
    AddApiToken("", TOKEN),
    AddApiToken("alice", replace(TOKEN, digest=b"short")),
    AddApiToken("alice", replace(TOKEN, id="c i")),
    AddApiToken("alice", replace(TOKEN, expires_s=-1)),
    DeleteApiToken("alice", ""),
    SetTokenKey(b"short"),
]


@pytest.mark.parametrize("command", BAD, ids=lambda command: repr(command)[:60])
def test_illegal_commands_are_neither_encoded_nor_applied(command) -> None:
    state = state_with()

    with pytest.raises(IllegalMessage):
        encode_command(command)
    assert verdict(state, command) == "ILLEGAL_REQUEST"


def test_kinds_of_a_newer_version_stop_the_node() -> None:
    good = encode_command(SetRole(READERS))
    assert decode_command(good) == SetRole(READERS)
    # Type of the resource, pattern, actions.
    at = good.index(b"readers") + len("readers") + 1
    for offset, value in ((0, 6), (0, 0), (1, 4), (1, 0), (3, 0x7F + 1)):
        changed = bytearray(good)
        changed[at + offset : at + offset + 1] = Writer(b"").data + (b"\x80\x01" if value > 0x7F else bytes([value]))
        with pytest.raises(Unreadable, match="expected"):
            decode_command(bytes(changed))


def test_a_snapshot_has_everything() -> None:
    state = state_with(SetTokenKey(b"1" * 32), SetTokenKey(b"2" * 32), AddApiToken("alice", TOKEN))
    loaded = BrokerState()

    loaded.snapshot_load(bytes_of(state))

    assert bytes_of(loaded) == bytes_of(state)
    assert loaded.access.content() == state.access.content()
    assert loaded.access.user_of_token(TOKEN.digest, 0) == "alice"
    assert loaded.access.rules.allows("alice", TOPIC, "b", Action.SUB)
    assert loaded.access.rules.version == loaded.access.version == state.access.version
    # Counts are right, too: the bound holds after it as before.
    assert loaded.access._policies_count == state.access._policies_count == 2


def test_a_snapshot_that_is_being_saved_does_not_follow_later_changes() -> None:
    state = state_with()
    before, saving = bytes_of(state), state.snapshot_save()
    state.apply_command(DeleteUser("alice"))

    assert b"".join(saving) == before


def test_snapshots_of_older_programs_open_and_are_written_while_there_was_no_user() -> None:
    state = BrokerState()
    state.apply_command(SetTopic(TopicConfig("orders")))
    second = bytes_of(state)
    first = b"DLBS\x01" + second[5:-1]
    loaded = BrokerState()

    assert second[:5] == b"DLBS\x02"
    for content in (first, second):
        loaded.snapshot_load(content)
        assert list(loaded.topics) == ["orders"]
        assert loaded.access.version == 0
        assert not loaded.access.rules.is_enforced
    assert bytes_of(loaded) == second
    # An older program refuses what it does not know.
    assert bytes_of(state_with())[:5] == b"DLBS\x03"


@pytest.mark.parametrize("cut", [1, 5, 20, 60])
def test_a_truncated_snapshot_leaves_the_state_unchanged(cut: int) -> None:
    state = state_with(SetTokenKey(b"1" * 32))
    content, version = bytes_of(state), state.access.version
    state.apply_command(SetRole(AccessRole("new", (Policy(resource_of("*"), ALL_ACTIONS),))))

    with pytest.raises(Unreadable):
        state.snapshot_load(content[:-cut])
    with pytest.raises(Unreadable):
        state.snapshot_load(b"DLBS\x04" + content[5:])

    assert state.access.version == version + 1


def test_refusals_have_the_names_of_causes() -> None:
    assert {each.name for each in CommandVerdict} - {"CHANGED", "UNCHANGED"} <= set(Reason.__members__)


def test_no_secret_is_in_the_repr_of_commands() -> None:
    shown = repr([SetUser(ADMIN), AddApiToken("alice", TOKEN), SetTokenKey(b"K" * 32)])

    assert all(secret not in shown for secret in ("kkkk", "vvvv", "ssss", "dddd", "KKKK"))
