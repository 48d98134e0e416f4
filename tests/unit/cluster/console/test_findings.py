"""What the console calls wrong, and the advice: one state of a group for each."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from cluster.console.findings import Severity, findings_of, tolerated_losses
from dledger.v1.member_pb2 import Member
from tests.unit.cluster.console.views import group, healthy, leader, peer, state

if TYPE_CHECKING:
    from cluster.console.group_view import GroupView

DEAD = {"is_live": False, "is_stalled": True}


def test_a_healthy_group_has_no_findings_and_tolerates_one_failure() -> None:
    assert findings_of(healthy()) == []
    assert tolerated_losses(healthy()) == 1


@pytest.mark.parametrize(
    ("view", "severity", "text"),
    [
        (group(), Severity.DOWN, "no node of this group answers"),
        (group(state("n1"), state("n2"), broken={"n0": "refused"}), Severity.DOWN, "no node leads"),
        (group(leader(), state("n1"), broken={"n2": "refused"}), Severity.RISK, "does not answer the console: refused"),
        (group(leader(), state("n1")), Severity.RISK, "it has not answered yet"),
        (group(leader(peers=[peer("n1"), peer("n2", **DEAD)]), state("n1"), state("n2")), Severity.RISK, "n2 does not"),
        (group(leader(peers=[peer("n1"), peer("n2", is_stalled=True)]), state("n1"), state("n2")), Severity.RISK, "no"),
        (group(leader(peers=[peer("n1", **DEAD), peer("n2", **DEAD)])), Severity.DOWN, "without a majority"),
        (group(leader(peers=[peer("n1"), peer("n2", is_counted=False)])), Severity.RISK, "n2 lost its disk"),
        (group(leader(peers=[peer("n1"), peer("n2", is_disk_unhealthy=True)])), Severity.RISK, "stalls or is full"),
        (group(leader(is_disk_full=True), state("n1"), state("n2")), Severity.DOWN, "the disk of n0 is full"),
        (group(leader(), state("n1", is_disk_full=True), state("n2")), Severity.RISK, "the disk of n1 is full"),
        (group(leader(), state("n1", is_disk_stalled=True), state("n2")), Severity.RISK, "the disk of n1 stalls"),
        (group(leader(is_membership_committed=False), state("n1"), state("n2")), Severity.NOTE, "not committed"),
        (group(leader(), state("n1", "LEADER", term=6), state("n2")), Severity.NOTE, "n1 leads an older term"),
    ],
)
def test_each_fault_is_found_with_its_severity_and_an_advice(view: GroupView, severity: Severity, text: str) -> None:
    found = [finding for finding in findings_of(view) if text in finding.text]

    assert [finding.severity for finding in found] == [severity], findings_of(view)
    assert found[0].advice


def test_the_most_urgent_comes_first() -> None:
    view = group(leader(is_disk_full=True, is_membership_committed=False), broken={"n1": "gone", "n2": "gone"})
    order = list(Severity)
    ranks = [order.index(finding.severity) for finding in findings_of(view)]

    assert ranks == sorted(ranks)
    assert set(ranks) == {0, 1, 2}


def test_one_dead_voter_of_three_leaves_no_further_loss() -> None:
    view = group(leader(peers=[peer("n1"), peer("n2", **DEAD)]), state("n1"), broken={"n2": "refused"})

    assert tolerated_losses(view) == 0
    assert any("no further voter may fail" in finding.text for finding in findings_of(view))


def test_tolerated_failures_are_not_known_without_a_leader() -> None:
    assert tolerated_losses(group(state("n1"))) is None


def test_learners_do_not_count_and_members_that_are_not_watched_are_named() -> None:
    members = [Member(id="n0", is_voter=True), Member(id="n1"), Member(id="n2"), Member(id="n9")]
    learners = [peer("n1", is_voter=False), peer("n2", is_voter=False)]
    view = group(leader(members=members, peers=learners), state("n1"), state("n2"))

    texts = [finding.text for finding in findings_of(view)]
    assert "the group has 1 voter: it tolerates no failure" in texts
    assert "the console does not watch n9" in texts
