"""The steps of a message, from the records of its trace."""

from __future__ import annotations

from cluster.cli.messages.trace_steps import steps_of
from cluster.client.tracing.trace_records import DeliveredTrace, EndedTrace, ProcessedTrace, RecalledTrace, SentTrace

SENT = SentTrace(1_000, "shop", "orders", "ID1", "paid", "o-17", "10.0.0.5:1", 12, 7, 3, "7F", is_success=True)
DELIVERED = DeliveredTrace(1_010, "billing", "R1", "ID1", 1, "o-17")
PROCESSED = ProcessedTrace("R1", "ID1", 5, True, "o-17", 0, 1_015, "billing")
OTHER = SENT._replace(message_id="ID2", keys="o-18", time_ms=900)


def shown(*traces, key="ID1"):
    return [(step["event"], step["group"], step["result"], step["time_ms"]) for step in steps_of(traces, key)]


def test_steps_are_in_order_of_time_and_only_of_the_wanted_message() -> None:
    assert shown(PROCESSED, OTHER, DELIVERED, SENT) == [
        ("sent", "shop", "ok", 1_000),
        ("delivered", "billing", None, 1_010),
        ("processed", "billing", "ok", 1_015),
    ]


def test_search_key_finds_all_messages_that_have_it() -> None:
    second = OTHER._replace(keys="x o-17")
    assert [(step["id"], step["event"]) for step in steps_of([SENT, DELIVERED, second], "o-17")] == [
        ("ID2", "sent"),
        ("ID1", "sent"),
        ("ID1", "delivered"),
    ]
    assert steps_of([SENT], "o-1") == []


def test_record_that_was_stored_twice_is_one_step() -> None:
    assert len(steps_of([SENT, SENT, DELIVERED, SENT], "ID1")) == 2


def test_end_of_an_older_client_has_time_and_group_of_its_delivery() -> None:
    old = ProcessedTrace("R1", "ID1", 5, False, "o-17", 1)
    assert shown(DELIVERED, old)[1] == ("processed", "billing", "timeout", 1_015)


def test_failures_recalls_and_ends_of_transactions_are_shown() -> None:
    failed = SENT._replace(is_success=False, offset_message_id="", store_host="")
    ended = EndedTrace(1_001, "shop", "orders", "ID1", "", "", "", 1, "T", "ROLLBACK_MESSAGE", True)
    recalled = RecalledTrace(1_002, "shop", "orders", "ID1", True)
    odd = PROCESSED._replace(is_success=False)
    assert shown(failed, recalled, ended, odd) == [
        ("sent", "shop", "failed", 1_000),
        ("transaction ended", "shop", "ROLLBACK_MESSAGE", 1_001),
        ("recalled", "shop", "ok", 1_002),
        ("processed", "billing", "failed", 1_015),
    ]
