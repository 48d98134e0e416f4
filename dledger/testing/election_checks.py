"""Checks of elections: one leader a term (I1), one vote a term, and terms that never go back (I10).

Promises are taken from what a node sends, for that is what others build on: a message proves that its sender's term,
and a granted vote that the vote, is durable; both are read back from the simulated disk at the moment of sending.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dledger.core.messages import Message, VoteRequest, VoteResponse
from dledger.testing.faults import Violation

if TYPE_CHECKING:
    from dledger.testing.sim_disk import SimDisk
    from dledger.types import HardState


class ElectionChecks:
    """Who led, who voted for whom, and the terms that nodes have shown.

    Args:
        disks: by node.
        paths: of each node's `currterm` file.
    """

    def __init__(self, disks: dict[str, SimDisk], paths: dict[str, str]) -> None:
        self._disks = disks
        self._paths = paths
        self._leaders: dict[int, str] = {}
        self._votes: dict[tuple[str, int], str] = {}
        self._wiped: set[str] = set()
        self._shown_terms = dict.fromkeys(disks, 0)
        self._terms = dict.fromkeys(disks, 0)

    @property
    def election_count(self) -> int:
        """Terms that had a leader."""
        return len(self._leaders)

    def started(self, node_id: str, saved: HardState) -> None:
        """Look at the term and vote with which a node comes back."""
        if saved.term < self._shown_terms[node_id]:
            raise Violation("term", f"{node_id} came back in {saved.term} after it showed {self._shown_terms[node_id]}")
        vote = self._votes.get((node_id, saved.term))
        if vote is not None and vote != saved.voted_for and node_id not in self._wiped:
            raise Violation(
                "vote", f"{node_id} came back with vote {saved.voted_for} in {saved.term}, gave it to {vote}"
            )
        self._terms[node_id] = 0

    def wiped(self, node_id: str) -> None:
        """Hear that a node's directory is gone, and with it what it knew; its promises stand."""
        self._shown_terms[node_id] = 0
        self._wiped.add(node_id)

    def after_turn(self, node_id: str, term: int) -> None:
        """Look at a running node's term."""
        if term < self._terms[node_id]:
            raise Violation("term", f"{node_id} went back from {self._terms[node_id]} to {term}")
        self._terms[node_id] = term

    def lead(self, node_id: str, term: int) -> None:
        """Hear that a node leads `term`."""
        other = self._leaders.setdefault(term, node_id)
        if other != node_id:
            raise Violation("election safety", f"{node_id} and {other} both lead term {term}")

    def send(self, node_id: str, peer: str, message: Message) -> None:
        """Hear what a node sends."""
        if isinstance(message, VoteRequest):
            if not message.is_pre_vote:
                self._vote(node_id, message.term, node_id)
        elif isinstance(message, VoteResponse) and message.is_granted:
            if not message.is_pre_vote:
                self._vote(node_id, message.term, peer)
        elif message.term > self._shown_terms[node_id]:
            self._show(node_id, message.term)

    def _show(self, node_id: str, term: int) -> None:
        saved, _ = self._durable(node_id)
        if saved < term:
            raise Violation("term", f"{node_id} shows term {term} while {saved} is durable")
        self._shown_terms[node_id] = term

    def _vote(self, node_id: str, term: int, candidate: str) -> None:
        other = self._votes.setdefault((node_id, term), candidate)
        if other != candidate:
            raise Violation("vote", f"{node_id} votes for {other} and {candidate} in term {term}")
        durable = self._durable(node_id)
        if durable != (term, candidate):
            raise Violation("vote", f"{node_id} votes for {candidate} in {term} while {durable} is durable")
        self._shown_terms[node_id] = max(self._shown_terms[node_id], term)

    def _durable(self, node_id: str) -> tuple[int, str]:
        """Read term and vote from the durable copy of a node's disk; (0, "") when there is no file."""
        inode = self._disks[node_id].lookup_durable(self._paths[node_id])
        if inode is None:
            return 0, ""
        lines = inode.written_durable().decode("ascii").splitlines()
        pairs = dict(line.split("=", 1) for line in lines if not line.startswith("#"))
        return int(pairs["currTerm"]), pairs["voteLeader"]
