"""Events that do not reach the core, and their replacements: whole nodes on simulated disks and a faulty network."""

import re
from dataclasses import replace

from dledger.core.events import ChangeMembership, MembershipAction, Received
from dledger.core.messages import HeartbeatResponse, Push, PushAccepted, PushRefused, SnapshotProgress
from dledger.errors import ResponseCode
from dledger.testing.disk.disk import UNLIMITED_BYTES
from dledger.testing.script.cluster import Cluster
from dledger.testing.script.machine import Settings
from dledger.types import NO_INDEX, Membership, Span

NODES = ("n1", "n2", "n3")


def test_push_that_does_not_verify_is_refused_as_such_and_both_sides_log_it():
    cluster = Cluster(Settings(NODES))
    cluster.begin()
    leader, follower = cluster.machines["n1"], cluster.machines["n2"]
    cluster.pass_time([leader], 700, lambda: cluster.settle(NODES))
    cluster.settle(NODES)
    assert leader.node.raft.commit_index == 0
    sent, reported = [], []
    send = cluster.links.send

    def garble(sender, peer, message):
        if isinstance(message, Push) and message.payload and peer == "n2":
            message = replace(message, payload=message.payload[:-1] + b"?")
        sent.append((sender, peer, message))
        send(sender, peer, message)

    cluster.links.send = garble
    for machine, name in ((follower, "on_corrupt_push"), (leader, "on_corrupt_push_refused")):
        setattr(machine.node, name, lambda peer, what, name=name: reported.append((name, peer, what)))

    leader.guard(lambda node: node.append([("a", b"body")]))
    cluster.settle(NODES)

    (refusal,) = [message for sender, _, message in sent if sender == "n2" and isinstance(message, PushRefused)]
    assert refusal.is_corrupt
    assert [(name, peer) for name, peer, _ in reported] == [
        ("on_corrupt_push", "n1"),
        ("on_corrupt_push_refused", "n2"),
    ]
    assert reported[0][2].index == reported[1][2] == 1
    assert leader.node.raft.is_refusing_corrupt("n2")
    assert leader.node.raft.commit_index == 1
    assert follower.node.store.last_index == 0


def test_rejected_push_is_neither_verified_nor_given_space():
    cluster = Cluster(Settings(NODES))
    cluster.begin()
    leader, follower = cluster.machines["n1"], cluster.machines["n2"]
    cluster.pass_time([leader], 700, lambda: cluster.settle(NODES))
    cluster.settle(NODES)
    node, raft = follower.node, follower.node.raft
    done = []
    node.store.check_push = lambda *_: done.append("check")
    node.store.reserve_span = lambda *_: done.append("space")
    span = Span(1, 1, raft.term, 1 << 40, 10)
    false = Push(raft.term, 0, raft.term, 0, span, b"0123456789", group_id=raft.state.group_id + 1)
    old = replace(false, term=raft.term - 1, group_id=raft.state.group_id)

    for sender, push in (("n1", false), ("n3", replace(false, group_id=raft.state.group_id)), ("n1", old)):
        event = Received(sender, push)
        follower.guard(lambda node, event=event: node._driver.process([event]))

    assert done == []
    assert node.store.last_index == 0


def begun(data_file_size_bytes, **settings):
    cluster = Cluster(Settings(NODES, data_file_size_bytes=data_file_size_bytes, **settings))
    cluster.begin()
    leader = cluster.machines["n1"]
    cluster.pass_time([leader], 700, lambda: cluster.settle(NODES))
    cluster.settle(NODES)
    return cluster, leader


def asked(cluster, machine, action, member_id, address="host:1"):
    """Request a change of the membership; return its code and message."""
    answers = []
    machine.node.on_request_ended = lambda _, code, message: answers.append((code, message))
    machine.feed(ChangeMembership(cluster.next_id(), action, member_id, address))
    cluster.settle(NODES)
    (answer,) = answers
    return answer


def test_change_whose_entry_fits_into_no_data_file_is_refused_with_its_sizes():
    cluster, leader = begun(480)

    answers = [asked(cluster, leader, MembershipAction.ADD, f"n{number}") for number in (4, 5)]

    assert [code for code, _ in answers] == [ResponseCode.SUCCESS, ResponseCode.UNEXPECTED_ARGUMENT]
    expected = r"the membership with n5 takes up to \d+ bytes, and an entry of this log holds at most 424.*remove"
    assert re.match(expected, answers[1][1]), answers[1][1]
    assert len(leader.node.raft.membership.members) == 4
    leader.guard(lambda node: node.append([("a", b"body")]))
    cluster.settle(NODES)
    assert [machine.node.store.last_index for machine in cluster.machines.values()] == [2, 2, 2]


def test_address_that_makes_the_entry_too_large_is_refused_and_a_shorter_one_is_taken():
    cluster, leader = begun(512)

    code, message = asked(cluster, leader, MembershipAction.ADD, "n4", "h" * 200 + ":1")

    assert (code, "at most 456" in message) == (ResponseCode.UNEXPECTED_ARGUMENT, True)
    assert asked(cluster, leader, MembershipAction.ADD, "n4", "h:1")[0] == ResponseCode.SUCCESS


def test_members_leave_a_group_whose_entries_have_no_space_for_more():
    cluster, leader = begun(400)

    assert asked(cluster, leader, MembershipAction.ADD, "n4")[0] == ResponseCode.UNEXPECTED_ARGUMENT
    assert asked(cluster, leader, MembershipAction.REMOVE, "n3")[0] == ResponseCode.SUCCESS
    assert asked(cluster, leader, MembershipAction.ADD, "n4")[0] == ResponseCode.SUCCESS


def test_follower_answers_not_leader_before_it_checks_sizes():
    cluster, _ = begun(400)

    code, _ = asked(cluster, cluster.machines["n2"], MembershipAction.ADD, "n4")

    assert code == ResponseCode.NOT_LEADER


def test_group_that_was_founded_has_space_to_readmit_and_promote_every_member():
    cluster, leader = begun(512)
    assert asked(cluster, leader, MembershipAction.ADD, "n4")[0] == ResponseCode.SUCCESS
    store, members = leader.node.store, leader.node.raft.membership.members

    longest = Membership(tuple(replace(member, incarnation=2**64 - 1) for member in members), 2**63 - 1)

    assert len(store.codec.membership(longest).body) <= store.max_body_bytes


def test_node_whose_data_files_are_too_small_to_found_its_group_does_not_start():
    cluster = Cluster(Settings(NODES, data_file_size_bytes=300, group_id=0))

    cluster.begin()

    assert all(machine.node is None for machine in cluster.machines.values())
    assert "expected data files that hold the entry with 3 members" in " ".join(cluster.transcript.take())


def test_wiped_voter_that_no_entry_can_readmit_stops_no_leader(caplog):
    _, leader = begun(512)
    node = leader.node
    member = node.raft.membership.get("n3")
    # As in a log of an older version: it accepted an entry that is too large once the numbers are longer.
    node.store.max_body_bytes = len(_entry(node)) + 5

    for _ in range(3):
        answer = HeartbeatResponse(node.raft.term, 1, incarnation=2**62 - 1)
        leader.feed(Received("n3", answer))

    assert leader.node is node
    assert node.raft.membership.get("n3") == member
    (line,) = [record.message for record in caplog.records if "readmission_does_not_fit" in record.message]
    assert "n3" in line


def _entry(node):
    return node.store.codec.membership(node.raft.membership).body


def fill_log(cluster, leader):
    """Append until the leader's log has no space for an entry of a single byte."""
    raft = leader.node.raft
    for size in (200, 1):
        last_index = NO_INDEX
        while last_index < raft.last_index:
            last_index = raft.last_index
            leader.node.append([("b", b"b" * size)])
    cluster.settle(NODES[:2])
    assert raft.commit_index == raft.last_index


def test_wiped_voter_is_readmitted_only_by_answers_for_which_space_was_reserved():
    """Its refusals and reports of snapshots have no incarnation; on a full disk they would stop the leader."""
    cluster, leader = begun(544, index_file_size_bytes=128)
    raft, node = leader.node.raft, leader.node
    node.append([("a", b"a" * 200)])
    # A wiped node answers while its readmission must wait for another change of the members.
    leader.feed(ChangeMembership(cluster.next_id(), MembershipAction.ADD, "n4", "host:1"))
    cluster.pass_time([leader], 100)
    leader.feed(Received("n3", HeartbeatResponse(raft.term, raft.state.leader.round, incarnation=77)))
    cluster.settle(NODES[:2])
    # The other voter cannot lead either.
    leader.feed(Received("n2", HeartbeatResponse(raft.term, raft.state.leader.round, is_healthy=False)))
    leader.disk.capacity_bytes = leader.disk.used_bytes
    fill_log(cluster, leader)
    members, last_index = raft.membership, raft.last_index

    leader.feed(Received("n3", PushRefused(raft.term, last_index, -1, -1, -1)))
    leader.feed(Received("n3", SnapshotProgress(raft.term, 0, 0)))
    leader.feed(Received("n3", PushAccepted(raft.term, -1, incarnation=77)))

    assert leader.node is node, cluster.transcript.take()
    assert raft.membership == members
    leader.disk.capacity_bytes = UNLIMITED_BYTES
    leader.feed(Received("n3", PushAccepted(raft.term, -1, incarnation=77)))
    assert raft.membership.get("n3").incarnation == 77
