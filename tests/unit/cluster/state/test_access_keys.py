"""Access keys in broker state: what commands do, limits, and snapshots."""

from __future__ import annotations

from dataclasses import replace

from cluster.access.access_keys import AccessKey
from cluster.access.users import UserSettings
from cluster.state import access_keys
from cluster.state.access_commands import AddAccessKey, DeleteAccessKey, DeleteUser, SetUser
from cluster.state.broker_state import BrokerState
from cluster.state.commands import SetFeatureLevel, decode_command, encode_command
from cluster.state.features import FEATURE_LEVEL
from dledger.authentication.verifier import Verifier

ADMIN = UserSettings("admin", is_super=True, verifier=Verifier(b"s" * 16, 8_192, b"k" * 32, b"v" * 32))
ALICE = UserSettings("alice")
KEY = AccessKey("AK1", "alice", "SK123456")


def state_with(*commands) -> BrokerState:
    state = BrokerState()
    for command in (SetUser(ADMIN), SetUser(ALICE), *commands):
        assert state.apply_command(command).is_done, command
    return state


def verdict(state: BrokerState, command) -> str:
    return state.apply_command(decode_command(encode_command(command))).verdict.value


def test_access_keys_are_added_and_deleted() -> None:
    state = state_with()
    version = state.access.version

    assert verdict(state, AddAccessKey(replace(KEY, user="bob"))) == "UNKNOWN_USER"
    assert verdict(state, AddAccessKey(KEY)) == "CHANGED"
    assert state.access.version == state.access.rules.version == version + 1
    assert verdict(state, AddAccessKey(KEY)) == "UNCHANGED"
    assert verdict(state, AddAccessKey(replace(KEY, secret="SK1234567"))) == "ACCESS_KEY_EXISTS"
    assert verdict(state, AddAccessKey(replace(KEY, user="admin"))) == "ACCESS_KEY_EXISTS"
    assert verdict(state, DeleteAccessKey("admin", "AK1")) == "UNKNOWN_ACCESS_KEY"
    assert verdict(state, DeleteAccessKey("alice", "AK2")) == "UNKNOWN_ACCESS_KEY"
    assert state.access.access_key_of("AK1") == KEY
    assert verdict(state, DeleteAccessKey("alice", "AK1")) == "CHANGED"
    assert state.access.access_key_of("AK1") is None


def test_an_access_key_of_a_disabled_or_deleted_user_is_not_valid() -> None:
    state = state_with(AddAccessKey(KEY))

    assert verdict(state, SetUser(replace(ALICE, is_enabled=False))) == "CHANGED"
    assert state.access.access_key_of("AK1") is None
    assert verdict(state, SetUser(ALICE)) == "CHANGED"
    assert state.access.access_key_of("AK1") == KEY
    assert verdict(state, DeleteUser("alice")) == "CHANGED"
    # Another user of the same name has none of its keys.
    assert verdict(state, SetUser(ALICE)) == "CHANGED"
    assert state.access.access_key_of("AK1") is None
    assert verdict(state, AddAccessKey(replace(KEY, user="admin"))) == "CHANGED"


def test_access_keys_have_limits(monkeypatch) -> None:
    monkeypatch.setattr(access_keys, "ACCESS_KEYS_MAX", 3)
    monkeypatch.setattr(access_keys, "ACCESS_KEYS_PER_USER_MAX", 2)
    state = state_with(AddAccessKey(KEY), AddAccessKey(replace(KEY, id="AK2")))

    assert verdict(state, AddAccessKey(replace(KEY, id="AK3"))) == "TOO_MUCH_STATE"
    assert verdict(state, AddAccessKey(AccessKey("AK3", "admin", "SK123456"))) == "CHANGED"
    assert verdict(state, AddAccessKey(AccessKey("AK4", "admin", "SK123456"))) == "TOO_MUCH_STATE"


def test_a_snapshot_has_the_access_keys_and_equal_states_have_equal_bytes() -> None:
    other, level = replace(KEY, id="AK0", user="admin"), SetFeatureLevel(FEATURE_LEVEL)
    state = state_with(level, AddAccessKey(KEY), AddAccessKey(other))
    data = b"".join(state.snapshot_save())
    is_same = data == b"".join(state_with(level, AddAccessKey(other), AddAccessKey(KEY)).snapshot_save())
    assert is_same

    loaded = BrokerState()
    loaded.snapshot_load(data)
    assert [key.id for key in loaded.access.access_keys.of_user("alice")] == ["AK1"]
    assert loaded.access.access_key_of("AK0") == other
    is_same = b"".join(loaded.snapshot_save()) == data
    assert is_same
    assert verdict(loaded, DeleteUser("alice")) == "CHANGED"
    assert list(loaded.access.access_keys.by_name) == ["AK0"]
