"""Records that the Java programs wrote are read field by field as Java reads them, and written again byte for byte."""

from itertools import pairwise

import pytest

from commitlog.record.encoder import RecordEncoder
from commitlog.record.record import decode
from commitlog.record.resync import resync
from commitlog.record.scan import Stop, scan, walk
from commitlog.record.tags_code import tags_code
from store.model.java_hash import key_hash
from store.model.message_id import decode_message_id


def record_of(java_store, offset):
    """Return the record at a physical offset, with the file that holds it."""
    file = next(file for file in reversed(java_store.files) if file.base <= offset)
    return decode(memoryview(file.content), offset - file.base)


def scanned(file, **checks):
    return scan(
        memoryview(file.content),
        0,
        len(file.content),
        base_offset=file.base,
        path=str(file.path),
        header_size=file.header_size,
        **checks,
    )


def test_every_record_agrees_with_its_line_of_the_manifest(java_store, described):
    # Three keys say what the whole store makes of the message, and one how it was put.
    not_in_a_record = {"inConsumeQueue", "indexed", "tagsCode", "batch"}

    for offset, message in java_store.messages.items():
        expected = {name: value for name, value in message.items() if name not in not_in_a_record}
        assert described(record_of(java_store, offset)) == expected


def test_every_record_is_valid_only_at_its_own_position(java_store):
    for offset in java_store.messages:
        record = record_of(java_store, offset)
        assert record.check(physical_offset=offset, is_property_crc_checked=True) is None
        assert record.check(physical_offset=offset + 1) is not None


def test_every_record_is_encoded_again_to_the_same_bytes(java_store):
    for offset in java_store.messages:
        record = record_of(java_store, offset)
        encoder = RecordEncoder(
            record.store_host,
            has_property_crc=java_store.name == "plain-propcrc",
            check_topic=lambda topic: None,  # the long topic is one that no broker would take
        )
        encoded = encoder.prepare([record.message]).encode(offset, [record.queue_offset], record.store_timestamp)
        assert bytes(encoded) == record.view[record.position : record.position + record.size].tobytes()


def test_every_message_id_leads_to_its_record(java_store):
    for offset, message in java_store.messages.items():
        store_host, physical_offset = decode_message_id(message["msgId"])
        assert (store_host, physical_offset) == (record_of(java_store, offset).store_host, offset)


def test_a_walk_finds_every_record_and_ends_where_java_ended(java_store):
    # A walk uses sizes alone, so it passes the record of plain-torn that lacks its second half.
    found = []
    for file in java_store.files:
        view = memoryview(file.content)
        walked = walk(view, 0, len(view), header_size=file.header_size)
        found += [file.base + start for start in walked.starts]
        assert walked.stop in (Stop.BLANK, Stop.ZEROS)

    torn = [found[-1]] if java_store.name == "plain-torn" else []
    assert found == sorted(java_store.messages) + torn


def test_columns_agree_with_javas_queues_and_index(java_store):
    rows = 0
    for file in java_store.files:
        batch, _ = scanned(file, is_body_checked=True, is_property_crc_checked=True)
        rows += len(batch)
        for row in range(len(batch)):
            message = java_store.messages[int(batch.physical_offsets[row])]
            topic, queue_id = batch.queues[batch.queue_numbers[row]]
            assert (topic, queue_id) == (message["topic"], message["queueId"])
            assert batch.sizes[row] == message["size"]
            assert batch.queue_offsets[row] == message["queueOffset"]
            assert batch.store_timestamps[row] == message["storeTimestamp"]
            assert batch.is_queued[row] == message["inConsumeQueue"]
            assert batch.key_hashes[batch.key_rows == row].tolist() == expected_hashes(message)
            if message["inConsumeQueue"]:
                assert batch.tags_codes[row] == message["tagsCode"]
                code = tags_code(topic, message["properties"], message["storeTimestamp"])
                assert code == message["tagsCode"]

    assert rows == len(java_store.messages)


def expected_hashes(message):
    if not message["indexed"]:
        return []
    keys = [message["uniqKey"], *(message["keys"] or "").split(" ")]
    return [key_hash(message["topic"], key) for key in keys if key]


def test_a_torn_record_is_reported_and_nothing_after_it(unpack, manifest):
    content = (unpack("plain-torn") / "commitlog" / "00000000000000065536").read_bytes()
    last = manifest("plain-torn")[-1]
    end = last["physicalOffset"] + last["size"] - 65536

    batch, stop = scan(memoryview(content), 0, len(content), base_offset=65536, path="last")

    assert (stop, batch.next_offset) == (Stop.BAD, 2 * 65536)
    (skipped,) = batch.skipped
    assert (skipped.position, skipped.size) == (end, 65536 - end)


@pytest.mark.parametrize("width", [1, 4, 60])
def test_after_damage_anywhere_the_next_record_of_java_is_found(java_store, width):
    # One damaged range in each record in turn, at a place that moves through the fields.
    for file in java_store.files:
        view = memoryview(file.content)
        walked = walk(view, 0, len(view), header_size=file.header_size)
        good = [start for start in walked.starts if file.base + start in java_store.messages]
        places = [start - file.header_size for start in good]
        for number, (place, after) in enumerate(pairwise(places)):
            damaged = bytearray(file.content)
            at = place + number * 7 % (after - place)
            for position in range(at, min(at + width, after)):
                damaged[position] ^= 0x5A
            found = resync(memoryview(damaged), place, len(view), base_offset=file.base, header_size=file.header_size)
            assert found == after
