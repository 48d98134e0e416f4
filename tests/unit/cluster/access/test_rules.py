"""Access rules: each row of the decision table, and the compiled form against a scan of all policies."""

from __future__ import annotations

import ipaddress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.access import rules
from cluster.access.model import ALL_ACTIONS, Action, Pattern, Policy, Resource, ResourceType, policy_order, resource_of
from cluster.access.rules import AccessRules, Explanation, SubjectRules, UserRules
from store.steps import at_once

TOPIC, GROUP = ResourceType.TOPIC, ResourceType.GROUP
HOME = ipaddress.ip_address("10.1.2.3")
AWAY = ipaddress.ip_address("192.0.2.1")


def allow(resource: str, actions: Action = ALL_ACTIONS, *sources: str) -> Policy:
    return Policy(resource_of(resource), actions, True, sources)


def deny(resource: str, actions: Action = ALL_ACTIONS, *sources: str) -> Policy:
    return Policy(resource_of(resource), actions, False, sources)


def rules_of(*policies: Policy, roles: dict[str, tuple[Policy, ...]] | None = None, **flags: bool) -> AccessRules:
    known = {name: SubjectRules(each) for name, each in (roles or {}).items()}
    return AccessRules({"alice": UserRules(SubjectRules(policies), tuple(known), **flags)}, known)


def explained(access: AccessRules, *question: Any) -> Explanation:
    return at_once(access.explain(*question))


@pytest.mark.parametrize(
    ("policies", "is_allowed"),
    [
        ((), False),
        ((allow("Topic:orders"),), True),
        ((allow("Topic:orders", Action.SUB),), False),
        ((allow("Topic:order"),), False),
        ((allow("Topic:order*"),), True),
        ((allow("Topic:orders*"),), True),
        ((allow("Topic:orders-*"),), False),
        ((allow("Topic:*"),), True),
        ((allow("Group:*"),), False),
        ((allow("*"),), True),
        # A deny wins, however general it is: RocketMQ would allow.
        ((allow("Topic:orders"), deny("*", Action.PUB)), False),
        ((allow("*"), deny("Topic:ord*", Action.PUB)), False),
        ((allow("*"), deny("Topic:ord*", Action.SUB)), True),
        ((allow("Topic:orders", Action.PUB, "10.1.0.0/16"),), True),
        ((allow("Topic:orders", Action.PUB, "10.2.0.0/16", "fd00::/8"),), False),
        ((allow("*"), deny("*", Action.PUB, "10.1.2.3/32")), False),
        ((allow("*"), deny("*", Action.PUB, "10.1.2.4/32")), True),
    ],
)
def test_decision_by_policies(policies: tuple[Policy, ...], is_allowed: bool) -> None:
    access = rules_of(*policies)

    # The second decision is the cached one.
    assert [is_allowed] * 2 == [access.allows("alice", TOPIC, "orders", Action.PUB, HOME) for _ in range(2)]
    assert is_allowed is explained(access, "alice", TOPIC, "orders", Action.PUB, HOME).is_allowed


def test_one_of_several_actions_is_enough_unless_it_is_denied() -> None:
    either = Action.PUB | Action.SUB

    assert rules_of(allow("*", Action.SUB)).allows("alice", TOPIC, "orders", either)
    assert rules_of(allow("*"), deny("*", Action.PUB)).allows("alice", TOPIC, "orders", either)
    assert not rules_of(allow("*", Action.SUB), deny("*", Action.SUB)).allows("alice", TOPIC, "orders", either)


def test_users_that_are_unknown_disabled_or_super() -> None:
    super_user, disabled = rules_of(is_super=True), rules_of(allow("*"), is_super=True, is_enabled=False)

    assert super_user.allows("alice", ResourceType.CLUSTER, "any", Action.DELETE)
    assert super_user.is_super("alice")
    assert not disabled.allows("alice", TOPIC, "orders", Action.GET)
    assert not disabled.is_super("alice")
    assert not super_user.allows("bob", TOPIC, "orders", Action.GET)
    assert not super_user.is_super("bob")
    assert "disabled" in explained(disabled, "alice", TOPIC, "orders", Action.GET).reason
    assert "super" in explained(super_user, "alice", TOPIC, "orders", Action.GET).reason
    assert "no user" in explained(super_user, "bob", TOPIC, "orders", Action.GET).reason


def test_roles_grant_and_deny() -> None:
    access = rules_of(
        allow("Topic:a"), roles={"readers": (allow("Topic:*", Action.SUB),), "limits": (deny("Topic:a"),)}
    )

    assert access.allows("alice", TOPIC, "orders", Action.SUB)
    assert not access.allows("alice", TOPIC, "orders", Action.PUB)
    assert not access.allows("alice", TOPIC, "a", Action.PUB)
    denied = explained(access, "alice", TOPIC, "a", Action.SUB)
    assert denied.reason == "role limits: deny All on Topic:a"
    assert [match.subject for match in denied.matches] == ["role limits", "user alice", "role readers"]


def test_an_explanation_has_a_step_for_each_policy() -> None:
    access = rules_of(allow("Topic:a"), roles={"many": tuple(allow(f"Topic:{number}") for number in range(100))})

    assert sum(1 for _ in access.explain("alice", TOPIC, "a", Action.PUB)) >= 101


def test_an_unknown_address_is_denied_by_policies_with_sources() -> None:
    assert not rules_of(allow("*", ALL_ACTIONS, "10.0.0.0/8")).allows("alice", TOPIC, "orders", Action.PUB, None)
    assert not rules_of(allow("*"), deny("*", ALL_ACTIONS, "10.0.0.0/8")).allows("alice", TOPIC, "orders", Action.PUB)


def test_the_cache_is_bounded_and_long_names_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules, "CACHED_GRANTS_MAX", 10)
    access = rules_of(allow("Topic:t*"))

    assert all(access.allows("alice", TOPIC, f"t{number}", Action.PUB) for number in range(25))
    assert not access.allows("alice", TOPIC, "t" * 300, Action.PUB)
    assert not explained(access, "alice", TOPIC, "t" * 300, Action.PUB).is_allowed
    assert not access.allows("nobody", TOPIC, "t", Action.PUB)

    assert len(access._cache) == 5


def test_access_control_is_on_when_there_is_a_user() -> None:
    assert not AccessRules().is_enforced
    assert rules_of().is_enforced


# ------------------------------------------------------------------------------------- against a scan of everything

NAMES = st.text("ab", min_size=1, max_size=4)
ADDRESSES = st.sampled_from([None, HOME, AWAY, ipaddress.ip_address("fd00::1")])
SOURCES = st.sets(st.sampled_from(["10.0.0.0/8", "192.0.2.1/32", "fd00::/8"]), max_size=2).map(
    lambda s: tuple(sorted(s))
)
ACTIONS = st.integers(1, int(ALL_ACTIONS)).map(Action)
RESOURCES = st.one_of(
    st.just(Resource(ResourceType.ANY)),
    st.builds(Resource, st.sampled_from(rules.SINGLE_TYPES)),
    st.builds(Resource, st.sampled_from(rules.SINGLE_TYPES), st.just(Pattern.LITERAL), NAMES),
    st.builds(Resource, st.sampled_from(rules.SINGLE_TYPES), st.just(Pattern.PREFIXED), NAMES),
)
POLICIES = st.lists(st.builds(Policy, RESOURCES, ACTIONS, st.booleans(), SOURCES), max_size=8, unique_by=policy_order)
QUESTIONS = st.lists(st.tuples(st.sampled_from(rules.SINGLE_TYPES), NAMES, ACTIONS, ADDRESSES), min_size=1, max_size=12)


def scanned(policies: list[Policy], resource_type, name: str, actions: int, address) -> bool:
    """Decide action by action, by the words of the decision table alone."""

    def is_about(policy: Policy) -> bool:
        resource = policy.resource
        if resource.type not in (ResourceType.ANY, resource_type):
            return False
        if resource.pattern is Pattern.LITERAL and name != resource.name:
            return False
        if resource.pattern is Pattern.PREFIXED and name[: len(resource.name)] != resource.name:
            return False
        if not policy.sources:
            return True
        if address is None:
            return not policy.is_allowed
        return any(address in ipaddress.ip_network(source) for source in policy.sources)

    def is_allowed(action: int) -> bool:
        effects = [policy.is_allowed for policy in policies if policy.actions & action and is_about(policy)]
        return bool(effects) and all(effects)

    return any(is_allowed(action) for action in Action if action & actions)


@given(POLICIES, POLICIES, QUESTIONS)
@settings(max_examples=200)
def test_compiled_rules_decide_as_a_scan_of_all_policies(own: list[Policy], of_role: list[Policy], questions) -> None:
    access = rules_of(*own, roles={"role": tuple(of_role)})

    for question in [*questions, *questions]:
        expected = scanned([*own, *of_role], *question)
        assert expected is access.allows("alice", *question), question
        assert expected is explained(access, "alice", *question).is_allowed, question
