"""Resources, actions and policies: the terms of RocketMQ's ACL 2.0, and their bounds.

| text | resource |
| --- | --- |
| `Topic:orders` | the topic `orders` |
| `Topic:orders-*` | every topic whose name begins with `orders-`, also the topic `orders-` itself |
| `Group:*` | every group |
| `*` | every resource of every type |

A policy allows or denies actions on one resource, optionally only from some source addresses. A subject (a user or a
role) has a set of policies, ordered by `policy_order`, so that equal sets have equal encodings.

Source: RocketMQ `Resource`, `ResourceType`, `ResourcePattern`, `PolicyEntry`; types and patterns have its numbers.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from enum import IntEnum, IntFlag
from itertools import pairwise
from typing import Final

from store.errors import IllegalMessage

POLICIES_PER_SUBJECT_MAX: Final = 1_000
# A decision looks up one prefix of each length.
PREFIX_LENGTHS_PER_SUBJECT_MAX: Final = 64
# A decision may compare the address with each of them, and with those of the user's roles.
SOURCES_PER_SUBJECT_MAX: Final = 256
ROLES_PER_USER_MAX: Final = 16
NAME_LENGTH_MAX: Final = 255
SUBJECT_NAME_LENGTH_MAX: Final = 64

# Superset of the names of topics, groups, brokers and clusters. Without "*" and ":", which the text form uses.
_NAME: Final = re.compile(rf"[A-Za-z0-9%|_.\-]{{1,{NAME_LENGTH_MAX}}}")
# Without "," and "=", which SCRAM escapes, and without anything that SASLprep changes.
_SUBJECT_NAME: Final = re.compile(rf"[A-Za-z0-9_.@\-]{{1,{SUBJECT_NAME_LENGTH_MAX}}}")
_FOUND_LENGTH_MAX: Final = 80

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class IllegalAccessChange(IllegalMessage):
    """A name, policy or credential is invalid. Nothing was changed; the caller must correct it."""

    def __init__(self, field: str, expected: str, found: str) -> None:
        super().__init__(field, expected, found)
        self.args = (f"{field}: expected {expected}, found {found}. Nothing was changed; correct the request",)


class Action(IntFlag):
    """The action of a request on a resource.

    A mask of several actions means all of them in a policy, and any of them in a query.
    """

    PUB = 1
    SUB = 2
    CREATE = 4
    UPDATE = 8
    DELETE = 16
    GET = 32
    LIST = 64


ALL_ACTIONS: Final = Action(127)


class ResourceType(IntEnum):
    """The type of a policy's resources."""

    # Enum's own method hashes the name, in Python, which would be half of the time of a cached decision.
    __hash__ = int.__hash__

    ANY = 1
    CLUSTER = 2
    NAMESPACE = 3
    TOPIC = 4
    GROUP = 5


# The types of single resources: those that requests name.
SINGLE_TYPES: Final = (ResourceType.CLUSTER, ResourceType.NAMESPACE, ResourceType.TOPIC, ResourceType.GROUP)


class Pattern(IntEnum):
    """How a policy compares names."""

    ANY = 1
    LITERAL = 2
    PREFIXED = 3


@dataclass(frozen=True, slots=True, order=True)
class Resource:
    """The resources of a policy.

    Attributes:
        type: of the resources; ANY goes with the pattern ANY only.
        pattern: how `name` is compared.
        name: the name or the prefix; empty with the pattern ANY.
    """

    type: ResourceType
    pattern: Pattern = Pattern.ANY
    name: str = ""

    def matches(self, resource_type: ResourceType, name: str) -> bool:
        """Return whether one resource is among them.

        Args:
            resource_type: of the one resource; not ANY.
            name: of the one resource.
        """
        if self.type not in (ResourceType.ANY, resource_type):
            return False
        match self.pattern:
            case Pattern.ANY:
                return True
            case Pattern.LITERAL:
                return name == self.name
            case Pattern.PREFIXED:
                return name.startswith(self.name)

    def check(self) -> None:
        """Raise unless the resource is valid in a policy.

        Raises:
            IllegalAccessChange: a field is invalid.
        """
        if self.type is ResourceType.ANY and self.pattern is not Pattern.ANY:
            raise IllegalAccessChange("resource", "a type with this pattern: Cluster, Namespace, Topic, Group", "Any")
        if self.pattern is Pattern.ANY:
            if self.name:
                raise IllegalAccessChange("resource", "no name with the pattern ANY", _shown(self.name))
        elif not _NAME.fullmatch(self.name):
            expected = f"a name of 1 to {NAME_LENGTH_MAX} letters, digits and % | _ . -"
            raise IllegalAccessChange("resource", expected, _shown(self.name))

    def __str__(self) -> str:
        if self.type is ResourceType.ANY:
            return "*"
        return f"{self.type.name.capitalize()}:{self.name}{'' if self.pattern is Pattern.LITERAL else '*'}"


def resource_of(text: str) -> Resource:
    """Parse a resource in the format of the module's table; the type is case-insensitive.

    Raises:
        IllegalAccessChange: it is not a resource.
    """
    if text == "*":
        return Resource(ResourceType.ANY)
    type_name, separator, name = text[: NAME_LENGTH_MAX + 16].partition(":")
    resource_type = ResourceType.__members__.get(type_name.upper())
    if not separator or resource_type is None:
        raise IllegalAccessChange("resource", "*, or a form as Topic:orders, Group:billing-*, Cluster:*", _shown(text))
    pattern = Pattern.ANY if name == "*" else Pattern.PREFIXED if name.endswith("*") else Pattern.LITERAL
    resource = Resource(resource_type, pattern, name.removesuffix("*"))
    resource.check()
    return resource


@dataclass(frozen=True, slots=True)
class Policy:
    """Allows or denies actions on resources.

    Attributes:
        resource: its resources.
        actions: its actions; at least one.
        is_allowed: whether it allows them; a deny has precedence over every allow.
        sources: addresses or networks in CIDR form (see `canonical_source`), in order; empty: from everywhere. A deny
            with sources also holds for a request whose address is unknown, an allow with sources does not.
    """

    resource: Resource
    actions: Action
    is_allowed: bool = True
    sources: tuple[str, ...] = ()

    def check(self) -> None:
        """Raise unless the policy is valid.

        Raises:
            IllegalAccessChange: a field is invalid.
        """
        self.resource.check()
        if not 0 < self.actions <= ALL_ACTIONS:
            raise IllegalAccessChange(f"actions on {self.resource}", f"1 to {ALL_ACTIONS:d}", str(int(self.actions)))
        if len(self.sources) > SOURCES_PER_SUBJECT_MAX:
            expected = f"at most {SOURCES_PER_SUBJECT_MAX}"
            raise IllegalAccessChange(f"sources on {self.resource}", expected, str(len(self.sources)))
        if list(self.sources) != sorted(set(self.sources)):
            found = _shown(" ".join(self.sources))
            raise IllegalAccessChange(f"sources on {self.resource}", "each once, in order", found)
        for source in self.sources:
            if (canonical := canonical_source(source)) != source:
                raise IllegalAccessChange(f"sources on {self.resource}", canonical, _shown(source))

    def networks(self) -> tuple[Network, ...]:
        """Return the parsed sources; the policy must have passed `check`."""
        return tuple(map(ipaddress.ip_network, self.sources))

    def holds_for(self, address: Address | None) -> bool:
        """Return whether the policy applies to requests from an address; None: the address is unknown."""
        if not self.sources:
            return True
        if address is None:
            return not self.is_allowed
        return any(address in network for network in self.networks())

    def __str__(self) -> str:
        actions = (
            "All" if self.actions == ALL_ACTIONS else ",".join(str(each.name).capitalize() for each in self.actions)
        )
        effect = "allow" if self.is_allowed else "deny"
        return f"{effect} {actions} on {self.resource}" + (f" from {','.join(self.sources)}" if self.sources else "")


def policy_order(policy: Policy) -> tuple[Resource, bool, tuple[str, ...], int]:
    """Return the sort key of a subject's policies."""
    return policy.resource, policy.is_allowed, policy.sources, int(policy.actions)


def check_policies(policies: tuple[Policy, ...]) -> None:
    """Raise unless the policies of a subject are valid.

    Raises:
        IllegalAccessChange: a field is invalid.
    """
    if len(policies) > POLICIES_PER_SUBJECT_MAX:
        raise IllegalAccessChange(
            "policies", f"at most {POLICIES_PER_SUBJECT_MAX} of a user or role", str(len(policies))
        )
    for policy in policies:
        policy.check()
    sources = sum(len(policy.sources) for policy in policies)
    if sources > SOURCES_PER_SUBJECT_MAX:
        raise IllegalAccessChange("sources", f"at most {SOURCES_PER_SUBJECT_MAX} of a user or role", str(sources))
    keys = [policy_order(policy) for policy in policies]
    if any(not before < after for before, after in pairwise(keys)):
        raise IllegalAccessChange("policies", "each once, in order", "a policy twice or out of order")
    lengths = {len(each.resource.name) for each in policies if each.resource.pattern is Pattern.PREFIXED}
    if len(lengths) > PREFIX_LENGTHS_PER_SUBJECT_MAX:
        expected = f"prefixes of at most {PREFIX_LENGTHS_PER_SUBJECT_MAX} different lengths"
        raise IllegalAccessChange("policies", expected, f"{len(lengths)} lengths")


def check_subject_name(what: str, name: str) -> None:
    """Raise unless the name of a user or a role is valid.

    Args:
        what: "user" or "role", for the message.
        name: to check.

    Raises:
        IllegalAccessChange: a field is invalid.
    """
    if not _SUBJECT_NAME.fullmatch(name):
        expected = f"a name of 1 to {SUBJECT_NAME_LENGTH_MAX} letters, digits and _ . @ -"
        raise IllegalAccessChange(what, expected, _shown(name))


def canonical_source(text: str) -> str:
    """Return the canonical form of an address or network: `10.1.2.3/32`, `10.1.0.0/16`, `fd00::/8`.

    Raises:
        IllegalAccessChange: it is neither, or a network with bits after its prefix.
    """
    try:
        network = ipaddress.ip_network(text[:64])
    except ValueError:
        expected = "an address, or a network as 10.1.0.0/16 or fd00::/8"
        raise IllegalAccessChange("source", expected, _shown(text)) from None
    if len(text) > 64 or (isinstance(network, ipaddress.IPv6Network) and network.network_address.ipv4_mapped):
        raise IllegalAccessChange("source", "an IPv4 network in its own form", _shown(text))
    return str(network)


def _shown(text: str) -> str:
    return repr(text[:_FOUND_LENGTH_MAX])
