"""Reads settings of topics and groups from requests; everything in them is checked before it is used.

Source: RocketMQ `CreateTopicRequestHeader`, `AttributeUtil`, `SubscriptionGroupConfig`, `GroupRetryPolicy`.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from cluster.protocol.retry_policy import POLICY_ATTRIBUTE
from cluster.protocol.topic_config import ATTRIBUTE_LENGTH_MAX, ATTRIBUTES_MAX
from cluster.remoting.admin.answers import NAME_LENGTH_MAX
from cluster.remoting.command import Rejected, RemotingCode
from cluster.remoting.fields import bool_of, int_of, is_unicode, text_of
from cluster.state.fastjson import NotJson, parse_fastjson
from cluster.v1 import broker_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Mapping

# Topics or groups of one request.
LIST_MAX: Final = 1_000
# A thousand topics with some attributes have a quarter of it.
_BODY_BYTES_MAX: Final = 1 << 20
# Larger ones are parsed in a thread: the parser takes a microsecond for each byte, at worst.
_QUICK_BYTES: Final = 4 << 10
_INT_MAX: Final = (1 << 31) - 1
_ATTRIBUTES_LENGTH_MAX: Final = ATTRIBUTES_MAX * 2 * ATTRIBUTE_LENGTH_MAX
_QUEUES_DEFAULT: Final = 8
_PERMISSION_DEFAULT: Final = 6
_EXPONENTIAL: Final = (("initial", 5_000), ("max", 7_200_000), ("multiplier", 2))


async def json_object(body: bytes) -> dict[str, Any]:
    """Return the object in the body of a request.

    Raises:
        Rejected: INVALID_PARAMETER.
    """
    if len(body) > _BODY_BYTES_MAX:
        raise _wrong("body", f"at most {_BODY_BYTES_MAX} bytes", str(len(body)))
    return _parsed(body) if len(body) <= _QUICK_BYTES else await asyncio.to_thread(_parsed, body)


def _parsed(body: bytes) -> dict[str, Any]:
    try:
        found = parse_fastjson(body.decode())
    except (NotJson, UnicodeDecodeError, RecursionError) as error:
        raise _wrong("body", "JSON", str(error)) from error
    if not isinstance(found, dict):
        raise _wrong("body", "a JSON object", type(found).__name__)
    return found


def objects_of(found: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
    """Return a list of objects, at most `LIST_MAX`.

    Raises:
        Rejected: INVALID_PARAMETER.
    """
    items = found.get(name)
    if not isinstance(items, list) or len(items) > LIST_MAX or not all(isinstance(each, dict) for each in items):
        raise _wrong(name, f"a list of at most {LIST_MAX} objects", type(items).__name__)
    return items


def topic_of_fields(fields: Mapping[str, str], known: pb.Topic | None) -> pb.Topic:
    """Return the topic that a request creates or changes.

    Args:
        fields: of the request.
        known: the topic as it is; None: there is none.

    Raises:
        Rejected: INVALID_PARAMETER.
    """
    attributes = {} if known is None else dict(known.attributes)
    if fields.get("attributes"):
        changes = text_of(fields, "attributes", _ATTRIBUTES_LENGTH_MAX)
        attributes = changed_attributes(attributes, [each.strip() for each in changes.split(",")])
    return pb.Topic(
        name=text_of(fields, "topic", NAME_LENGTH_MAX),
        read_queues=int_of(fields, "readQueueNums", 0, _INT_MAX, _QUEUES_DEFAULT),
        write_queues=int_of(fields, "writeQueueNums", 0, _INT_MAX, _QUEUES_DEFAULT),
        permission=int_of(fields, "perm", 0, _INT_MAX, _PERMISSION_DEFAULT),
        is_ordered=bool_of(fields, "order"),
        sys_flag=int_of(fields, "topicSysFlag", 0, _INT_MAX, 0),
        attributes=attributes,
    )


def changed_attributes(attributes: Mapping[str, str], changes: list[str]) -> dict[str, str]:
    """Return attributes after changes of the forms `+name=value` and `-name`.

    Raises:
        Rejected: INVALID_PARAMETER.
    """
    found = dict(attributes)
    for change in changes:
        sign, (name, separator, value) = change[:1], change[1:].partition("=")
        if sign == "+" and name and separator:
            found[name] = value
        elif sign == "-" and name and not separator:
            found.pop(name, None)
        else:
            raise _wrong("attributes", "+name=value or -name, separated by commas", change)
    return found


def topic_of_object(found: Mapping[str, Any], known: Mapping[str, str]) -> pb.Topic:
    """Return the topic in the form of RocketMQ's `TopicConfig`; `known`: its attributes now.

    Raises:
        Rejected: INVALID_PARAMETER.
    """
    attributes = dict(known)
    for name, value in _texts(found, "attributes").items():
        attributes = changed_attributes(attributes, [f"{name}={value}" if name[:1] == "+" else name])
    return pb.Topic(
        name=_text(found, "topicName"),
        read_queues=_number(found, "readQueueNums", _QUEUES_DEFAULT),
        write_queues=_number(found, "writeQueueNums", _QUEUES_DEFAULT),
        permission=_number(found, "perm", _PERMISSION_DEFAULT),
        is_ordered=_flag(found, "order", default=False),
        sys_flag=_number(found, "topicSysFlag", 0),
        attributes=attributes,
    )


def group_of_object(found: Mapping[str, Any]) -> pb.Group:
    """Return the group in the form of RocketMQ's `SubscriptionGroupConfig`.

    Raises:
        Rejected: INVALID_PARAMETER.
    """
    attributes = {name.removeprefix("+"): value for name, value in _texts(found, "attributes").items()}
    policy = _policy(found.get("groupRetryPolicy"))
    if policy:
        attributes[POLICY_ATTRIBUTE] = policy
    return pb.Group(
        name=_text(found, "groupName"),
        is_consume_enabled=_flag(found, "consumeEnable", default=True),
        is_broadcast_enabled=_flag(found, "consumeBroadcastEnable", default=True),
        is_from_min_enabled=_flag(found, "consumeFromMinEnable", default=True),
        is_orderly=_flag(found, "consumeMessageOrderly", default=False),
        retry_queues=_number(found, "retryQueueNums", 1),
        retry_max_times=_number(found, "retryMaxTimes", 16, low=-1),
        consume_timeout_minutes=_number(found, "consumeTimeoutMinute", 15),
        sys_flag=_number(found, "groupSysFlag", 0),
        attributes=attributes,
    )


def _policy(found: Any) -> str:
    """Return a retry policy as our attribute has it; empty: that of the delay levels."""
    if not isinstance(found, dict):
        return ""
    if found.get("type") == "EXPONENTIAL":
        own = found.get("exponentialRetryPolicy") or {}
        if not isinstance(own, dict):
            raise _wrong("exponentialRetryPolicy", "an object", type(own).__name__)
        return f"exponential:{','.join(str(_number(own, name, default)) for name, default in _EXPONENTIAL)}"
    own = found.get("customizedRetryPolicy")
    delays = own.get("next") if isinstance(own, dict) else None
    if not delays:
        return ""
    if not isinstance(delays, list) or not all(type(each) is int for each in delays[:LIST_MAX]):
        raise _wrong("customizedRetryPolicy", "a list of milliseconds", type(delays).__name__)
    return f"customized:{','.join(map(str, delays[:LIST_MAX]))}"


def _text(found: Mapping[str, Any], name: str) -> str:
    value = found.get(name)
    if isinstance(value, str) and 0 < len(value) <= NAME_LENGTH_MAX and is_unicode(value):
        return value
    raise _wrong(name, f"1 to {NAME_LENGTH_MAX} characters", ascii(value))


def _texts(found: Mapping[str, Any], name: str) -> dict[str, str]:
    values = found.get(name) or {}
    if not isinstance(values, dict) or len(values) > ATTRIBUTES_MAX:
        raise _wrong(name, f"at most {ATTRIBUTES_MAX} texts", type(values).__name__)
    for each in (*values, *values.values()):
        if not isinstance(each, str) or not is_unicode(each):
            raise _wrong(name, "texts", ascii(each))
    return values


def _number(found: Mapping[str, Any], name: str, default: int, low: int = 0) -> int:
    value = found.get(name)
    if value is None:
        return default
    if type(value) is int and low <= value <= _INT_MAX:
        return value
    raise _wrong(name, f"a number from {low} to {_INT_MAX}", ascii(value))


def _flag(found: Mapping[str, Any], name: str, *, default: bool) -> bool:
    value = found.get(name)
    if value is None:
        return default
    if isinstance(value, bool):
        return value
    raise _wrong(name, "true or false", ascii(value))


def _wrong(name: str, expected: str, found: str) -> Rejected:
    return Rejected(RemotingCode.INVALID_PARAMETER, f"{name}: expected {expected}, found {found[:80]}")
