"""Reads a script, runs it block by block, and writes the transcript under each block, like etcd's data-driven tests.

    # What it is about
    # Source: where it comes from

    nodes 3
    campaign 1
    ----
    n1            starts an election, term 0
    ...

A block consists of commands, a line `----`, and the transcript up to the next empty line. Lines that begin with `#` are
comments. Not here: the verbs (`verbs`), and files (the caller reads and writes them).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dledger.testing.script import verb_table, verbs, verbs_machines  # noqa: F401  (their verbs enter the table)
from dledger.testing.script.transcript import Arrow, ScriptError

if TYPE_CHECKING:
    from dledger.testing.script.cluster import Cluster

DIVIDER = "----"
NOTHING = "(nothing)"


@dataclass(frozen=True, slots=True)
class Block:
    """The lines before `DIVIDER` (commands and comments), and the expected transcript after it."""

    lines: tuple[str, ...]
    transcript: tuple[str, ...]


def parse(text: str) -> tuple[list[Block], list[str]]:
    """Return the blocks of a script, and the lines after the last one.

    Raises:
        ScriptError: title or source are missing.
    """
    lines = text.splitlines()
    if len(lines) < 2 or not lines[0].startswith("# ") or not lines[1].startswith("# Source: "):
        raise ScriptError("a script begins with `# title` and `# Source: where it comes from`")
    blocks: list[Block] = []
    before: list[str] = []
    place = 0
    while place < len(lines):
        if lines[place] != DIVIDER:
            before.append(lines[place])
            place += 1
            continue
        end = place + 1
        while end < len(lines) and lines[end]:
            end += 1
        blocks.append(Block(tuple(before), tuple(lines[place + 1 : end])))
        before = []
        place = end
    return blocks, before


def run(text: str) -> str:
    """Run a script and return it with its actual transcript.

    Raises:
        ScriptError: the script is not valid.
        Violation: a safety property of Raft is violated.
    """
    blocks, rest = parse(text)
    runner = ScriptRunner()
    lines: list[str] = []
    for block in blocks:
        transcript = runner.run([line for line in block.lines if line and not line.startswith("#")])
        lines += [*block.lines, DIVIDER, *(transcript or [NOTHING])]
    return "\n".join([*lines, *rest]).rstrip("\n") + "\n"


class ScriptRunner:
    """Runs the commands of one script.

    Attributes:
        cluster: the cluster of the script; None before `nodes`.
    """

    def __init__(self) -> None:
        self.cluster: Cluster | None = None

    def run(self, commands: list[str]) -> list[str]:
        """Run the commands of a block and return the transcript; raises as `do`."""
        is_delivered = any(command.split()[0] in verbs.DELIVERING for command in commands)
        shown = frozenset(Arrow) - ({Arrow.LEAVES} if is_delivered else set())
        for command in commands:
            try:
                self.do(command, shown)
            except ScriptError as error:
                raise ScriptError(f"{command!r}: {error}") from error
            except (ValueError, IndexError) as error:
                raise ScriptError(f"{command!r}: cannot be read ({error})") from error
        return [] if self.cluster is None else self.cluster.transcript.take()

    def do(self, command: str, shown: frozenset[Arrow]) -> None:
        """Run one command, then check the whole cluster.

        Args:
            command: a verb and its words.
            shown: the outcomes of messages that are recorded.

        Raises:
            ScriptError: the command is not valid.
            Violation: a safety property of Raft is violated.
        """
        verb, *words = command.split()
        if self.cluster is None:
            if verb != "nodes":
                raise ScriptError("the first command is `nodes`")
            self.cluster = verbs.make_cluster(words)
            return
        cluster = self.cluster
        if verb in verb_table.SCENE:
            verb_table.SCENE[verb](cluster, words)
            return
        if verb not in verb_table.ACTIONS:
            raise ScriptError(f"no such verb; there are {' '.join([*verb_table.SCENE, *verb_table.ACTIONS])}")
        cluster.begin()
        cluster.show(*shown)
        cluster.transcript.are_heartbeats_shown = False
        cluster.transcript.begin_command()
        verb_table.ACTIONS[verb](cluster, words)
        cluster.check()
