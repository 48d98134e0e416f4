"""The format of a message trace: golden records, written by hand from the table of RocketMQ's `TraceDataEncoder`."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.client.tracing.trace_records import (
    DeliveredTrace,
    EndedTrace,
    MessageTrace,
    ProcessedTrace,
    RecalledTrace,
    SentTrace,
    decode_traces,
    encode_trace,
)

SENT = SentTrace(
    1_700_000_000_000, "shop", "orders", "ID1", "paid", "k1 k2", "10.0.0.5:10911", 12, 7, 3, "7F00", is_success=True
)
DELIVERED = DeliveredTrace(1_700_000_000_500, "billing", "R1", "ID1", 2, "k1 k2")
PROCESSED = ProcessedTrace("R1", "ID1", 42, False, "k1 k2", 4, 1_700_000_000_542, "billing")
_PUB = (
    "Pub\x011700000000000\x01DefaultRegion\x01shop\x01orders\x01ID1\x01paid\x01k1 k2\x0110.0.0.5:10911\x0112\x017"
    "\x013\x01"
)
GOLDEN = [
    (
        SENT,
        _PUB + "7F00\x01true\x02",
    ),
    (DELIVERED, "SubBefore\x011700000000500\x01DefaultRegion\x01billing\x01R1\x01ID1\x012\x01k1 k2\x02"),
    (PROCESSED, "SubAfter\x01R1\x01ID1\x0142\x01false\x01k1 k2\x014\x011700000000542\x01billing\x02"),
]
READ_ONLY = [
    (
        EndedTrace(5, "shop", "orders", "ID1", "", "k1", "h:1", 1, "T1", "COMMIT_MESSAGE", True, "eu"),
        "EndTransaction\x015\x01eu\x01shop\x01orders\x01ID1\x01\x01k1\x01h:1\x011\x01T1\x01COMMIT_MESSAGE\x01true\x02",
    ),
    (RecalledTrace(5, "shop", "orders", "ID1", False, "eu"), "Recall\x015\x01eu\x01shop\x01orders\x01ID1\x01false\x02"),
    # Clients before 4.3, 4.9 and 5.0; and one that sends its own address, too.
    (
        SENT._replace(offset_message_id=""),
        _PUB + "true\x02",
    ),
    (SENT, GOLDEN[0][1].replace("\x02", "\x0110.0.0.9\x02")),
    (PROCESSED._replace(context_code=0, time_ms=0, group=""), "SubAfter\x01R1\x01ID1\x0142\x01false\x01k1 k2\x02"),
    (PROCESSED._replace(time_ms=0, group=""), "SubAfter\x01R1\x01ID1\x0142\x01false\x01k1 k2\x014\x02"),
]


@pytest.mark.parametrize(("record", "text"), GOLDEN)
def test_record_has_the_fields_of_the_table_in_order(record, text: str) -> None:
    assert encode_trace(record) == text


@pytest.mark.parametrize(("record", "text"), GOLDEN + READ_ONLY)
def test_record_is_decoded_from_its_fields(record: MessageTrace, text: str) -> None:
    assert list(decode_traces(text.encode())) == [record]


def test_absent_texts_are_null_so_that_java_finds_every_field() -> None:
    text = encode_trace(DELIVERED._replace(keys=""))
    assert text.endswith("\x012\x01null\x02")
    assert list(decode_traces(text.encode())) == [DELIVERED._replace(keys="")]


def test_unknown_and_damaged_records_are_left_out_and_the_others_are_read() -> None:
    damaged = ["Pub\x01now\x01eu\x02", "New\x01x\x02", "SubBefore\x02", "\x02", "SubAfter\x01R\x02"]
    body = "".join([GOLDEN[0][1], *damaged, GOLDEN[1][1]]).encode() + b"\xff\xfe"
    assert list(decode_traces(body)) == [SENT, DELIVERED]


TEXT = st.text(max_size=20)


@given(sent=st.builds(SentTrace, *[st.integers(0, 2**60), *[TEXT] * 6, *[st.integers(0, 9)] * 3, TEXT, st.booleans()]))
def test_every_record_is_read_as_it_was_written_without_separators(sent: SentTrace) -> None:
    def read(value):
        """Return a text without separators; `null` is an absent one."""
        plain = value.replace("\x01", "").replace("\x02", "") if isinstance(value, str) else value
        return "" if plain == "null" else plain

    assert list(decode_traces(encode_trace(sent).encode())) == [SentTrace(*map(read, sent))]
