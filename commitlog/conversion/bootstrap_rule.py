"""The rule by which the nodes of a group agree on the base log before any of them joins. Pure.

Each node makes a *statement*, which changes before the agreement only by this rule:

| claim    | meaning                                                                         |
| -------- | ------------------------------------------------------------------------------- |
| AGREED   | the node has joined, or may join: this is the manifest of its group             |
| HELD     | the node has a base log and no entries, and has not agreed with any other node   |
| AWAITED  | the node had agreed on this manifest, and has not all of its files yet          |
| NOTHING  | the node has neither entries nor a base log                                      |

1. If any node is AGREED, its manifest is the group's; the files that the node itself has or awaits must be part of it.
2. Otherwise a founder waits until *every* founder has made a statement. All HELD or AWAITED
   manifests must be equal; that is the group's manifest. If there is none, the group begins at 0. If some await files
   that no node has, the founder waits.
3. A node that joins a group waits for a node that is AGREED.

So a group never begins at 0 while an unreachable founder may have an old store, and never with different old files: the
founders reach the same decision from the same statements, and if one of them changed its statement in between (files
were copied into an empty directory), the agreed manifests differ, and such nodes do not connect
(`commitlog.conversion.origin`). Founding waits for all founders anyway (ADR 7).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from commitlog.conversion.base_log_files import (
    BaseLogManifest,
    BaseLogsDiffer,
    check_same,
    manifest_from_json,
    manifest_to_json,
)
from store.fs.foreign_json import foreign_json

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping


class Claim(Enum):
    """The state of the manifest in a statement."""

    AGREED = "settled"
    HELD = "held"
    AWAITED = "awaited"
    NOTHING = "nothing"


@dataclass(frozen=True, slots=True)
class Statement:
    """The statement of a node about itself.

    Attributes:
        claim: the state of the manifest.
        manifest: empty for NOTHING.
        begin: offset from which the node has the files of the manifest and can send them; the divide if it has none.
        config_size_bytes: size of the old store's configuration that it has and can send
            (`commitlog.conversion.old_config`).
    """

    claim: Claim
    manifest: BaseLogManifest
    begin: int
    config_size_bytes: int = 0

    def encoded(self) -> tuple[str, bytes]:
        """Return a short text and a possibly large payload, for `statement_from`."""
        value = {"claim": self.claim.value, "begin": self.begin, "config": self.config_size_bytes}
        return json.dumps(value), manifest_to_json(self.manifest).encode()


NOTHING = Statement(Claim.NOTHING, BaseLogManifest(0), 0)


def statement_from(text: object, payload: bytes) -> Statement:
    """Parse a statement that a node sent.

    Raises:
        ValueError: it is not a statement.
    """
    value = foreign_json(text) if isinstance(text, str) else None
    if not isinstance(value, dict) or type(value.get("begin")) is not int:
        raise ValueError(f"expected a claim and a start, found {text!r:.80}")
    config_size_bytes = value.get("config", 0)
    if type(config_size_bytes) is not int or config_size_bytes < 0:
        raise ValueError(f"expected a size of the configuration, found {config_size_bytes!r:.80}")
    manifest = manifest_from_json(payload.decode())
    return Statement(Claim(value.get("claim")), manifest, value["begin"], config_size_bytes)


@dataclass(frozen=True, slots=True)
class BootstrapDecision:
    """The base log of the group, and the nodes with files of it, the one with the most files first."""

    manifest: BaseLogManifest
    sources: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Waiting:
    """No decision is possible yet; `reason` is for the log."""

    reason: str


def decide(
    own: Statement, received: Mapping[str, Statement], founders: Collection[str], *, is_joining: bool
) -> BootstrapDecision | Waiting:
    """Apply the rule.

    Args:
        own: of this node, which has not agreed yet.
        received: the last statements of the others.
        founders: the ids of all other founders.
        is_joining: this node is not a founder.

    Raises:
        BaseLogsDiffer: nodes have different base logs; the error has the first difference.
    """
    assert own.claim is not Claim.AGREED
    agreed = {peer: each for peer, each in received.items() if each.claim is Claim.AGREED}
    if agreed:
        manifest = max((each.manifest for each in agreed.values()), key=lambda each: len(each.files))
        for peer, each in agreed.items():
            check_same(peer, manifest, each.manifest)
            if own.claim is not Claim.NOTHING:
                _check_part(peer, own.manifest, each.manifest)
        return BootstrapDecision(manifest, _sources(agreed))
    if is_joining:
        return Waiting("for a node that takes part in the group")
    claiming = {peer: each for peer, each in received.items() if each.claim is not Claim.NOTHING}
    for peer, each in claiming.items():
        if own.claim is not Claim.NOTHING:
            _check_equal(peer, own.manifest, each.manifest)
    first, *others = claiming or {"": own}
    manifest = claiming[first].manifest if first else own.manifest
    for peer in others:
        _check_equal(f"{first}, those of {peer}", manifest, claiming[peer].manifest)
    missing = sorted(set(founders) - set(received))
    if missing:
        return Waiting(f"for {' '.join(missing)}: all founders of the group must report their base log")
    holders = {peer: each for peer, each in claiming.items() if each.claim is Claim.HELD}
    if not holders and Claim.AWAITED in {own.claim, *(each.claim for each in claiming.values())}:
        return Waiting("for a node with the complete base log; no connected node has it")
    return BootstrapDecision(manifest, _sources(holders))


def source_of_config(statements: Mapping[str, Statement]) -> str | None:
    """Return the node whose configuration of an old store this node takes over; None: no node has one.

    If nodes have different ones, it is the largest: the one of a broker that was never used is small.
    The choice does not depend on the order in which the nodes agreed.
    """
    having = [peer for peer, each in statements.items() if each.config_size_bytes]
    return min(having, key=lambda peer: (-statements[peer].config_size_bytes, peer), default=None)


def _sources(statements: Mapping[str, Statement]) -> tuple[str, ...]:
    having = [peer for peer, each in statements.items() if each.begin < each.manifest.divide]
    return tuple(sorted(having, key=lambda peer: (statements[peer].begin, peer)))


def _check_part(peer: str, ours: BaseLogManifest, theirs: BaseLogManifest) -> None:
    """Refuse our files that are not in the group's manifest."""
    check_same(peer, ours, theirs)
    names = {file.name for file in theirs.files}
    unknown = next((file.name for file in ours.files if file.name not in names), None)
    if unknown is not None:
        raise BaseLogsDiffer(peer, f"file {unknown} exists here, and is unknown there")


def _check_equal(peer: str, ours: BaseLogManifest, theirs: BaseLogManifest) -> None:
    check_same(peer, ours, theirs)
    if ours != theirs:
        here, there = (each.files[0].name if each.files else "none" for each in (ours, theirs))
        raise BaseLogsDiffer(peer, f"the oldest file is {here} here and {there} there")
