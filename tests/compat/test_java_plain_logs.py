"""Plain commit logs of Java open in place, return every message of their manifests, and can be appended to."""

import struct

import pytest

from commitlog.plain.commit_log import CommitLogConfig, LastExit, PlainCommitLog
from store.fs.linux.files import OsFiles
from store.model.message import Message

FILE_SIZE = 65_536
STORES = ("plain-clean", "plain-killed", "plain-livecopy", "plain-torn", "plain-propcrc")


class JavaLog:
    def __init__(self, name, folder, messages):
        self.name, self.folder, self.directory = name, folder, str(folder / "commitlog")
        self.messages = {message["physicalOffset"]: message for message in messages}
        self.config = CommitLogConfig(mapped_file_size=FILE_SIZE, has_property_crc=name == "plain-propcrc")

    @property
    def last_exit(self):
        (physic_timestamp,) = struct.unpack_from(">q", (self.folder / "checkpoint").read_bytes())
        return LastExit(not (self.folder / "abort").exists(), physic_timestamp)

    def open(self, last_exit=None):
        last_exit = last_exit or self.last_exit
        return PlainCommitLog.open(OsFiles(), self.directory, self.config, last_exit, lambda: 1_900_000_000_000)

    def image(self):
        return {path.name: path.read_bytes() for path in sorted((self.folder / "commitlog").iterdir())}


@pytest.fixture(params=STORES)
def java(request, unpack, manifest):
    return JavaLog(request.param, unpack(request.param), manifest(request.param))


def scanned(log):
    offset, found = log.begin_offset, []
    while (batch := log.scan(offset, 5_000, is_body_checked=True)) is not None:
        assert batch.skipped == ()
        found += zip(batch.physical_offsets.tolist(), batch.sizes.tolist(), strict=True)
        offset = batch.next_offset
    return found


@pytest.mark.parametrize("exit_known", [True, False])
def test_every_message_is_found_by_a_scan_and_by_its_offset(java, described, exit_known):
    """With Java's checkpoint, and without it, when the whole log is checked."""
    log = java.open(None if exit_known else LastExit())

    assert scanned(log) == [(offset, java.messages[offset]["size"]) for offset in sorted(java.messages)]
    for offset, message in java.messages.items():
        found = described(log.read(offset, message["size"]))
        assert found == {key: message[key] for key in found}
        assert log.peek(offset, message["size"]).store_timestamp == message["storeTimestamp"]
    log.close()


def test_only_what_java_tore_is_cut(java):
    before = java.image()

    log = java.open()
    log.close()

    is_torn = java.name == "plain-torn"
    assert len(log.recovery_notes) == is_torn
    end = log.end_offset
    for name, content in java.image().items():
        kept = max(0, min(FILE_SIZE, end - int(name)))
        assert content == before[name][:kept] + bytes(FILE_SIZE - kept)
    assert (java.image() != before) == is_torn


def test_appends_follow_javas_messages(java):
    log = java.open()
    end = log.end_offset
    pending = [log.append([Message("TopicTest", b"x" * 3000)] * 5, range(5)) for _ in range(10)]
    ticket = log.begin_flush()
    ticket.sync()
    log.end_flush(ticket)
    places = [place.physical_offset for each in pending for place in each.outcome.places]
    log.close()

    again = java.open(LastExit())
    assert again.recovery_notes == ()
    assert [offset for offset, _ in scanned(again)] == sorted(java.messages) + places
    assert places[0] == (end if end % FILE_SIZE + 5 * 3_100 < FILE_SIZE else end - end % FILE_SIZE + FILE_SIZE)
    again.close()


def test_times_are_converted_to_offsets(java):
    log = java.open()
    messages = [java.messages[offset] for offset in sorted(java.messages)]
    times = sorted({message["storeTimestamp"] for message in messages})

    for time in (times[0] - 1, *times, times[-1] + 1):
        later = [message["physicalOffset"] for message in messages if message["storeTimestamp"] >= time]
        assert log.offset_at_timestamp(time) == (later[0] if later else log.end_offset)
    log.close()
