"""Calls of a front to the leader: repeated until the deadline while the leader changes, and never after a refusal."""

import pytest

from cluster.fronts.callers import act_for
from cluster.fronts.leader_link import LeaderLink
from cluster.protocol.errors import Reason, RequestFailed
from dledger.authentication.front_tokens import FrontClient
from dledger.security.settings import PLAIN
from store.errors import Certainty
from tests.support.waiting import in_a_loop


class ScriptedNodes:
    """Nodes that fail, one call after the other, and then answer.

    Attributes:
        called: address of each call.
    """

    def __init__(self, *failures):
        self._failures = list(failures)
        self.called = []

    async def reach(self, address, timeout_s):
        pass

    async def call_node(self, address, method, request, timeout_s):
        self.called.append(address)
        if self._failures:
            raise self._failures.pop(0)
        return "answer"


def link_of(nodes, *leaders):
    known = list(leaders)
    link = LeaderLink(lambda: known.pop(0) if len(known) > 1 else known[0], PLAIN)
    link._current.nodes = nodes
    return link


@in_a_loop
async def test_a_call_is_repeated_at_the_next_leader():
    nodes = ScriptedNodes(
        RequestFailed(Reason.ANSWER_LOST, "the leader was killed"),
        RequestFailed(Reason.LEADER_NOT_READY, "elected"),
    )
    assert await link_of(nodes, "a", "", "b").call(None, None, 30) == "answer"
    assert nodes.called == ["a", "b", "b"]


@in_a_loop
async def test_a_node_that_names_the_leader_is_followed():
    nodes = ScriptedNodes(RequestFailed(Reason.NOT_LEADER, "no", leader="b"))
    assert await link_of(nodes, "a").call(None, None, 30) == "answer"
    assert nodes.called == ["a", "b"]


@in_a_loop
async def test_a_refusal_of_the_leader_is_not_repeated():
    nodes = ScriptedNodes(RequestFailed(Reason.UNKNOWN_TOPIC, "no"))
    with pytest.raises(RequestFailed) as caught:
        await link_of(nodes, "a").call(None, None, 30)
    assert (caught.value.reason, nodes.called) == (Reason.UNKNOWN_TOPIC, ["a"])


@in_a_loop
async def test_a_leader_with_users_that_this_node_does_not_know_yet_is_asked_again_by_the_client():
    refused = RequestFailed(Reason.NOT_AUTHENTICATED, "no token")
    cases = [(None, Reason.LEADER_NOT_READY), (FrontClient("AK1", None), Reason.NOT_AUTHENTICATED)]
    for client, expected in cases:
        act_for(client)
        nodes = ScriptedNodes(refused)
        with pytest.raises(RequestFailed) as caught:
            await link_of(nodes, "a").call(None, None, 30)
        assert (caught.value.reason, caught.value.certainty) == (expected, Certainty.NOT_APPENDED)
        assert nodes.called == ["a"]


@in_a_loop
async def test_without_a_leader_a_call_fails_at_its_deadline():
    with pytest.raises(RequestFailed) as caught:
        await link_of(ScriptedNodes(), "").call(None, None, 0.1)
    assert caught.value.reason is Reason.NOT_LEADER
