"""How members of a group read a topic: they pull shares of its queues, or pop all of them, as it is set."""

import json

from tests.integration.cluster.api.conftest import TOPIC, run
from tests.integration.cluster.api.remoting.conftest import opened

GROUP, OK = "g", 0


def assignment_body(**changes):
    fields = {"clientId": "c1", "consumerGroup": GROUP, "messageModel": "CLUSTERING", "topic": TOPIC}
    return json.dumps({**fields, "strategyName": "AVG", **changes}).encode()


async def assigned(side, **changes):
    response = await side.ask(400, body=assignment_body(**changes))
    assert response.code == OK, response.remark
    rows = json.loads(response.body)["messageQueueAssignments"]
    return [(each["mode"], each["messageQueue"]["queueId"]) for each in rows]


async def set_mode(side, **changes):
    fields = {"consumerGroup": GROUP, "topic": TOPIC, "mode": "POP", "popShareQueueNum": 8}
    return (await side.ask(401, body=json.dumps({**fields, **changes}).encode())).code


def test_a_group_pulls_a_topic_until_it_is_set_to_pop_and_each_member_pops_all_queues_then(shop):
    async def scenario():
        async with opened(shop) as side:
            assert (await side.ask(400, body=assignment_body())).code == 1, "no member"
            assert [(await side.beat(each)).code for each in ("c1", "c2")] == [OK, OK]
            assert [await assigned(side, clientId=each) for each in ("c1", "c2")] == [[("PULL", 0)], [("PULL", 1)]]
            assert await assigned(side, messageModel="BROADCASTING") == [("PULL", 0), ("PULL", 1)]
            assert await set_mode(side) == OK
            for client_id in ("c1", "c2"):
                assert await assigned(side, clientId=client_id) == [("POP", -1)]
            assert await assigned(side, topic=f"%RETRY%{GROUP}") == [("PULL", 0)]
            assert await set_mode(side, mode="PULL") == OK
            assert await assigned(side, strategyName="AVG_BY_CIRCLE") == [("PULL", 0)]

    run(scenario)


def test_the_mode_of_a_new_group_is_kept_with_it_and_wrong_modes_are_refused(shop):
    async def scenario():
        async with opened(shop) as side:
            assert await set_mode(side, consumerGroup="new") == OK
            assert dict(shop.replica.state.groups["new"].attributes) == {f"request.mode.{TOPIC}": "POP:8"}
            assert [await set_mode(side, mode=each) for each in ("pop", "", 7)] == [29] * 3
            assert [await set_mode(side, popShareQueueNum=each) for each in (-2, "8", True)] == [29] * 3
            assert await set_mode(side, topic="%RETRY%g") == 16
            assert [await set_mode(side, consumerGroup=each, topic="unknown") for each in ("new", "newer")] == [17, 17]
            assert dict(shop.replica.state.groups["new"].attributes) == {f"request.mode.{TOPIC}": "POP:8"}
            assert "newer" not in shop.replica.state.groups
            assert (await side.ask(400, body=assignment_body(topic="unknown"))).code == 17
            await side.beat("c1")
            assert (await side.ask(400, body=assignment_body(strategyName="other"))).code == 29

    run(scenario)


def test_no_group_is_made_for_a_mode_where_groups_are_not_made(shop):
    async def scenario():
        async with opened(shop, auto_create_subscription_group=False) as side:
            assert await set_mode(side) == 26

    run(scenario)
