"""Extension files and batch consume queues: units, addresses, iteration, and what cannot be right."""

import struct

import pytest

from store.errors import CorruptData
from store.fs.linux.files import OsFiles
from store.fs.mapped_file_queue import MappedFileQueue
from store.queues.batch_consume_queue import BatchConsumeQueue
from store.queues.consume_queue_ext import ConsumeQueueExt, is_address


def loaded(tmp_path, size, *contents):
    for number, content in enumerate(contents):
        (tmp_path / f"{number * size:020d}").write_bytes(content.ljust(size, b"\0"))
    queue = MappedFileQueue(OsFiles(), str(tmp_path), size)
    queue.load()
    return queue


def ext_unit(tags_code, bit_map=b""):
    return struct.pack(">hqqh", 20 + len(bit_map), tags_code, 5000, len(bit_map)) + bit_map


def batch_unit(physical_offset, base_offset, batch_size):
    return struct.pack(">qiqqqhii", physical_offset, 100, 7, 5000, base_offset, batch_size, -1, 0)


def test_extension_units_are_found_by_address_and_over_the_borders_of_files(tmp_path):
    first = ext_unit(1) + ext_unit(2, b"12345678") + struct.pack(">h", -1)
    ext = ConsumeQueueExt(loaded(tmp_path, 100, first, ext_unit(-3)))

    units = list(ext)

    assert [(unit.offset, unit.tags_code, unit.bit_map) for unit in units] == [
        (0, 1, b""),
        (20, 2, b"12345678"),
        (100, -3, b""),
    ]
    assert [ext.get(unit.address) for unit in units] == units
    assert units[0].address == -(1 << 63)
    assert is_address(-(1 << 31) - 1)
    assert not is_address(-(1 << 31))


@pytest.mark.parametrize(
    "content", [struct.pack(">hqqh", 25, 0, 0, 4), struct.pack(">hqqh", 200, 0, 0, 180), b"\x00\x05"]
)
def test_extension_unit_that_cannot_be_right_is_corruption(tmp_path, content):
    ext = ConsumeQueueExt(loaded(tmp_path, 100, content))

    with pytest.raises(CorruptData, match="corrupt at byte 0"):
        list(ext)
    with pytest.raises(CorruptData):
        ext.get(-(1 << 63))
    with pytest.raises(CorruptData, match="no such file"):
        ext.get(-(1 << 63) + 500)


def test_batches_are_found_by_the_queue_offsets_of_their_messages(tmp_path):
    units = [batch_unit(0, 10, 3), batch_unit(100, 13, 1), batch_unit(200, 14, 5)]
    queue = BatchConsumeQueue(loaded(tmp_path, 92, units[0] + units[1], units[2]))

    assert (len(queue), queue.min_offset, queue.max_offset) == (3, 10, 19)
    found = [queue.find(offset) for offset in range(9, 20)]
    assert [unit and unit.physical_offset for unit in found] == [None, 0, 0, 0, 100, 200, 200, 200, 200, 200, None]
    assert list(queue.check()) == []


def test_batches_that_do_not_follow_one_another_are_told(tmp_path):
    queue = BatchConsumeQueue(
        loaded(tmp_path, 460, batch_unit(0, 10, 3) + batch_unit(100, 12, 1) + batch_unit(200, 13, 0))
    )

    assert [fault.position for fault in queue.check()] == [46, 92]
