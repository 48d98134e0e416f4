"""Topics and their routes: creation, its errors, deletion, and what a name server answers."""

ROUTE, CREATE, DELETE = 105, 17, 215
CLUSTERS, ALL_TOPICS, TOPICS_OF_CLUSTER, SYSTEM_TOPICS = 106, 206, 224, 304
PUT_VALUE, GET_VALUE, DELETE_VALUE, GET_VALUES = 100, 101, 102, 219
TWO_QUEUES = {
    "defaultTopic": "TBW102",
    "readQueueNums": 2,
    "writeQueueNums": 2,
    "perm": 6,
    "topicFilterType": "SINGLE_TAG",
    "topicSysFlag": 0,
    "order": "false",
}


async def topics(side):
    await side.call("create", CREATE, topic="orders", **TWO_QUEUES)
    await side.call("create again", CREATE, topic="orders", **TWO_QUEUES)
    await side.call("route", ROUTE, to="names", topic="orders")
    await side.call("route as standard JSON", ROUTE, to="names", topic="orders", acceptStandardJsonOnly="true")
    await side.call("route of an unknown topic", ROUTE, to="names", topic="nothing")
    await side.call("route without a topic", ROUTE, to="names")
    await side.call("route of the topic of automatic creation", ROUTE, to="names", topic="TBW102")
    await side.call("route of the broker's name", ROUTE, to="names", topic="b")
    await side.call("route of the cluster's name", ROUTE, to="names", topic="DefaultCluster")
    await side.call("route of replies", ROUTE, to="names", topic="DefaultCluster_REPLY_TOPIC")
    await side.call("create with a name that is not valid", CREATE, topic="a b", **TWO_QUEUES)
    await side.call("create with a long name", CREATE, topic="t" * 128, **TWO_QUEUES)
    await side.call("create with the longest name", CREATE, topic="t" * 127, **TWO_QUEUES)
    await side.call("create without a name", CREATE, **TWO_QUEUES)
    await side.call("create a system topic", CREATE, topic="TBW102", **TWO_QUEUES)
    await side.call("create the topic of delays", CREATE, topic="SCHEDULE_TOPIC_XXXX", **TWO_QUEUES)
    await side.call(
        "create without queues", CREATE, topic="none", **{**TWO_QUEUES, "readQueueNums": 0, "writeQueueNums": 0}
    )
    await side.call("create without a permission", CREATE, topic="no-perm", **{**TWO_QUEUES, "perm": 0})
    await side.call("create with a wrong permission", CREATE, topic="perm-64", **{**TWO_QUEUES, "perm": 64})
    await side.call(
        "create without a number of queues", CREATE, topic="no-number", perm=6, topicFilterType="SINGLE_TAG"
    )
    await side.call("create with attributes", CREATE, topic="fifo", attributes="+message.type=FIFO", **TWO_QUEUES)
    await side.call("create with a wrong attribute", CREATE, topic="odd", attributes="+colour=red", **TWO_QUEUES)
    await side.call("create with a wrong type", CREATE, topic="odd", attributes="+message.type=RED", **TWO_QUEUES)
    await side.call("more queues", CREATE, topic="orders", **{**TWO_QUEUES, "readQueueNums": 4, "writeQueueNums": 4})
    await side.call("fewer queues", CREATE, topic="orders", **TWO_QUEUES)
    await side.call("read only", CREATE, topic="read-only", **{**TWO_QUEUES, "perm": 4})
    await side.call("config", 351, topic="fifo")
    await side.call("config of an unknown topic", 351, topic="nothing")
    await side.call("status", 202, topic="fifo")
    await side.call("status of an unknown topic", 202, topic="nothing")
    await side.call("groups of a topic", 300, topic="fifo")
    await side.call("delete", DELETE, topic="no-number")
    await side.call("delete an unknown topic", DELETE, topic="nothing")
    await side.call("delete without a name", DELETE)
    await side.call("delete a system topic", DELETE, topic="TBW102")
    await side.call("delete at the name server", 216, to="names", topic="no-number")


async def names(side):
    await side.call("clusters", CLUSTERS, to="names")
    await side.call("all topics", ALL_TOPICS, to="names")
    await side.call("topics of the cluster", TOPICS_OF_CLUSTER, to="names", cluster="DefaultCluster")
    await side.call("topics of an unknown cluster", TOPICS_OF_CLUSTER, to="names", cluster="other")
    await side.call("system topics", SYSTEM_TOPICS, to="names")
    await side.call("system topics of the broker", 305)
    await side.call("unknown value", GET_VALUE, to="names", namespace="N", key="k")
    await side.call("unknown values", GET_VALUES, to="names", namespace="N")
    await side.call("put a value", PUT_VALUE, to="names", namespace="N", key="k", value="v")
    await side.call("delete a value", DELETE_VALUE, to="names", namespace="N", key="k")
    await side.call("settings", 319, to="names")
    await side.call("no write permission", 205, to="names", brokerName="other")
    await side.call("unknown code at the name server", 9_999, to="names")
    await side.call("unknown code", 9_999)
