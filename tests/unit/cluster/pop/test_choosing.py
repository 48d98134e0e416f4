"""The choice of messages while takes are proposed: what a failed one leaves is chosen again, whatever follows it."""

from collections import deque
from types import SimpleNamespace

from cluster.pop.choosing import Budget, Chooser
from cluster.protocol.topic_config import GroupConfig, TopicConfig
from cluster.state.broker_state import BrokerState
from cluster.state.commands import SetFeatureLevel, SetGroup, SetTopic
from cluster.state.features import FEATURE_LEVEL
from cluster.state.pop.ops import PopOps
from cluster.state.pop.state import PopKey
from store.access.get_message import GetResult, GetStatus

KEY = PopKey("billing", "orders", 0)
COUNT = 1_000
TAKEN = 8


class Queue:
    """A queue of a thousand messages."""

    def min_offset(self, _topic, _queue_id):
        return 0

    def max_offset(self, _topic, _queue_id):
        return COUNT

    def get(self, _topic, _queue_id, offset, count, _size_bytes, _expression):
        end = min(offset + count, COUNT)
        messages = [SimpleNamespace(queue_offset=each, size=100) for each in range(offset, end)]
        return GetResult(GetStatus.FOUND, end, 0, COUNT, messages)


def new_state():
    state = BrokerState()
    for command in (SetFeatureLevel(FEATURE_LEVEL), SetTopic(TopicConfig("orders")), SetGroup(GroupConfig("billing"))):
        assert state.apply_command(command).is_done
    return state


def test_takes_proposed_after_a_failed_one_do_not_keep_consumers_from_what_it_left():
    """Two consumers that are never idle at the same time, so that a take is always proposed."""
    state = new_state()
    chooser = Chooser(SimpleNamespace(state=state, store=Queue()), lambda _key: ())
    choose = lambda: chooser.choose(KEY, "*", 60_000, 1, Budget(TAKEN, 1 << 20))  # noqa: E731
    proposed = deque([choose(), choose()])

    chooser.ended(proposed.popleft(), None)
    proposed.append(choose())
    taken = []
    for _ in range(4):
        choice = proposed.popleft()
        (result,) = state.apply_command(PopOps(1, (choice.take,))).pops
        chooser.ended(choice, result)
        taken += result.offsets
        proposed.append(choose())

    assert taken == list(range(len(taken)))
    assert len(taken) >= 2 * TAKEN
