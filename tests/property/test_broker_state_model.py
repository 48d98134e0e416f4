"""Broker state as a function of its commands: the same commands give the same state and the same bytes."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.access.model import Action, Policy, ResourceType, policy_order, resource_of
from cluster.access.users import AccessRole, ApiToken, UserSettings
from cluster.protocol.topic_config import GroupConfig, TopicConfig
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
from cluster.state.commands import (
    Command,
    CommitOffsets,
    DeleteGroup,
    DeleteTopic,
    QueueOffset,
    ResetOffsets,
    SetFeatureLevel,
    SetGroup,
    SetTopic,
    decode_command,
    encode_command,
)
from cluster.state.verdicts import CommitOutcome
from cluster.state.waiting_commands import SetDelayOffsets
from dledger.authentication.verifier import Verifier
from dledger.entries.format.entry import Entry
from store.steps import at_once

# Few names, so that commands affect the same objects.
TOPICS = st.sampled_from(["orders", "events", "%RETRY%g1", "a|b"])
GROUPS = st.sampled_from(["g1", "g2", "billing"])
SMALL = st.integers(0, 5)
OFFSETS = st.one_of(SMALL, st.integers(0, (1 << 63) - 1))
ATTRIBUTES = st.dictionaries(st.sampled_from(["message.type", "é", "b"]), st.sampled_from(["", "FIFO", "日本"])).map(
    lambda pairs: tuple(sorted(pairs.items()))
)
TOPIC_CONFIGS = st.builds(
    TopicConfig, TOPICS, SMALL, SMALL, st.integers(0, 15), st.booleans(), SMALL, attributes=ATTRIBUTES
)
GROUP_CONFIGS = st.builds(
    GroupConfig, GROUPS, st.booleans(), retry_max_times=st.integers(-1, 99), sys_flag=SMALL, attributes=ATTRIBUTES
)
QUEUE_OFFSETS = st.lists(
    st.builds(QueueOffset, TOPICS, SMALL, OFFSETS, st.integers(0, 2)),
    min_size=1,
    max_size=6,
    unique_by=lambda each: each[:2],
).map(lambda rows: tuple(sorted(rows)))

DELAYS = st.dictionaries(st.integers(1, 18), OFFSETS, max_size=4).map(lambda pairs: tuple(sorted(pairs.items())))
SUBJECTS = st.sampled_from(["root", "alice", "bob"])
POLICIES = st.lists(
    st.builds(
        Policy,
        st.sampled_from(["*", "Topic:orders", "Topic:e*", "Group:*", "Cluster:c"]).map(resource_of),
        st.integers(1, 127).map(Action),
        st.booleans(),
        st.sampled_from([(), ("10.0.0.0/8",)]),
    ),
    max_size=3,
    unique_by=policy_order,
).map(lambda policies: tuple(sorted(policies, key=policy_order)))
VERIFIERS = st.sampled_from([None, *(Verifier(salt * 16, 8_192, b"k" * 32, b"v" * 32) for salt in (b"a", b"b"))])
USERS = st.builds(
    UserSettings,
    SUBJECTS,
    st.booleans(),
    st.booleans(),
    st.sampled_from([(), ("r1",), ("r1", "r2")]),
    POLICIES,
    VERIFIERS,
)
VERSIONS = st.integers(0, 4)
ADMINISTRATOR = SetUser(UserSettings("root", is_super=True, verifier=Verifier(b"r" * 16, 8_192, b"k" * 32, b"v" * 32)))
ACCESS_COMMANDS = st.one_of(
    st.just(ADMINISTRATOR),
    st.builds(SetUser, USERS, st.booleans(), VERSIONS),
    st.builds(DeleteUser, SUBJECTS, VERSIONS),
    st.builds(SetRole, st.builds(AccessRole, st.sampled_from(["r1", "r2"]), POLICIES), st.booleans(), VERSIONS),
    st.builds(DeleteRole, st.sampled_from(["r1", "r2"]), VERSIONS),
    st.builds(
        AddApiToken,
        SUBJECTS,
        st.builds(ApiToken, st.sampled_from(["t1", "t2"]), st.sampled_from([b"1" * 32, b"2" * 32]), SMALL),
    ),
    st.builds(DeleteApiToken, SUBJECTS, st.sampled_from(["t1", "t2"])),
    st.builds(SetTokenKey, st.sampled_from([b"x" * 32, b"y" * 32])),
)
COMMANDS = st.one_of(
    ACCESS_COMMANDS,
    st.builds(SetTopic, TOPIC_CONFIGS, st.booleans()),
    st.builds(DeleteTopic, TOPICS),
    st.builds(SetGroup, GROUP_CONFIGS, st.booleans()),
    st.builds(DeleteGroup, GROUPS),
    st.builds(CommitOffsets, GROUPS, QUEUE_OFFSETS),
    st.builds(ResetOffsets, GROUPS, QUEUE_OFFSETS),
    st.builds(SetDelayOffsets, DELAYS),
    st.just(SetFeatureLevel(1)),
)
RUNS = st.lists(COMMANDS, max_size=40)
ACCESS_RUNS = st.lists(ACCESS_COMMANDS, max_size=25).map(lambda commands: [ADMINISTRATOR, *commands])


def entries_of(commands: list[Command], first_index: int = 0) -> list[Entry]:
    return [Entry(first_index + at, 1, 0, 1, 4, 0, 0, encode_command(command)) for at, command in enumerate(commands)]


def bytes_of(state: BrokerState) -> bytes:
    return b"".join(state.snapshot_save())


@given(COMMANDS)
def test_a_command_is_unchanged_by_encoding_and_decoding(command: Command) -> None:
    assert decode_command(encode_command(command)) == command


@given(RUNS, st.integers(0, 40))
@settings(max_examples=200)
def test_commands_give_the_same_state_with_a_snapshot_at_any_point(commands: list[Command], cut: int) -> None:
    whole, first, second = BrokerState(), BrokerState(), BrokerState()
    results = whole.apply(entries_of(commands))

    first_results = first.apply(entries_of(commands[:cut]))
    second.snapshot_load(bytes_of(first))
    assert bytes_of(second) == bytes_of(first)
    second_results = second.apply(entries_of(commands[cut:]))

    assert first_results + second_results == results
    assert bytes_of(second) == bytes_of(whole)
    assert (second.topics, second.groups, second.topics_version) == (whole.topics, whole.groups, whole.topics_version)
    assert second.access.content() == whole.access.content()


@given(ACCESS_RUNS)
def test_access_control_is_never_off_again_and_rules_are_those_of_the_users(commands: list[Command]) -> None:
    state = BrokerState()
    for command in commands:
        state.apply(entries_of([command]))
        access = state.access
        assert any(user.settings.is_administrator for user in access.users.values())
        loaded = BrokerState()
        loaded.snapshot_load(bytes_of(state))
        for name in ("root", "alice", "bob"):
            question = (name, ResourceType.TOPIC, "events", Action.SUB)
            explanation = at_once(access.rules.explain(*question))
            assert explanation == at_once(loaded.access.rules.explain(*question))
            assert access.rules.allows(*question) == explanation.is_allowed
        for digest in (b"1" * 32, b"2" * 32):
            assert access.user_of_token(digest, 3) == loaded.access.user_of_token(digest, 3)
        policies = sum(len(each.settings.policies) for each in access.users.values())
        assert access._policies_count == policies + sum(len(each.policies) for each in access.roles.values())


@given(RUNS, COMMANDS)
def test_a_repeated_command_changes_nothing(commands: list[Command], last: Command) -> None:
    state = BrokerState()
    state.apply(entries_of([*commands, last]))
    before = bytes_of(state)

    (again,) = state.apply(entries_of([last]))

    assert bytes_of(state) == before
    assert again.verdict != "CHANGED"


@given(RUNS)
def test_an_offset_goes_back_only_by_a_reset_or_a_deletion(commands: list[Command]) -> None:
    state = BrokerState()
    for command in commands:
        before = {(group, *row[:2]): row for group in state.groups for row in state.offsets(group)}
        (result,) = state.apply(entries_of([command]))
        for (group, topic, queue_id), row in before.items():
            now = state.offset(group, topic, queue_id)
            if isinstance(command, DeleteTopic | DeleteGroup):
                assert now in (row, None)
            else:
                assert now is not None
                is_reset = isinstance(command, ResetOffsets) and now.reset_count == row.reset_count + 1
                assert is_reset or (now.reset_count == row.reset_count and now.offset >= row.offset)
        if isinstance(command, CommitOffsets | ResetOffsets) and result.is_done:
            for given_row, outcome in zip(command.offsets, result.outcomes, strict=True):
                now = state.offset(command.group, given_row.topic, given_row.queue_id)
                assert (outcome is CommitOutcome.COMMITTED) <= (now is not None and now.offset == given_row.offset)
