"""The checkpoint of a store: Java's bytes, and never a partial write."""

from random import Random

import pytest

from dledger.testing.disk.disk import SimDisk
from dledger.testing.faults import FaultCounts
from store.dispatch.checkpoint import (
    SealState,
    StoreCheckpoint,
    StoreCheckpointFile,
    decode_checkpoint,
    encode_checkpoint,
    read_checkpoint,
    seal_state,
)
from store.errors import WrongFileSize
from store.fs.linux.files import OsFiles
from tests.crashpoints.images import TORN_IN_A_SECTOR, crash_images
from tests.crashpoints.workload import files_on

FULL = StoreCheckpoint(0xAABB, 0xCCDD, 3, 4, 5, 6, 7)


def test_five_longs_are_at_the_head_of_a_page_and_the_seal_after_them(tmp_path):
    file = StoreCheckpointFile.open(OsFiles(), str(tmp_path))
    file.write(FULL)
    file.sync()
    file.close()

    content = (tmp_path / "checkpoint").read_bytes()
    assert len(content) == 4096
    assert content[:40].hex() == "000000000000aabb000000000000ccdd000000000000000300000000000000040000000000000005"
    assert content[256:296].hex() == (
        "646c7365616c310a" + "0000000000000006" + "0000000000000007" + "ffffffffffffffff" + "9429bef4" + "50b03f9e"
    )
    assert not any(content[40:256] + content[296:])
    assert StoreCheckpointFile.open(OsFiles(), str(tmp_path)).checkpoint == FULL._replace(is_sealed=True)


def test_checkpoint_with_a_wrong_seal_does_not_count():
    """One changed bit of a number or of the seal, or a number that RocketMQ has written over ours."""
    page = encode_checkpoint(FULL)
    unsealed = FULL._replace(log_end=0, queues_digest=-1)
    for position in (*range(40), *range(256, 296)):
        for bit in range(8):
            changed = bytearray(page)
            changed[position] ^= 1 << bit
            found = decode_checkpoint(bytes(changed))
            assert not found.is_sealed
            expected = SealState.OTHER_NUMBERS if position < 40 else SealState.DAMAGED
            assert seal_state(bytes(changed)) is expected
            assert found[5:] == unsealed[5:]
    assert decode_checkpoint(page[:40] + bytes(4056)) == unsealed
    assert seal_state(page[:40] + bytes(4056)) is SealState.NONE
    assert seal_state(page) is SealState.FITS


def test_missing_or_empty_checkpoint_guarantees_nothing(tmp_path):
    assert read_checkpoint(OsFiles(), str(tmp_path)) == StoreCheckpoint()
    (tmp_path / "checkpoint").touch()

    assert read_checkpoint(OsFiles(), str(tmp_path)) == StoreCheckpoint()
    assert (tmp_path / "checkpoint").stat().st_size == 0
    file = StoreCheckpointFile.open(OsFiles(), str(tmp_path))
    assert file.checkpoint == StoreCheckpoint()
    assert (tmp_path / "checkpoint").stat().st_size == 0
    file.write(FULL)
    file.close()
    assert (tmp_path / "checkpoint").stat().st_size == 4096


def test_file_of_another_size_is_no_checkpoint(tmp_path):
    (tmp_path / "checkpoint").write_bytes(bytes(100))

    with pytest.raises(WrongFileSize, match="4096 bytes, found 100"):
        StoreCheckpointFile.open(OsFiles(), str(tmp_path))


def test_power_cut_leaves_one_whole_checkpoint_and_none_older_than_the_synced_one():
    disk = SimDisk(Random(1), FaultCounts())
    allowed = [StoreCheckpoint()]
    images = []

    def look(_):
        for image in crash_images(disk, is_every_byte=False):
            if TORN_IN_A_SECTOR not in image.label:  # a disk writes a sector atomically
                found = StoreCheckpointFile.open(files_on(image.disk), "/store").checkpoint
                assert found in allowed, image.label
                assert found.is_sealed or found == StoreCheckpoint(), image.label
                images.append(image)

    files_on(disk).make_directory("/store")
    files = files_on(disk, look)
    file = StoreCheckpointFile.open(files, "/store")
    for number in range(1, 4):
        checkpoint = StoreCheckpoint(*[number] * 8, is_sealed=True)
        allowed.append(checkpoint)
        file.write(checkpoint)
        file.sync()
        allowed[:] = [checkpoint]
        look(0)

    assert images
