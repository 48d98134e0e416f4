"""Requests and replies: their properties, and which reply counts for which request."""

from __future__ import annotations

from inspect import get_annotations
from types import SimpleNamespace
from typing import Any

import pytest

from cluster.client.producer.replies import reply_to, wait_s
from cluster.client.requests.awaited_replies import AwaitedReplies
from cluster.client.requests.options import RequesterOptions, RequesterSettings
from cluster.protocol.errors import Reason, RequestFailed
from store.errors import IllegalMessage
from tests.support.waiting import run

REQUEST = {"CORRELATION_ID": "c1", "REPLY_TO_CLIENT": "me", "TTL": "3000", "CLUSTER": "blue", "KEYS": "k"}


def reply(correlation_id: str, client_id: str = "me") -> Any:
    return SimpleNamespace(properties={"CORRELATION_ID": correlation_id, "REPLY_TO_CLIENT": client_id})


def test_reply_has_the_properties_of_rocketmq_and_the_requester_as_its_tag() -> None:
    message = reply_to(REQUEST, b"yes", {"more": "x", "MSG_TYPE": "other"})

    assert (message.topic, message.body) == ("blue_REPLY_TOPIC", b"yes")
    assert message.properties == {
        "more": "x",
        "MSG_TYPE": "reply",
        "CORRELATION_ID": "c1",
        "REPLY_TO_CLIENT": "me",
        "TTL": "3000",
        "TAGS": "me",
    }


@pytest.mark.parametrize("name", ["CORRELATION_ID", "REPLY_TO_CLIENT", "CLUSTER"])
def test_message_that_is_no_request_has_no_reply(name: str) -> None:
    with pytest.raises(IllegalMessage, match=f"none of {name}"):
        reply_to({**REQUEST, name: ""}, b"", {})


@pytest.mark.parametrize(
    ("ttl", "seconds"), [("3000", 3.0), ("60000", 10.0), ("0", 10.0), ("", 10.0), ("-5", 10.0), ("soon", 10.0)]
)
def test_reply_is_sent_for_as_long_as_the_requester_waits(ttl: str, seconds: float) -> None:
    assert wait_s({"TTL": ttl}, 10.0) == seconds


def test_first_reply_to_a_pending_request_of_this_client_counts() -> None:
    async def main() -> None:
        pending = AwaitedReplies("me", 2)
        first, second = pending.add("c1"), pending.add("c2")
        with pytest.raises(RequestFailed, match="2 requests are pending") as caught:
            pending.add("c3")
        assert caught.value.reason is Reason.CLIENT_QUEUE_FULL
        answer = reply("c2")
        none: Any = SimpleNamespace(properties={})
        for each in (reply("c2", "another"), reply("unknown"), answer, reply("c2"), none):
            pending.received(each)
        assert (first.done(), await second) == (False, answer)
        pending.remove("c1")
        pending.received(reply("c1"))
        assert (first.done(), len(pending)) == (False, 0)
        last = pending.add("c4")
        pending.close()
        with pytest.raises(RequestFailed, match="closed"):
            await last

    run(main())


def test_settings_are_the_fields_of_the_options() -> None:
    types = {name: reference.__forward_arg__ for name, reference in get_annotations(RequesterSettings).items()}
    assert types == get_annotations(RequesterOptions)


@pytest.mark.parametrize("options", [{"pending_max": 0}, {"cluster": "a/b"}, {"group": ""}])
def test_invalid_options_are_refused(options: Any) -> None:
    with pytest.raises((ValueError, IllegalMessage)):
        RequesterOptions(**options)
