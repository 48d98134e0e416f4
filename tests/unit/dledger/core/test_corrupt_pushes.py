"""The reaction of a leader to pushes whose bytes a follower cannot verify."""

from itertools import pairwise

from dledger.core.events import Propose, PushNotTaken, Received
from dledger.core.messages import Push

THREE = {"a": [], "b": [], "c": []}


class Garbled:
    """Damages every push with entries to a node, until `is_over`."""

    def __init__(self, cluster, node_id):
        self.is_over = False
        self.times_ms = []
        node = cluster[node_id]
        step = node.step

        def receive(event):
            is_push = isinstance(event, Received) and isinstance(event.message, Push) and event.message.span is not None
            if not is_push or self.is_over:
                return step(event)
            self.times_ms.append(cluster.now_ms)
            return step(PushNotTaken(event.sender, event.message, is_corrupt=True))

        node.step = receive


def test_pushes_that_do_not_verify_are_sent_again_with_growing_pauses(group):
    cluster = group(THREE)
    leader = cluster.campaign("a")
    cluster.tick(100)
    garbled = Garbled(cluster, "b")

    for _ in range(5):
        leader.step(Propose(1, 1))
        cluster.deliver()
    assert leader.raft.is_refusing_corrupt("b")
    assert not leader.raft.is_refusing_corrupt("c")
    assert leader.raft.commit_index == leader.raft.last_index, "the others continue"
    cluster.tick(30_000)

    tries = sorted(set(garbled.times_ms))
    pauses = [later - earlier for earlier, later in pairwise(tries)]
    beat = leader.config.heart_beat_time_interval_ms
    assert pauses == sorted(pauses)
    assert pauses[0] >= 2 * beat
    assert 64 * beat <= pauses[-1] <= 66 * beat
    assert len(garbled.times_ms) <= 5 * len(tries) <= 5 * 12
    assert cluster.leaders == ["a"]

    garbled.is_over = True
    cluster.tick(pauses[-1] + 2 * beat)
    assert cluster["b"].terms == leader.terms
    assert not leader.raft.is_refusing_corrupt("b")
    assert leader.raft.state.progress_of("b").corrupt_count == 0


def test_one_push_that_did_not_verify_is_sent_again_after_a_pause(group):
    cluster = group(THREE)
    leader = cluster.campaign("a")
    cluster.tick(100)
    garbled = Garbled(cluster, "b")
    leader.step(Propose(1, 1))
    cluster.deliver()
    garbled.is_over = True

    cluster.tick(4 * leader.config.heart_beat_time_interval_ms)

    assert len(garbled.times_ms) == 1
    assert cluster["b"].terms == leader.terms
