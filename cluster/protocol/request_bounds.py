"""The bounds of all request fields of BrokerService and NameServer, with reasons.

A request within these bounds never blocks the event loop for more than 50 ms
(`tests/integration/cluster/api/bounds/test_hostile_requests.py`).
"""

from __future__ import annotations

from typing import Final

from cluster.protocol.handle_bounds import ATTEMPT_ID_LENGTH_MAX, HANDLE_LENGTH_MAX, HANDLES_MAX
from cluster.protocol.route_table import NODES_MAX, TERM_MAX, TOPICS_PER_REGISTRATION_MAX
from cluster.protocol.topic_config import ATTRIBUTE_LENGTH_MAX, ATTRIBUTES_MAX, QUEUES_MAX
from dledger.service.limits.field_bounds import ANY_NUMBER, FIELDS, Bound, Bounds, Many, Number, Text
from dledger.service.limits.request_bounds import ADDRESS, NAME
from store.access.message_store import PUT_MESSAGES_MAX
from store.model.topics import DELAY_LEVELS_MAX
from store.sql92.tokens import LENGTH_MAX

# A tags expression with 256 tags of usual length.
TAGS_LENGTH_MAX: Final = 8_192
# One word of a message's KEYS, which have at most 32,767 bytes together.
KEY_LENGTH_MAX: Final = 32_767
# An offset message id, which has 32 or 56 digits.
MESSAGE_ID_LENGTH_MAX: Final = 64
# Queue and offset.
CURSOR_LENGTH_MAX: Final = 64
# The body and the properties of one message: above the limits of a record, whose own error has the exact limit.
BODY_LENGTH_MAX: Final = 8 << 20
PROPERTIES_LENGTH_MAX: Final = 64 << 10
# Transactions of one EndTransactions.
ENDS_PER_REQUEST_MAX: Final = 256
SUBSCRIBE_QUEUES_MAX: Final = 1_024
# Subscriptions of one consumer.
SUBSCRIPTIONS_MAX: Final = 1_024
ROUTE_TOPICS_MAX: Final = 1_000
LOCK_QUEUES_MAX: Final = 4_096
# A pipeline may list every topic of a broker.
DESCRIBE_TOPICS_MAX: Final = 10_000
# Topics of a plan, which names at most `QUEUES_MAX` of their queues together.
SPANS_MAX: Final = 4_096

_TAGS: Final = Text(TAGS_LENGTH_MAX)
# In bytes; an expression has at most `LENGTH_MAX` characters.
_SQL: Final = Text(4 * LENGTH_MAX)
# The maximum number of queues of a topic.
_QUEUE_IDS: Final = Many(QUEUES_MAX, ANY_NUMBER)
_EACH_MESSAGE: Final = Many(PUT_MESSAGES_MAX, ANY_NUMBER)
_ATTRIBUTE: Final = {"key": Text(ATTRIBUTE_LENGTH_MAX), "value": Text(ATTRIBUTE_LENGTH_MAX)}
_ATTRIBUTES: Final = Many(ATTRIBUTES_MAX, FIELDS)
_GROUP: Final = {"group": NAME}
_TOPIC: Final = {"topic": NAME}
# Names and a key in base64.
RECALL_HANDLE_LENGTH_MAX: Final = 2 * (KEY_LENGTH_MAX + 1_024)
_LOCKS: Final[dict[str, Bound]] = {
    "group": NAME,
    "client_id": NAME,
    "queues": Many(LOCK_QUEUES_MAX, FIELDS),
    "is_kept": ANY_NUMBER,
    "is_unjoined": ANY_NUMBER,
}

BROKER_BOUNDS: Final[Bounds] = {
    # -------------------------------------------------------------------------------------------------------- messages
    "cluster.v1.PutRequest": {
        "topic": NAME,
        "queue_ids": _EACH_MESSAGE,
        "bodies": Many(PUT_MESSAGES_MAX, Text(BODY_LENGTH_MAX)),
        "properties": Many(PUT_MESSAGES_MAX, Text(PROPERTIES_LENGTH_MAX)),
        "flags": _EACH_MESSAGE,
        "sys_flags": _EACH_MESSAGE,
        "born_timestamps": _EACH_MESSAGE,
        "reconsume_times": _EACH_MESSAGE,
        "request_id": ANY_NUMBER,
    },
    "cluster.v1.GetRequest": {
        "topic": NAME,
        "queue_id": ANY_NUMBER,
        "offset": ANY_NUMBER,
        "max_messages": ANY_NUMBER,
        "max_bytes": ANY_NUMBER,
        "tags": _TAGS,
        "wait_ms": ANY_NUMBER,
        "mode": ANY_NUMBER,
        "form": ANY_NUMBER,
        "group": NAME,
        "sql": _SQL,
    },
    "cluster.v1.SubscribeRequest": {
        "topic": NAME,
        "queue_ids": Many(SUBSCRIBE_QUEUES_MAX, ANY_NUMBER),
        "offsets": Many(SUBSCRIBE_QUEUES_MAX, ANY_NUMBER),
        "tags": _TAGS,
        "mode": ANY_NUMBER,
        "form": ANY_NUMBER,
        "group": NAME,
        "max_bytes": ANY_NUMBER,
        "sql": _SQL,
    },
    "cluster.v1.QueryByKeyRequest": {
        "topic": NAME,
        "key": Text(KEY_LENGTH_MAX),
        "max_messages": ANY_NUMBER,
        "begin_ms": ANY_NUMBER,
        "end_ms": ANY_NUMBER,
        "form": ANY_NUMBER,
    },
    "cluster.v1.QueryByIdRequest": {
        "message_id": Text(MESSAGE_ID_LENGTH_MAX),
        "unique_key": Text(KEY_LENGTH_MAX),
        "topic": NAME,
        "form": ANY_NUMBER,
    },
    "cluster.v1.RecallMessageRequest": {"topic": NAME, "recall_handle": Text(RECALL_HANDLE_LENGTH_MAX)},
    "cluster.v1.QueryByTimeRequest": {
        "topic": NAME,
        "queue_ids": _QUEUE_IDS,
        "begin_ms": ANY_NUMBER,
        "end_ms": ANY_NUMBER,
        "max_messages": ANY_NUMBER,
        "cursor": Text(CURSOR_LENGTH_MAX),
        "form": ANY_NUMBER,
    },
    "cluster.v1.OffsetsRequest": {
        "topic": NAME,
        "queue_ids": _QUEUE_IDS,
        "timestamp_ms": ANY_NUMBER,
        "boundary": ANY_NUMBER,
    },
    # ----------------------------------------------------------------------------------------- the log in large chunks
    "cluster.v1.DescribeLogRequest": {
        "topics": Many(DESCRIBE_TOPICS_MAX, NAME),
        "mode": ANY_NUMBER,
        "timestamp_ms": ANY_NUMBER,
    },
    "cluster.v1.PlanLogRequest": {
        "spans": Many(SPANS_MAX, FIELDS, dict.fromkeys(("queue_ids", "begins", "ends"), QUEUES_MAX)),
        "max_messages": ANY_NUMBER,
        "max_bytes": ANY_NUMBER,
        "split_bytes": ANY_NUMBER,
        "mode": ANY_NUMBER,
    },
    "cluster.v1.QueueSpans": {"topic": NAME, "queue_ids": _QUEUE_IDS, "begins": _QUEUE_IDS, "ends": _QUEUE_IDS},
    "cluster.v1.ReadLogRequest": {
        "begin_offset": ANY_NUMBER,
        "end_offset": ANY_NUMBER,
        "topic": NAME,
        "queue_id": ANY_NUMBER,
        "begin": ANY_NUMBER,
        "end": ANY_NUMBER,
        "chunk_bytes": ANY_NUMBER,
    },
    # ------------------------------------------------------------------------------------------------- consumer groups
    "cluster.v1.CommitOffsetRequest": {
        "group": NAME,
        "topic": NAME,
        "queue_ids": _QUEUE_IDS,
        "offsets": _QUEUE_IDS,
        "reset_counts": _QUEUE_IDS,
    },
    "cluster.v1.FetchOffsetRequest": {"group": NAME, "topic": NAME, "queue_ids": _QUEUE_IDS},
    "cluster.v1.ResetOffsetRequest": {"group": NAME, "topic": NAME, "queue_ids": _QUEUE_IDS, "offsets": _QUEUE_IDS},
    "cluster.v1.JoinGroupRequest": {
        "group": NAME,
        "client_id": NAME,
        "instance": ANY_NUMBER,
        "subscriptions": Many(SUBSCRIPTIONS_MAX, FIELDS),
    },
    "cluster.v1.Subscription": {"topic": NAME, "tags": _TAGS, "sql": _SQL},
    "cluster.v1.QueueId": {"topic": NAME, "queue_id": ANY_NUMBER},
    "cluster.v1.LockQueuesRequest": _LOCKS,
    "cluster.v1.ReturnMessageRequest": {
        "group": NAME,
        "topic": NAME,
        "queue_id": ANY_NUMBER,
        "queue_offset": ANY_NUMBER,
        "physical_offset": ANY_NUMBER,
        "delay_level": ANY_NUMBER,
        "max_reconsume_times": ANY_NUMBER,
    },
    # ------------------------------------------------------------------------------------------------- pop consumption
    "cluster.v1.ReceiveRequest": {
        "group": NAME,
        "topic": NAME,
        "queue_ids": Many(SUBSCRIBE_QUEUES_MAX, ANY_NUMBER),
        "max_messages": ANY_NUMBER,
        "invisible_ms": ANY_NUMBER,
        "wait_ms": ANY_NUMBER,
        "tags": _TAGS,
        "sql": _SQL,
        "form": ANY_NUMBER,
        "is_from_end": ANY_NUMBER,
        "attempt_id": Text(ATTEMPT_ID_LENGTH_MAX),
    },
    "cluster.v1.AcknowledgeRequest": {
        "group": NAME,
        "topic": NAME,
        "handles": Many(HANDLES_MAX, Text(HANDLE_LENGTH_MAX)),
    },
    "cluster.v1.ChangeInvisibleRequest": {
        "group": NAME,
        "topic": NAME,
        "handle": Text(HANDLE_LENGTH_MAX),
        "invisible_ms": ANY_NUMBER,
        "is_uncounted": ANY_NUMBER,
    },
    # -------------------------------------------------------------------------------------------------- administration
    "cluster.v1.SetTopicRequest": {"topic": FIELDS, "is_new": ANY_NUMBER},
    "cluster.v1.Topic": {
        "name": NAME,
        "read_queues": ANY_NUMBER,
        "write_queues": ANY_NUMBER,
        "permission": ANY_NUMBER,
        "is_ordered": ANY_NUMBER,
        "sys_flag": ANY_NUMBER,
        "attributes": _ATTRIBUTES,
    },
    "cluster.v1.Topic.AttributesEntry": _ATTRIBUTE,
    "cluster.v1.DeleteTopicRequest": _TOPIC,
    "cluster.v1.ListTopicsRequest": {"topic": NAME, "is_system_included": ANY_NUMBER},
    "cluster.v1.SetGroupRequest": {"group": FIELDS, "is_new": ANY_NUMBER},
    "cluster.v1.Group": {
        "name": NAME,
        "is_consume_enabled": ANY_NUMBER,
        "is_broadcast_enabled": ANY_NUMBER,
        "is_from_min_enabled": ANY_NUMBER,
        "is_orderly": ANY_NUMBER,
        "retry_queues": ANY_NUMBER,
        "retry_max_times": ANY_NUMBER,
        "consume_timeout_minutes": ANY_NUMBER,
        "sys_flag": ANY_NUMBER,
        "attributes": _ATTRIBUTES,
    },
    "cluster.v1.Group.AttributesEntry": _ATTRIBUTE,
    "cluster.v1.DeleteGroupRequest": _GROUP,
    "cluster.v1.ListGroupsRequest": _GROUP,
    "cluster.v1.RouteRequest": {"topics": Many(ROUTE_TOPICS_MAX, NAME)},
    # ---------------------------------------------------------------------------------------------------- transactions
    "cluster.v1.EndTransactionRequest": {
        "topic": NAME,
        "producer_group": NAME,
        "half_offset": ANY_NUMBER,
        "physical_offset": ANY_NUMBER,
        "transaction_id": Text(KEY_LENGTH_MAX),
        "end": ANY_NUMBER,
    },
    "cluster.v1.EndTransactionsRequest": {
        "topic": NAME,
        "producer_group": NAME,
        "half_offsets": Many(ENDS_PER_REQUEST_MAX, ANY_NUMBER),
        "physical_offsets": Many(ENDS_PER_REQUEST_MAX, ANY_NUMBER),
        "transaction_ids": Many(ENDS_PER_REQUEST_MAX, Text(KEY_LENGTH_MAX)),
        "ends": Many(ENDS_PER_REQUEST_MAX, ANY_NUMBER),
    },
    "cluster.v1.SetDelayLevelsRequest": {"delay_ms": Many(DELAY_LEVELS_MAX, ANY_NUMBER)},
    "cluster.v1.TransactionChecksRequest": {"producer_group": NAME, "topics": Many(ROUTE_TOPICS_MAX, NAME)},
    "cluster.v1.ListTransactionsRequest": {"from_half_offset": ANY_NUMBER, "max_transactions": ANY_NUMBER},
    "cluster.v1.BrokerStatusRequest": {},
}

_NAME: Final = Text(128)
_TERM: Final = Number(0, TERM_MAX)
_LIFE: Final = Text(16)

NAME_SERVER_BOUNDS: Final[Bounds] = {
    "cluster.v1.BrokerNode": {"id": Text(32), "address": ADDRESS},
    "cluster.v1.TopicQueues": {
        "topic": NAME,
        "read_queues": Number(0, QUEUES_MAX),
        "write_queues": Number(0, QUEUES_MAX),
        "permission": Number(0, 15),
        "is_ordered": ANY_NUMBER,
    },
    "cluster.v1.RegisterRequest": {
        "broker": _NAME,
        "cluster": _NAME,
        "term": _TERM,
        "sequence": ANY_NUMBER,
        "leader_id": Text(32),
        "nodes": Many(NODES_MAX, FIELDS),
        "topics": Many(TOPICS_PER_REGISTRATION_MAX, FIELDS),
        "since_sequence": ANY_NUMBER,
        "deleted_topics": Many(TOPICS_PER_REGISTRATION_MAX, NAME),
        "piece": ANY_NUMBER,
        "has_more": ANY_NUMBER,
        "life": _LIFE,
    },
    "cluster.v1.HeartbeatRequest": {"broker": _NAME, "term": _TERM, "sequence": ANY_NUMBER, "life": _LIFE},
    "cluster.v1.UnregisterRequest": {"broker": _NAME, "term": _TERM, "life": _LIFE},
    "cluster.v1.RouteRequest": {"topics": Many(ROUTE_TOPICS_MAX, NAME)},
    "cluster.v1.ListRegisteredTopicsRequest": {"after": NAME},
    "cluster.v1.ListBrokersRequest": {},
    "cluster.v1.SetWritableRequest": {"broker": _NAME, "is_writable": ANY_NUMBER},
}
