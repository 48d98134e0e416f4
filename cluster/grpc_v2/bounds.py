"""The bounds of all request fields of MessagingService; see `dledger.service.limits.field_bounds`.

They bound the size, above the limits of RocketMQ, so that a field that is only a little too large gets RocketMQ's own
code from the module that examines it.
"""

from __future__ import annotations

from typing import Final

from cluster.protocol.handle_bounds import ATTEMPT_ID_LENGTH_MAX, HANDLE_LENGTH_MAX, HANDLES_MAX
from cluster.protocol.request_bounds import RECALL_HANDLE_LENGTH_MAX, TAGS_LENGTH_MAX
from dledger.service.limits.field_bounds import ANY_NUMBER, FIELDS, Bound, Bounds, Many, Text
from dledger.service.limits.request_bounds import NAME
from store.sql92.tokens import LENGTH_MAX

# Messages of one send; all of one topic.
MESSAGES_MAX: Final = 1_024
# Topics of one client.
TOPICS_MAX: Final = 1_000
BODY_LENGTH_MAX: Final = 8 << 20
_PROPERTIES_MAX: Final = 256
_KEYS_MAX: Final = 256
_PROPERTY: Final = Text(32_767)
_EXPRESSION: Final = Text(max(TAGS_LENGTH_MAX, LENGTH_MAX))
# An id that a client made up; that of a transaction has offsets after it.
_ID: Final = Text(1_024)
_HANDLE: Final = Text(2 * HANDLE_LENGTH_MAX)
_GROUP_TOPIC: Final[dict[str, Bound]] = {"group": FIELDS, "topic": FIELDS}
_TIME: Final = {"seconds": ANY_NUMBER, "nanos": ANY_NUMBER}

BOUNDS: Final[Bounds] = {
    "google.protobuf.Duration": _TIME,
    "google.protobuf.Timestamp": _TIME,
    "apache.rocketmq.v2.Resource": {"resource_namespace": NAME, "name": NAME},
    "apache.rocketmq.v2.Address": {"host": NAME, "port": ANY_NUMBER},
    "apache.rocketmq.v2.Endpoints": {"scheme": ANY_NUMBER, "addresses": Many(64, FIELDS)},
    "apache.rocketmq.v2.Broker": {"name": NAME, "id": ANY_NUMBER, "endpoints": FIELDS},
    "apache.rocketmq.v2.MessageQueue": {
        "topic": FIELDS,
        "id": ANY_NUMBER,
        "permission": ANY_NUMBER,
        "broker": FIELDS,
        "accept_message_types": Many(16, ANY_NUMBER),
    },
    "apache.rocketmq.v2.FilterExpression": {"type": ANY_NUMBER, "expression": _EXPRESSION},
    "apache.rocketmq.v2.Status": {"code": ANY_NUMBER, "message": Text(8_192)},
    # -------------------------------------------------------------------------------------------------------- messages
    "apache.rocketmq.v2.Digest": {"type": ANY_NUMBER, "checksum": NAME},
    "apache.rocketmq.v2.DeadLetterQueue": {"topic": NAME, "message_id": _ID},
    "apache.rocketmq.v2.SystemProperties": {
        "tag": _PROPERTY,
        "keys": Many(_KEYS_MAX, Text(1_024)),
        "message_id": _ID,
        "body_digest": FIELDS,
        "body_encoding": ANY_NUMBER,
        "message_type": ANY_NUMBER,
        "born_timestamp": FIELDS,
        "born_host": NAME,
        "store_timestamp": FIELDS,
        "store_host": NAME,
        "delivery_timestamp": FIELDS,
        "receipt_handle": _HANDLE,
        "queue_id": ANY_NUMBER,
        "queue_offset": ANY_NUMBER,
        "invisible_duration": FIELDS,
        "delivery_attempt": ANY_NUMBER,
        "message_group": _ID,
        "trace_context": _ID,
        "orphaned_transaction_recovery_duration": FIELDS,
        "dead_letter_queue": FIELDS,
        "lite_topic": NAME,
        "priority": ANY_NUMBER,
    },
    "apache.rocketmq.v2.Message.UserPropertiesEntry": {"key": _PROPERTY, "value": _PROPERTY},
    "apache.rocketmq.v2.Message": {
        "topic": FIELDS,
        "user_properties": Many(_PROPERTIES_MAX, FIELDS),
        "system_properties": FIELDS,
        "body": Text(BODY_LENGTH_MAX),
    },
    "apache.rocketmq.v2.SendMessageRequest": {"messages": Many(MESSAGES_MAX, FIELDS)},
    "apache.rocketmq.v2.RecallMessageRequest": {"topic": FIELDS, "recall_handle": Text(RECALL_HANDLE_LENGTH_MAX)},
    "apache.rocketmq.v2.EndTransactionRequest": {
        "topic": FIELDS,
        "message_id": _ID,
        "transaction_id": Text(2 * _ID.length_max),
        "resolution": ANY_NUMBER,
        "source": ANY_NUMBER,
        "trace_context": _ID,
    },
    # ------------------------------------------------------------------------------------------------ routes, consumers
    "apache.rocketmq.v2.QueryRouteRequest": {"topic": FIELDS, "endpoints": FIELDS},
    "apache.rocketmq.v2.QueryAssignmentRequest": {**_GROUP_TOPIC, "endpoints": FIELDS},
    "apache.rocketmq.v2.HeartbeatRequest": {"group": FIELDS, "client_type": ANY_NUMBER},
    "apache.rocketmq.v2.NotifyClientTerminationRequest": {"group": FIELDS},
    "apache.rocketmq.v2.ReceiveMessageRequest": {
        "group": FIELDS,
        "message_queue": FIELDS,
        "filter_expression": FIELDS,
        "batch_size": ANY_NUMBER,
        "invisible_duration": FIELDS,
        "auto_renew": ANY_NUMBER,
        "long_polling_timeout": FIELDS,
        "attempt_id": Text(ATTEMPT_ID_LENGTH_MAX),
    },
    "apache.rocketmq.v2.AckMessageEntry": {"message_id": _ID, "receipt_handle": _HANDLE, "lite_topic": NAME},
    "apache.rocketmq.v2.AckMessageRequest": {**_GROUP_TOPIC, "entries": Many(HANDLES_MAX, FIELDS)},
    "apache.rocketmq.v2.ForwardMessageToDeadLetterQueueRequest": {
        **_GROUP_TOPIC,
        "receipt_handle": _HANDLE,
        "message_id": _ID,
        "delivery_attempt": ANY_NUMBER,
        "max_delivery_attempts": ANY_NUMBER,
        "lite_topic": NAME,
    },
    "apache.rocketmq.v2.ChangeInvisibleDurationRequest": {
        **_GROUP_TOPIC,
        "receipt_handle": _HANDLE,
        "invisible_duration": FIELDS,
        "message_id": _ID,
        "lite_topic": NAME,
        "suspend": ANY_NUMBER,
    },
    # ------------------------------------------------------------------------------------------------------- telemetry
    "apache.rocketmq.v2.ExponentialBackoff": {"initial": FIELDS, "max": FIELDS, "multiplier": ANY_NUMBER},
    "apache.rocketmq.v2.CustomizedBackoff": {"next": Many(256, FIELDS)},
    "apache.rocketmq.v2.RetryPolicy": {
        "max_attempts": ANY_NUMBER,
        "exponential_backoff": FIELDS,
        "customized_backoff": FIELDS,
    },
    "apache.rocketmq.v2.UA": {"language": ANY_NUMBER, "version": NAME, "platform": NAME, "hostname": NAME},
    "apache.rocketmq.v2.Publishing": {
        "topics": Many(TOPICS_MAX, FIELDS),
        "max_body_size": ANY_NUMBER,
        "validate_message_type": ANY_NUMBER,
    },
    "apache.rocketmq.v2.SubscriptionEntry": {"topic": FIELDS, "expression": FIELDS},
    "apache.rocketmq.v2.Subscription": {
        "group": FIELDS,
        "subscriptions": Many(TOPICS_MAX, FIELDS),
        "fifo": ANY_NUMBER,
        "receive_batch_size": ANY_NUMBER,
        "long_polling_timeout": FIELDS,
        "lite_subscription_quota": ANY_NUMBER,
        "max_lite_topic_size": ANY_NUMBER,
    },
    "apache.rocketmq.v2.Metric": {"on": ANY_NUMBER, "endpoints": FIELDS},
    "apache.rocketmq.v2.Settings": {
        "client_type": ANY_NUMBER,
        "access_point": FIELDS,
        "backoff_policy": FIELDS,
        "request_timeout": FIELDS,
        "publishing": FIELDS,
        "subscription": FIELDS,
        "user_agent": FIELDS,
        "metric": FIELDS,
    },
    "apache.rocketmq.v2.ThreadStackTrace": {"nonce": NAME, "thread_stack_trace": Text(1 << 20)},
    "apache.rocketmq.v2.VerifyMessageResult": {"nonce": NAME},
    "apache.rocketmq.v2.RecoverOrphanedTransactionCommand": {"message": FIELDS, "transaction_id": _ID},
    "apache.rocketmq.v2.PrintThreadStackTraceCommand": {"nonce": NAME},
    "apache.rocketmq.v2.VerifyMessageCommand": {"nonce": NAME, "message": FIELDS},
    "apache.rocketmq.v2.ReconnectEndpointsCommand": {"nonce": NAME},
    "apache.rocketmq.v2.NotifyUnsubscribeLiteCommand": {"lite_topic": NAME},
    "apache.rocketmq.v2.TelemetryCommand": {
        "status": FIELDS,
        "settings": FIELDS,
        "thread_stack_trace": FIELDS,
        "verify_message_result": FIELDS,
        "recover_orphaned_transaction_command": FIELDS,
        "print_thread_stack_trace_command": FIELDS,
        "verify_message_command": FIELDS,
        "reconnect_endpoints_command": FIELDS,
        "notify_unsubscribe_lite_command": FIELDS,
    },
    # ---------------------------------------------------------------------------------------------------- not supported
    "apache.rocketmq.v2.PullMessageRequest": {
        "group": FIELDS,
        "message_queue": FIELDS,
        "offset": ANY_NUMBER,
        "batch_size": ANY_NUMBER,
        "filter_expression": FIELDS,
        "long_polling_timeout": FIELDS,
    },
    "apache.rocketmq.v2.UpdateOffsetRequest": {"group": FIELDS, "message_queue": FIELDS, "offset": ANY_NUMBER},
    "apache.rocketmq.v2.GetOffsetRequest": {"group": FIELDS, "message_queue": FIELDS},
    "apache.rocketmq.v2.QueryOffsetRequest": {
        "message_queue": FIELDS,
        "query_offset_policy": ANY_NUMBER,
        "timestamp": FIELDS,
    },
    "apache.rocketmq.v2.OffsetOption": dict.fromkeys(("policy", "offset", "tail_n", "timestamp"), ANY_NUMBER),
    "apache.rocketmq.v2.SyncLiteSubscriptionRequest": {
        "action": ANY_NUMBER,
        **_GROUP_TOPIC,
        "lite_topic_set": Many(TOPICS_MAX, NAME),
        "version": ANY_NUMBER,
        "offset_option": FIELDS,
    },
}
