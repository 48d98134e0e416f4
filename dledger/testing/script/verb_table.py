"""The tables of a script's verbs, and functions that parse their arguments."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from dledger.testing.script.cluster import Cluster
from dledger.testing.script.transcript import ScriptError

if TYPE_CHECKING:
    from dledger.testing.script.links import Envelope
    from dledger.testing.script.machine import ScriptMachine
    from dledger.testing.script.node import ScriptNode

Handler = Callable[[Cluster, list[str]], None]
# Verbs for settings, before the nodes start.
SCENE: dict[str, Handler] = {}
ACTIONS: dict[str, Handler] = {}
_LINK = re.compile(r"(\d+)(->|-)(\d+)")


def scene(name: str) -> Callable[[Handler], Handler]:
    """Register a verb for a setting."""
    return lambda handler: SCENE.setdefault(name, handler)


def action(name: str) -> Callable[[Handler], Handler]:
    """Register a verb for an action or a check."""
    return lambda handler: ACTIONS.setdefault(name, handler)


def node_id(word: str) -> str:
    """Return the id of the node with this number."""
    if not word.isdigit():
        raise ScriptError(f"expected the number of a node, found {word!r}")
    return f"n{word}"


def machine_of(cluster: Cluster, word: str) -> ScriptMachine:
    """Return the machine with this number."""
    return cluster.machine(node_id(word))


def machines_of(cluster: Cluster, words: list[str]) -> list[ScriptMachine]:
    """Return the named machines; all for `all` or no word."""
    return [machine_of(cluster, word) for word in words if word != "all"] or list(cluster.machines.values())


def running(cluster: Cluster, word: str) -> tuple[ScriptMachine, ScriptNode]:
    """Return a machine and the node on it, which must run."""
    machine = machine_of(cluster, word)
    if machine.node is None:
        raise ScriptError(f"{machine.id} is down")
    return machine, machine.node


def down(cluster: Cluster, word: str) -> ScriptMachine:
    """Return a machine on which no node runs."""
    machine = machine_of(cluster, word)
    if machine.node is not None:
        raise ScriptError(f"{machine.id} runs: crash it first")
    return machine


def parse_link(word: str) -> tuple[str, str, str]:
    """Return the two ends of a link, and the sign between them."""
    match = _LINK.fullmatch(word)
    if match is None:
        raise ScriptError(f"expected a link such as 1->2 or 1-2, found {word!r}")
    return node_id(match[1]), match[2], node_id(match[3])


def links_of(cluster: Cluster, word: str) -> list[tuple[str, str]]:
    """Return the directed links of `1->2`, `1-2` or `1` (all links of node 1)."""
    if word.isdigit():
        mine = node_id(word)
        return [link for other in cluster.machines if other != mine for link in ((mine, other), (other, mine))]
    source, arrow, target = parse_link(word)
    return [(source, target)] if arrow == "->" else [(source, target), (target, source)]


def link_filter(word: str) -> Callable[[Envelope], bool]:
    """Return a predicate for the messages on a link, or on `all`."""
    if word == "all":
        return lambda _: True
    source, arrow, target = parse_link(word)
    links = [(source, target)] if arrow == "->" else [(source, target), (target, source)]
    return lambda envelope: (envelope.source, envelope.target) in links
