"""Bodies of answers: compact JSON, below the largest frame that clients accept.

A key that is an object in RocketMQ is here a string with the object's JSON: clients of 4.9 and 5.3 read both, and only
this form is JSON. Source: RocketMQ `RemotingSerializable`, `NettyDecoder`.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from cluster.remoting.command import Rejected, RemotingCode, Response
from cluster.remoting.fields import text_of
from store.model.java_hash import java_hash

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cluster.broker.core import BrokerCore
    from cluster.remoting.clients import Subscription
    from cluster.remoting.command import Request
    from store.steps import Steps

# A frame has at most 16 MiB; the rest is for its header.
BODY_BYTES_MAX: Final = (16 << 20) - (64 << 10)
# Tools of RocketMQ wait for 5 s.
LIMIT_S: Final = 3.0
NAME_LENGTH_MAX: Final = 255


def compact(value: Any) -> str:
    """Return a value as JSON without blanks: some clients cut it by hand."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def answer(value: Any) -> Response:
    """Return a response with a body.

    Raises:
        Rejected: SYSTEM_ERROR: it is larger than a frame.
    """
    body = compact(value).encode()
    check_size(len(body))
    return Response(body=body)


def check_size(size_bytes: int) -> None:
    """Raise if a body is larger than a frame.

    Raises:
        Rejected: SYSTEM_ERROR.
    """
    if size_bytes > BODY_BYTES_MAX:
        text = f"the answer would have more than {BODY_BYTES_MAX} bytes, the largest frame; ask for less"
        raise Rejected(RemotingCode.SYSTEM_ERROR, text)


def table_steps(head: dict[str, Any], name: str, rows: Iterable[tuple[str, Any] | None]) -> Steps[Response]:
    """Return a response whose body is `head` and a map under `name`, in steps of one row.

    Args:
        head: what comes before the map.
        name: of the map.
        rows: names and values; None: a step without a row.

    Raises:
        Rejected: SYSTEM_ERROR: it is larger than a frame.
    """
    parts, size = [], 0
    for row in rows:
        yield
        if row is not None:
            parts.append(f"{compact(row[0])}:{compact(row[1])}".encode())
            size += len(parts[-1]) + 1
            check_size(size)
    before = compact(head)[:-1] + ("," if head else "")
    body = b"%s%s:{%s}}" % (before.encode(), compact(name).encode(), b",".join(parts))
    check_size(len(body))
    return Response(body=body)


def broker_name(request: Request, core: BrokerCore) -> str:
    """Return the name of the broker in an answer: the one by which the client asks, or else the primary one."""
    if "bname" in request.fields:
        return text_of(request.fields, "bname", NAME_LENGTH_MAX)
    return core.options.broker


def queue_fields(broker: str, topic: str, queue_id: int) -> dict[str, Any]:
    """Return a queue in the form of RocketMQ's `MessageQueue`."""
    return {"brokerName": broker, "queueId": queue_id, "topic": topic}


def queue_key(broker: str, topic: str, queue_id: int) -> str:
    """Return a queue as the key of a map."""
    return compact(queue_fields(broker, topic, queue_id))


def data_version(core: BrokerCore) -> dict[str, int]:
    """Return the version of topics and groups, in the form of RocketMQ's `DataVersion`."""
    return {"counter": core.replica.state.topics_version, "stateVersion": 0, "timestamp": core.clock_ms()}


def subscription_fields(found: Subscription) -> dict[str, Any]:
    """Return a subscription in the form of RocketMQ's `SubscriptionData`."""
    tags: list[str] = []
    if not found.is_sql and found.expression not in ("", "*"):
        tags = [each.strip() for each in found.expression.split("||") if each.strip()]
    return {
        "classFilterMode": False,
        "codeSet": [java_hash(each) for each in tags],
        "expressionType": "SQL92" if found.is_sql else "TAG",
        "subString": found.expression,
        "subVersion": found.version,
        "tagsSet": tags,
        "topic": found.topic,
    }
