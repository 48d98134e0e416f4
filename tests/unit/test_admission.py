"""What is kept from the core, and what it is told instead: whole nodes on simulated disks, and a wire that lies."""

from dataclasses import replace

from dledger.core.events import Received
from dledger.core.messages import Push, PushRefused
from dledger.testing.script.cluster import Cluster
from dledger.testing.script.machine import Settings
from dledger.types import Span

NODES = ("n1", "n2", "n3")


def test_push_that_does_not_verify_is_refused_as_such_and_both_sides_are_told():
    cluster = Cluster(Settings(NODES))
    cluster.begin()
    leader, follower = cluster.machines["n1"], cluster.machines["n2"]
    cluster.pass_time([leader], 700, lambda: cluster.settle(NODES))
    cluster.settle(NODES)
    assert leader.node.raft.commit_index == 0
    sent, told = [], []
    send = cluster.links.send

    def garble(sender, peer, message):
        if isinstance(message, Push) and message.payload and peer == "n2":
            message = replace(message, payload=message.payload[:-1] + b"?")
        sent.append((sender, peer, message))
        send(sender, peer, message)

    cluster.links.send = garble
    for machine, name in ((follower, "on_corrupt_push"), (leader, "on_corrupt_push_refused")):
        setattr(machine.node, name, lambda peer, what, name=name: told.append((name, peer, what)))

    leader.guard(lambda node: node.append([("a", b"body")]))
    cluster.settle(NODES)

    (refusal,) = [message for sender, _, message in sent if sender == "n2" and isinstance(message, PushRefused)]
    assert refusal.is_corrupt
    assert [(name, peer) for name, peer, _ in told] == [("on_corrupt_push", "n1"), ("on_corrupt_push_refused", "n2")]
    assert told[0][2].index == told[1][2] == 1
    assert leader.node.raft.is_refusing_corrupt("n2")
    assert leader.node.raft.commit_index == 1
    assert follower.node.store.last_index == 0


def test_push_that_is_not_believed_is_neither_checked_nor_given_room():
    cluster = Cluster(Settings(NODES))
    cluster.begin()
    leader, follower = cluster.machines["n1"], cluster.machines["n2"]
    cluster.pass_time([leader], 700, lambda: cluster.settle(NODES))
    cluster.settle(NODES)
    node, raft = follower.node, follower.node.raft
    done = []
    node.store.check_push = lambda *_: done.append("check")
    node.store.reserve_span = lambda *_: done.append("room")
    span = Span(1, 1, raft.term, 1 << 40, 10)
    false = Push(raft.term, 0, raft.term, 0, span, b"0123456789", group_id=raft.state.group_id + 1)
    old = replace(false, term=raft.term - 1, group_id=raft.state.group_id)

    for sender, push in (("n1", false), ("n3", replace(false, group_id=raft.state.group_id)), ("n1", old)):
        event = Received(sender, push)
        follower.guard(lambda node, event=event: node._driver.process([event]))

    assert done == []
    assert node.store.last_index == 0
