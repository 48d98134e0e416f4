"""Checks of elections: one leader per term (I1), one vote per term, and terms that never decrease (I10).

The checks start from the messages of a node, on which others rely: when it sends a message, its term must be durable,
and when it grants a vote, the vote must be durable; both are read from the simulated disk at that moment.

A node whose disk was wiped forgets its votes. Its messages say that it is founding, and candidates do not count its
vote towards a majority (ADR 7): such a vote is binding only until the disk is wiped again, any other vote permanently.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dledger.core.messages import Message, VoteRequest, VoteResponse
from dledger.testing.faults import Violation

if TYPE_CHECKING:
    from dledger.testing.disk.disk import SimDisk
    from dledger.types import HardState


class ElectionChecks:
    """The leaders, the votes, and the terms that nodes have sent.

    Args:
        disks: by node.
        paths: of each node's `currterm` file.
    """

    def __init__(self, disks: dict[str, SimDisk], paths: dict[str, str]) -> None:
        self._disks = disks
        self._paths = paths
        self._leaders: dict[int, str] = {}
        self._counted_votes: dict[tuple[str, int], str] = {}
        # By node and term, since the node's disk was last wiped.
        self._votes: dict[str, dict[int, str]] = {node_id: {} for node_id in disks}
        self._shown_terms = dict.fromkeys(disks, 0)
        self._terms = dict.fromkeys(disks, 0)

    @property
    def election_count(self) -> int:
        """The number of terms with a leader."""
        return len(self._leaders)

    def started(self, node_id: str, saved: HardState) -> None:
        """Check the term and vote with which a node restarts."""
        if saved.term < self._shown_terms[node_id]:
            raise Violation("term", f"{node_id} came back in {saved.term} after it showed {self._shown_terms[node_id]}")
        vote = self._votes[node_id].get(saved.term)
        if vote is not None and vote != saved.voted_for:
            raise Violation(
                "vote", f"{node_id} came back with vote {saved.voted_for} in {saved.term}, gave it to {vote}"
            )
        self._terms[node_id] = 0

    def wiped(self, node_id: str) -> None:
        """Record that a node's directory is lost, with its state; its earlier votes still count."""
        self._shown_terms[node_id] = 0
        self._votes[node_id].clear()

    def after_turn(self, node_id: str, term: int) -> None:
        """Check a running node's term."""
        if term < self._terms[node_id]:
            raise Violation("term", f"{node_id} went back from {self._terms[node_id]} to {term}")
        self._terms[node_id] = term

    def lead(self, node_id: str, term: int) -> None:
        """Check that no other node has led `term`."""
        other = self._leaders.setdefault(term, node_id)
        if other != node_id:
            raise Violation("election safety", f"{node_id} and {other} both lead term {term}")

    def send(self, node_id: str, peer: str, message: Message, *, is_founding: bool) -> None:
        """Check a message that a node sends; `is_founding`: the node reports that it is founding."""
        if isinstance(message, VoteRequest):
            if not message.is_pre_vote:
                self._vote(node_id, message.term, node_id, is_founding=is_founding)
        elif isinstance(message, VoteResponse) and message.is_granted:
            if not message.is_pre_vote:
                self._vote(node_id, message.term, peer, is_founding=is_founding)
        elif message.term > self._shown_terms[node_id]:
            self._show(node_id, message.term)

    def _show(self, node_id: str, term: int) -> None:
        saved, _ = self._durable(node_id)
        if saved < term:
            raise Violation("term", f"{node_id} shows term {term} while {saved} is durable")
        self._shown_terms[node_id] = term

    def _vote(self, node_id: str, term: int, candidate: str, *, is_founding: bool) -> None:
        other = self._votes[node_id].setdefault(term, candidate)
        if not is_founding and other == candidate:
            other = self._counted_votes.setdefault((node_id, term), candidate)
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
