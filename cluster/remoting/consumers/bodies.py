"""Reads and writes the JSON bodies of consumers' requests, whatever a client has sent.

Source: RocketMQ `HeartbeatData`, `LockBatchRequestBody`, `CheckClientRequestBody`.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from cluster.remoting.clients import ClientHeartbeat, ConsumerData, Subscription
from cluster.remoting.command import Rejected, RemotingCode
from cluster.remoting.fields import is_unicode
from store.errors import IllegalMessage
from store.model.topics import RETRY_TOPIC_LENGTH_MAX, check_group

if TYPE_CHECKING:
    from collections.abc import Sequence

# Of one client, in all of its groups: a heartbeat with more is refused, not cut.
BODY_SIZE_BYTES_MAX: Final = 1 << 20
GROUPS_MAX: Final = 1_000
SUBSCRIPTIONS_MAX: Final = 4_096
EXPRESSION_LENGTH_MAX: Final = 16_384
# Commas and brackets of a body: each value of JSON takes some of the loop's time, however short it is.
VALUES_MAX: Final = 1 << 16
CLIENT_ID_LENGTH_MAX: Final = 255
_SHOWN_LENGTH_MAX: Final = 80
_NAME_LENGTH_MAX: Final = 127
_NUMBER_MAX: Final = 2**63 - 1


def heartbeat_of(body: bytes) -> ClientHeartbeat:
    """Return a heartbeat.

    Raises:
        Rejected: INVALID_PARAMETER.
    """
    given = object_of(body)
    producers, consumers = _list(given, "producerDataSet", GROUPS_MAX), _list(given, "consumerDataSet", GROUPS_MAX)
    # Before any of them is read.
    subscribed = sum(
        len(_list(_mapping(each, "a consumer"), "subscriptionDataSet", SUBSCRIPTIONS_MAX)) for each in consumers
    )
    if subscribed > SUBSCRIPTIONS_MAX:
        raise _wrong("subscriptionDataSet", f"at most {SUBSCRIPTIONS_MAX} in all groups", subscribed)
    return ClientHeartbeat(
        client_id=text(given, "clientID", CLIENT_ID_LENGTH_MAX),
        producers=tuple(group_of(each, "groupName") for each in producers),
        consumers=tuple(_consumer(each) for each in consumers),
        fingerprint=_number(given, "heartbeatFingerprint"),
        is_without_subscriptions=given.get("withoutSub") is True,
    )


def subscription_of(given: object) -> Subscription:
    """Return a subscription of a decoded body.

    Raises:
        Rejected: INVALID_PARAMETER.
    """
    fields = _mapping(given, "a subscription")
    return Subscription(
        topic=text(fields, "topic", RETRY_TOPIC_LENGTH_MAX),
        expression=_optional_text(fields, "subString", EXPRESSION_LENGTH_MAX) or "*",
        is_sql=_optional_text(fields, "expressionType", _NAME_LENGTH_MAX).upper() == "SQL92",
        version=_number(fields, "subVersion"),
    )


def queues_of(given: dict[str, Any], count_max: int) -> Sequence[dict[str, Any]]:
    """Return the message queues of a request for locks: `topic`, `queueId`, and `brokerName` if it is given.

    Raises:
        Rejected: INVALID_PARAMETER.
    """
    found = []
    for each in (_mapping(item, "a queue") for item in _list(given, "mqSet", count_max)):
        queue_id = _number(each, "queueId", -1)
        if not 0 <= queue_id < 2**31:
            raise _wrong("queueId", "0 to 2^31 - 1", queue_id)
        # Nothing else of what a client has sent is in the answer.
        queue = {"topic": text(each, "topic", RETRY_TOPIC_LENGTH_MAX), "queueId": queue_id}
        broker = _optional_text(each, "brokerName", CLIENT_ID_LENGTH_MAX)
        found.append({"brokerName": broker, **queue} if broker else queue)
    return found


def object_of(body: bytes) -> dict[str, Any]:
    """Return the object that a body is.

    Raises:
        Rejected: INVALID_PARAMETER.
    """
    if len(body) > BODY_SIZE_BYTES_MAX:
        raise Rejected(RemotingCode.INVALID_PARAMETER, f"body: at most {BODY_SIZE_BYTES_MAX} bytes, found {len(body)}")
    if sum(map(body.count, (b",", b"{", b"["))) > VALUES_MAX:
        raise Rejected(RemotingCode.INVALID_PARAMETER, f"body: at most {VALUES_MAX} commas and brackets, found more")
    try:
        return _mapping(json.loads(body), "the body")
    except (ValueError, RecursionError) as error:
        raise Rejected(
            RemotingCode.INVALID_PARAMETER, f"body: expected JSON, {str(error)[:_SHOWN_LENGTH_MAX]}"
        ) from error


def json_of(content: object) -> bytes:
    """Return a body, without blanks: some clients search in it."""
    return json.dumps(content, separators=(",", ":")).encode()


def text(given: dict[str, Any], name: str, length_max: int) -> str:
    """Return a text of an object, of 1 to `length_max` characters.

    Raises:
        Rejected: INVALID_PARAMETER.
    """
    found = _optional_text(given, name, length_max)
    if not found:
        raise _wrong(name, f"1 to {length_max} characters", given.get(name))
    return found


def group_of(given: object, name: str) -> str:
    """Return the name of a group.

    Raises:
        Rejected: INVALID_PARAMETER.
    """
    found = text(_mapping(given, "a group"), name, RETRY_TOPIC_LENGTH_MAX)
    try:
        check_group(found)
    except IllegalMessage as error:
        raise Rejected(RemotingCode.INVALID_PARAMETER, str(error)) from error
    return found


def _consumer(given: object) -> ConsumerData:
    fields = _mapping(given, "a consumer")
    subscriptions = [subscription_of(each) for each in _list(fields, "subscriptionDataSet", SUBSCRIPTIONS_MAX)]
    return ConsumerData(
        group=group_of(fields, "groupName"),
        consume_type=_optional_text(fields, "consumeType", _NAME_LENGTH_MAX) or "CONSUME_PASSIVELY",
        message_model=_optional_text(fields, "messageModel", _NAME_LENGTH_MAX) or "CLUSTERING",
        consume_from_where=_optional_text(fields, "consumeFromWhere", _NAME_LENGTH_MAX) or "CONSUME_FROM_LAST_OFFSET",
        subscriptions={each.topic: each for each in subscriptions},
    )


def _mapping(given: object, what: str) -> dict[str, Any]:
    if not isinstance(given, dict):
        raise _wrong(what, "an object", given)
    return given


def _list(given: dict[str, Any], name: str, count_max: int) -> list[object]:
    found = given.get(name) or []
    if not isinstance(found, list) or len(found) > count_max:
        raise _wrong(name, f"a list of at most {count_max}", found)
    return found


def _optional_text(given: dict[str, Any], name: str, length_max: int) -> str:
    found = given.get(name)
    if found is None:
        return ""
    if not isinstance(found, str) or len(found) > length_max or not is_unicode(found):
        raise _wrong(name, f"at most {length_max} characters", found)
    return found


def _number(given: dict[str, Any], name: str, default: int = 0) -> int:
    found = given.get(name, default)
    if not isinstance(found, int) or isinstance(found, bool) or abs(found) > _NUMBER_MAX:
        raise _wrong(name, "a number of 64 bits", found)
    return found


def _wrong(name: str, expected: str, found: object) -> Rejected:
    shown = ascii(found)[:_SHOWN_LENGTH_MAX] if isinstance(found, str | int) else type(found).__name__
    return Rejected(RemotingCode.INVALID_PARAMETER, f"{name}: expected {expected}, found {shown}")
