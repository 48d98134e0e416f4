"""Resources, policies and names of access control: their texts, and every bound."""

from __future__ import annotations

import pytest

from cluster.access import model
from cluster.access.model import (
    ALL_ACTIONS,
    Action,
    IllegalAccessChange,
    Pattern,
    Policy,
    Resource,
    ResourceType,
    canonical_source,
    check_policies,
    check_subject_name,
    policy_order,
    resource_of,
)

TOPIC = ResourceType.TOPIC


@pytest.mark.parametrize("text", ["*", "Topic:orders", "Topic:orders-*", "Group:*", "Cluster:c.1", "Namespace:INST%a"])
def test_a_resource_has_one_text(text: str) -> None:
    assert text == str(resource_of(text))


def test_types_are_read_in_any_case() -> None:
    assert Resource(TOPIC, Pattern.LITERAL, "a") == resource_of("TOPIC:a") == resource_of("topic:a")


@pytest.mark.parametrize(
    "text",
    ["", "orders", "Topic:", "Topic:a b", "Topic:a*b", "Topic:**", "Any:*", "Queue:a", "Topic:a:b", "T" * 10_000],
)
def test_other_texts_are_not_resources(text: str) -> None:
    with pytest.raises(IllegalAccessChange):
        resource_of(text) if text != "Any:*" else resource_of("Any:a*")


@pytest.mark.parametrize(
    ("policy", "found"),
    [
        (Policy(Resource(ResourceType.ANY, Pattern.LITERAL, "a"), Action.PUB), "Any"),
        (Policy(Resource(TOPIC, Pattern.ANY, "a"), Action.PUB), "'a'"),
        (Policy(Resource(TOPIC, Pattern.LITERAL, ""), Action.PUB), "''"),
        (Policy(Resource(TOPIC, Pattern.LITERAL, "a" * 256), Action.PUB), "aaa"),
        (Policy(Resource(TOPIC, Pattern.PREFIXED, "a\n"), Action.PUB), "a"),
        (Policy(Resource(TOPIC), Action(0)), "0"),
        (Policy(Resource(TOPIC), Action.PUB, True, ("10.0.0.0/8", "10.0.0.0/8")), "10.0.0.0/8"),
        (Policy(Resource(TOPIC), Action.PUB, True, ("fd00::/8", "10.0.0.0/8")), "fd00"),
        (Policy(Resource(TOPIC), Action.PUB, True, ("10.0.0.1",)), "10.0.0.1"),
        (Policy(Resource(TOPIC), Action.PUB, True, ("somewhere",)), "somewhere"),
        (Policy(Resource(TOPIC), Action.PUB, True, tuple(f"10.0.{n // 256}.{n % 256}/32" for n in range(257))), "257"),
    ],
)
def test_illegal_policies_are_refused(policy: Policy, found: str) -> None:
    with pytest.raises(IllegalAccessChange) as refused:
        policy.check()

    assert found in str(refused.value)
    assert "Nothing was changed" in str(refused.value)


def test_the_policies_of_a_subject_are_bounded_and_in_order() -> None:
    policies = tuple(Policy(Resource(TOPIC, Pattern.LITERAL, f"t{number:04}"), Action.PUB) for number in range(1_001))
    lengths = tuple(Policy(Resource(TOPIC, Pattern.PREFIXED, "p" * length), Action.PUB) for length in range(1, 66))
    sources = tuple(
        Policy(Resource(TOPIC, Pattern.LITERAL, f"t{number:04}"), Action.PUB, True, ("10.0.0.0/8",))
        for number in range(257)
    )

    check_policies(policies[:1_000])
    check_policies(lengths[:64])
    check_policies(sources[:256])
    for too_much in (policies, lengths, sources, policies[1::-1], (policies[0], policies[0])):
        with pytest.raises(IllegalAccessChange):
            check_policies(too_much)


def test_texts_of_policies() -> None:
    policy = Policy(resource_of("Topic:a*"), Action.PUB | Action.SUB, False, ("10.0.0.0/8",))

    assert "deny Pub,Sub on Topic:a* from 10.0.0.0/8" == str(policy)
    assert "allow All on *" == str(Policy(resource_of("*"), ALL_ACTIONS))
    assert [policy] == sorted([policy], key=policy_order)


@pytest.mark.parametrize("name", ["", "a b", "a,b", "a=b", "a\n", "é", "a" * 65])
def test_names_of_users_that_scram_would_have_to_escape_are_refused(name: str) -> None:
    with pytest.raises(IllegalAccessChange, match="user"):
        check_subject_name("user", name)


def test_a_source_has_one_form() -> None:
    assert "10.1.2.3/32" == canonical_source("10.1.2.3")
    assert "fd00::/8" == canonical_source("FD00:0::/8")
    for text in ("10.1.2.3/8", "::ffff:10.0.0.1", "10.1.2.3/33", "", "a" * 1_000, "10.0.0.1" + " " * 100):
        with pytest.raises(IllegalAccessChange):
            canonical_source(text)


def test_types_and_patterns_have_the_numbers_of_rocketmq() -> None:
    assert {"ANY": 1, "CLUSTER": 2, "NAMESPACE": 3, "TOPIC": 4, "GROUP": 5} == {
        each.name: each for each in ResourceType
    }
    assert {"ANY": 1, "LITERAL": 2, "PREFIXED": 3} == {each.name: each for each in Pattern}
    assert model.SINGLE_TYPES == tuple(each for each in ResourceType if each is not ResourceType.ANY)
