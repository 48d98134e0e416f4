"""Decisions of access control: whether a user may perform an action on a resource from an address.

| user | decision |
| --- | --- |
| unknown or disabled | denied |
| super user | allowed |
| otherwise, a matching policy of the user or of one of its roles denies it | denied |
| otherwise, such a policy allows it | allowed |
| otherwise | denied |

Policies are compiled for each subject separately, so that a change costs only the policies of one subject: its literal
names, its prefixes by length, and its policies for all names, each with masks of allowed and denied actions. The rights
of a user on one resource are combined at the first decision and cached; the source address is compared after the cache
lookup, and is not part of its key. Every change creates another `AccessRules` with an empty cache, so no cached right
is outdated.

Departure from RocketMQ: there the most specific policy decides, and in a tie an allow has precedence.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

from cluster.access.model import (
    ALL_ACTIONS,
    NAME_LENGTH_MAX,
    SINGLE_TYPES,
    Pattern,
    ResourceType,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from cluster.access.model import Action, Address, Network, Policy
    from store.steps import Steps

# At most some 20 MiB; a full cache is cleared, and frequent entries return soon.
CACHED_GRANTS_MAX: Final = 65_536


class _Conditional(NamedTuple):
    """Actions that are allowed or denied from some networks only."""

    actions: int
    is_allowed: bool
    networks: tuple[Network, ...]

    def holds_for(self, address: Address | None) -> bool:
        if address is None:
            return not self.is_allowed
        return any(address in network for network in self.networks)


class _Grant(NamedTuple):
    """Allowed and denied actions on some resources: masks of actions, and actions that depend on the address."""

    allowed: int
    denied: int
    conditional: tuple[_Conditional, ...] = ()


_Grants = dict[tuple[ResourceType, str], _Grant]
_NOTHING: Final = _Grant(0, 0)
_EVERYTHING: Final = _Grant(int(ALL_ACTIONS), 0)


def _combined(grants: Iterable[_Grant]) -> _Grant:
    allowed = denied = 0
    conditional: list[_Conditional] = []
    for grant in grants:
        allowed |= grant.allowed
        denied |= grant.denied
        conditional += grant.conditional
    return _Grant(allowed, denied, tuple(conditional)) if allowed or denied or conditional else _NOTHING


class SubjectRules:
    """The policies of one user or role, compiled.

    Args:
        policies: that passed `cluster.access.model.check_policies`.
    """

    __slots__ = ("_any", "_lengths", "_literal", "_prefixed", "policies")

    def __init__(self, policies: tuple[Policy, ...] = ()) -> None:
        self.policies = policies
        self._literal: _Grants = {}
        self._prefixed: _Grants = {}
        self._any: _Grants = {}
        kept = {Pattern.LITERAL: self._literal, Pattern.PREFIXED: self._prefixed, Pattern.ANY: self._any}
        for policy in policies:
            resource = policy.resource
            types = SINGLE_TYPES if resource.type is ResourceType.ANY else (resource.type,)
            for resource_type in types:
                _add(kept[resource.pattern], (resource_type, resource.name), policy)
        lengths: dict[ResourceType, set[int]] = {}
        for prefixed_type, prefix in self._prefixed:
            lengths.setdefault(prefixed_type, set()).add(len(prefix))
        self._lengths = {key: tuple(sorted(values)) for key, values in lengths.items()}

    def grants(self, resource_type: ResourceType, name: str) -> Iterator[_Grant]:
        """Yield the grants of its policies for one resource."""
        if (grant := self._literal.get((resource_type, name))) is not None:
            yield grant
        for length in self._lengths.get(resource_type, ()):
            if length > len(name):
                break
            if (grant := self._prefixed.get((resource_type, name[:length]))) is not None:
                yield grant
        if (grant := self._any.get((resource_type, ""))) is not None:
            yield grant


def _add(kept: _Grants, key: tuple[ResourceType, str], policy: Policy) -> None:
    actions = int(policy.actions)
    if policy.sources:
        added = _Grant(0, 0, (_Conditional(actions, policy.is_allowed, policy.networks()),))
    else:
        added = _Grant(actions, 0) if policy.is_allowed else _Grant(0, actions)
    kept[key] = _combined((kept.get(key, _NOTHING), added))


@dataclass(frozen=True, slots=True)
class UserRules:
    """The rules of one user.

    Attributes:
        rules: the user's own policies.
        roles: names of the user's roles.
        is_super: whether everything is allowed.
        is_enabled: whether anything is allowed.
    """

    rules: SubjectRules
    roles: tuple[str, ...] = ()
    is_super: bool = False
    is_enabled: bool = True


class Match(NamedTuple):
    """A policy that matches an explained request.

    Attributes:
        subject: its subject: `user alice`, `role readers`.
        policy: the policy.
    """

    subject: str
    policy: Policy


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a request is allowed or denied.

    Attributes:
        is_allowed: the decision.
        reason: the reason as text.
        matches: the policies that match the resource, the address and at least one of the actions, denies first.
    """

    is_allowed: bool
    reason: str
    matches: tuple[Match, ...] = ()


class AccessRules:
    """An immutable version of the rules, with a cache of at most `CACHED_GRANTS_MAX` grants.

    Args:
        users: by name.
        roles: by name; a user's role that is missing grants nothing.
        version: number of changes that led to these rules; a front that keeps a decision compares it.
    """

    __slots__ = ("_cache", "_roles", "_users", "version")

    def __init__(
        self,
        users: Mapping[str, UserRules] = MappingProxyType({}),
        roles: Mapping[str, SubjectRules] = MappingProxyType({}),
        version: int = 0,
    ) -> None:
        self._users = users
        self._roles = roles
        self._cache: dict[tuple[str, ResourceType, str], _Grant] = {}
        self.version = version

    @property
    def is_enforced(self) -> bool:
        """Whether access control is on: as soon as there is a user."""
        return bool(self._users)

    def allows(
        self, user: str, resource_type: ResourceType, name: str, actions: int, address: Address | None = None
    ) -> bool:
        """Return whether a user may perform at least one of the actions.

        Args:
            user: name of the authenticated user.
            resource_type: of the resource; not ANY.
            name: of the resource. One that is longer than any name may be is denied to all but super users.
            actions: a mask of `Action`; a plain int costs less than one.
            address: of the client; None: not known.
        """
        grant = self._cache.get((user, resource_type, name))
        if grant is None:
            grant = self._grant(user, resource_type, name)
        allowed, denied, conditional = grant
        for each in conditional:
            if each.actions & actions and each.holds_for(address):
                if each.is_allowed:
                    allowed |= each.actions
                else:
                    denied |= each.actions
        return bool(actions & allowed & ~denied)

    def is_super(self, user: str) -> bool:
        """Return whether a user is enabled and may do everything."""
        found = self._users.get(user)
        return found is not None and found.is_enabled and found.is_super

    def _grant(self, user: str, resource_type: ResourceType, name: str) -> _Grant:
        found = self._users.get(user)
        if found is None or not found.is_enabled:
            return _NOTHING
        if found.is_super:
            return _EVERYTHING
        if len(name) > NAME_LENGTH_MAX:
            # Not cached: the memory of the cache is bounded by the lengths of names.
            return _NOTHING
        grant = _combined(
            each for _, subject in self._subjects(user, found) for each in subject.grants(resource_type, name)
        )
        if len(self._cache) >= CACHED_GRANTS_MAX:
            self._cache.clear()
        self._cache[user, resource_type, name] = grant
        return grant

    def _subjects(self, name: str, user: UserRules) -> Iterator[tuple[str, SubjectRules]]:
        yield f"user {name}", user.rules
        for role in user.roles:
            if (rules := self._roles.get(role)) is not None:
                yield f"role {role}", rules

    def explain(
        self, user: str, resource_type: ResourceType, name: str, actions: Action, address: Address | None = None
    ) -> Steps[Explanation]:
        """Return the decision of `allows` with its reason; it checks every policy of the user, without the cache.

        In steps, one for each policy: sixteen roles may have a thousand each.
        """
        found = self._users.get(user)
        if found is None:
            return Explanation(False, f"there is no user {user!r}")
        if found.is_super or not found.is_enabled:
            state = "is a super user" if found.is_enabled else "is disabled"
            return Explanation(found.is_enabled, f"user {user} {state}")
        if len(name) > NAME_LENGTH_MAX:
            return Explanation(False, f"no name has more than {NAME_LENGTH_MAX} characters")
        matches: list[Match] = []
        for subject, rules in self._subjects(user, found):
            for policy in rules.policies:
                yield
                is_on_request = policy.actions & actions and policy.resource.matches(resource_type, name)
                if is_on_request and policy.holds_for(address):
                    matches.append(Match(subject, policy))
        # Denies are first.
        matches.sort(key=lambda match: match.policy.is_allowed)
        for action in actions:
            for match in matches:
                yield
                if match.policy.actions & action:
                    if match.policy.is_allowed:
                        return Explanation(True, f"{match.subject}: {match.policy}", tuple(matches))
                    break
        if not matches:
            return Explanation(False, "no policy of the user or its roles matches: denied by default")
        return Explanation(False, f"{matches[0].subject}: {matches[0].policy}", tuple(matches))
