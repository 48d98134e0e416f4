"""The checkpoint of a store: Java's bytes, and never half of one."""

from random import Random

import pytest

from dledger.testing.faults import FaultCounts
from dledger.testing.sim_disk import SimDisk
from store.checkpoint import CheckpointFile, StoreCheckpoint, read_checkpoint
from store.errors import WrongFileSize
from store.os_files import OsFiles
from tests.crashpoints.images import crash_images
from tests.crashpoints.workload import files_on

FULL = StoreCheckpoint(0xAABB, 0xCCDD, 3, 4, 5)


def test_five_longs_stand_at_the_head_of_a_page_of_zeros(tmp_path):
    file = CheckpointFile.open(OsFiles(), str(tmp_path))
    file.write(FULL)
    file.sync()
    file.close()

    content = (tmp_path / "checkpoint").read_bytes()
    assert content.hex() == "000000000000aabb000000000000ccdd000000000000000300000000000000040000000000000005".ljust(
        8192, "0"
    )
    assert CheckpointFile.open(OsFiles(), str(tmp_path)).checkpoint == FULL


def test_least_of_the_two_times_less_three_seconds_is_what_java_counts_on():
    assert FULL.min_timestamp == 0xAABB - 3000
    assert FULL._replace(logics_msg_timestamp=0xAABB - 1).min_timestamp == 0xAABB - 3001
    assert StoreCheckpoint(2000, 9000).min_timestamp == 0


def test_missing_or_empty_checkpoint_promises_nothing(tmp_path):
    assert read_checkpoint(OsFiles(), str(tmp_path)) == StoreCheckpoint()
    (tmp_path / "checkpoint").touch()

    assert read_checkpoint(OsFiles(), str(tmp_path)) == StoreCheckpoint()
    assert (tmp_path / "checkpoint").stat().st_size == 0
    assert CheckpointFile.open(OsFiles(), str(tmp_path)).checkpoint == StoreCheckpoint()
    assert (tmp_path / "checkpoint").stat().st_size == 4096


def test_file_of_another_size_is_no_checkpoint(tmp_path):
    (tmp_path / "checkpoint").write_bytes(bytes(100))

    with pytest.raises(WrongFileSize, match="4096 bytes, found 100"):
        CheckpointFile.open(OsFiles(), str(tmp_path))


def test_power_cut_leaves_one_whole_checkpoint_and_none_older_than_the_synced_one():
    disk = SimDisk(Random(1), FaultCounts())
    allowed = [StoreCheckpoint()]
    images = []

    def look(_):
        for image in crash_images(disk, is_every_byte=False):
            if "torn at byte" not in image.label:  # a disk writes a sector whole
                assert CheckpointFile.open(files_on(image.disk), "/store").checkpoint in allowed, image.label
                images.append(image)

    files_on(disk).make_directory("/store")
    files = files_on(disk, look)
    file = CheckpointFile.open(files, "/store")
    for number in range(1, 4):
        checkpoint = StoreCheckpoint(number, number, number, number, number)
        allowed.append(checkpoint)
        file.write(checkpoint)
        file.sync()
        allowed[:] = [checkpoint]
        look(0)

    assert images
