"""Reads of a log of unknown kind: a leader's own entries are recognised, and damage is detected."""

from __future__ import annotations

import pytest

from cluster.cli.entry_kinds import AnyLogChecks, kind_of, leaders_own
from commitlog.record.system_records import (
    MEMBERSHIP_CHANNEL,
    NO_OP_CHANNEL,
    STAMP_AT,
    STATE_CHANNEL,
    MessageEntryCodec,
)
from dledger.client.reading import DamagedBytesError, decode_chunk
from dledger.entries.format.codec import RAW_ENTRY_CODEC
from dledger.entries.format.entry import ENTRY_CONFIG_CHANGE, ENTRY_NOOP, ENTRY_NORMAL, NO_CHAIN, encode_batch
from dledger.entries.format.walk import UNKNOWN, WalkState

ANY = WalkState(UNKNOWN, 0, UNKNOWN)


def encoded(body: bytes, channel: int, magic: int = ENTRY_NORMAL) -> bytes:
    batch = encode_batch([body], first_index=0, term=1, position=0, chain_crc=NO_CHAIN, magic=magic, channel=channel)
    return bytes(batch.data)


def stamped(body: bytes) -> bytes:
    record = bytearray(MessageEntryCodec(lambda: 1).record(body))
    record[STAMP_AT : STAMP_AT + 8] = (48).to_bytes(8, "big")
    return bytes(record)


@pytest.mark.parametrize(
    ("channel", "body"), [(NO_OP_CHANNEL, b""), (MEMBERSHIP_CHANNEL, b"{}"), (STATE_CHANNEL, b"\1\1")]
)
def test_own_entries_of_a_log_of_messages_are_read_and_named(channel: int, body: bytes) -> None:
    data = encoded(stamped(body), channel)

    ((entry,), _) = decode_chunk(data, ANY, 0, AnyLogChecks())

    assert leaders_own(entry.magic, entry.channel)
    with pytest.raises(DamagedBytesError, match="expected channel 0"):
        decode_chunk(data, ANY, 0, RAW_ENTRY_CODEC)


def test_a_client_s_entry_whose_channel_was_changed_is_damaged_and_not_hidden() -> None:
    for body in (b"", b"a line", b"x" * 200):
        with pytest.raises(DamagedBytesError):
            decode_chunk(encoded(body, STATE_CHANNEL), ANY, 0, AnyLogChecks())
        assert body == decode_chunk(encoded(body, 0), ANY, 0, AnyLogChecks())[0][0].body


def test_kinds_have_names() -> None:
    assert ["normal", "no-op", "member", "9"] == [
        kind_of(magic, 0) for magic in (ENTRY_NORMAL, ENTRY_NOOP, ENTRY_CONFIG_CHANGE, 9)
    ]
    assert "" == leaders_own(ENTRY_NORMAL, 0)
    assert "a no-op" == leaders_own(ENTRY_NOOP, 0)
