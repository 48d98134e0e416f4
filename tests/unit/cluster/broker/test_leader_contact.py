"""How long a replica has known no leader, and whether it has caught up with one."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from cluster.broker.leader_contact import LeaderContact
from cluster.replica.port import ReplicaStatus

if TYPE_CHECKING:
    from collections.abc import Callable

    from cluster.replica.port import Replica


def status(leader: str, *, is_serving: bool = False) -> ReplicaStatus:
    return ReplicaStatus("FOLLOWER", 1, leader, "", is_serving_puts=is_serving)


class Node:
    """A replica with a status that changes, and a clock."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.has_applied_term = False
        self._status = status("")
        self._listeners: list[Callable[[], None]] = []
        self.contact = LeaderContact(cast("Replica", self), lambda: self.now_s)

    def status(self) -> ReplicaStatus:
        return self._status

    def when_status_changes(self, listener: Callable[[], None]) -> None:
        self._listeners.append(listener)

    def move(self, to: ReplicaStatus, *, has_applied: bool = False) -> None:
        self._status = to
        self.has_applied_term = has_applied
        for listener in self._listeners:
            listener()


def test_silence_lasts_from_the_loss_of_a_leader_to_the_next_one() -> None:
    node = Node()
    node.now_s += 5
    assert node.contact.silent_s == 5

    node.move(status("n1"))
    node.now_s += 1_000
    assert node.contact.silent_s == 0

    node.move(status(""))
    node.now_s += 7
    node.move(status(""), has_applied=True)
    assert node.contact.silent_s == 7


def test_replica_that_has_caught_up_once_has_done_so_for_the_life_of_the_process() -> None:
    for caught_up, has_applied in ((status("n1"), True), (status("n0", is_serving=True), False)):
        node = Node()
        node.move(status("n1"))
        assert not node.contact.has_caught_up

        node.move(caught_up, has_applied=has_applied)
        assert node.contact.has_caught_up

        node.move(status(""))
        assert node.contact.has_caught_up
