"""The end of a plain log: `dledger verify` and `rebuild` judge it by the durable part in the checkpoint."""

import pytest

from store.model.finding import Area
from tests.compat.test_offline_damage import change, dledger, findings_of


@pytest.fixture
def store(unpack):
    """Return the folder of an intact store."""
    return unpack("plain-clean")


def synced_until(store, timestamp):
    """Let the checkpoint say that all records stored before were synced."""
    change(store / "checkpoint", 0, timestamp.to_bytes(8, "big"))


def test_damaged_last_record_that_the_checkpoint_knows_to_be_durable_is_no_torn_write(store, manifest):
    """A start of the store refuses it: `physicMsgTimestamp` is later than the record."""
    last = manifest("plain-clean")[-1]
    position = last["physicalOffset"] - 65536 + 92
    change(store / "commitlog" / f"{65536:020d}", position, b"junk")
    (store / "abort").touch()
    assert any("a torn tail" in finding.meaning for finding in findings_of(store))
    synced_until(store, last["storeTimestamp"] + 1)
    before = {path: path.read_bytes() for path in store.rglob("*") if path.is_file()}

    result = dledger("verify", store)

    assert "was durable, by the checkpoint" in result.stderr
    assert "1 place of damage" in result.stderr
    assert "a torn tail" not in result.stderr
    refused = dledger("rebuild", store)
    assert (refused.exit_code, "was durable" in refused.stderr) == (1, True), refused.stderr
    assert {path: path.read_bytes() for path in store.rglob("*") if path.is_file()} == before
    assert "149 messages" in dledger("rebuild", store, "--skip-damaged").stdout


def test_closed_java_store_that_lost_its_last_file_is_not_rebuilt_silently(store, manifest):
    """A start refuses it, too; the checkpoint that rebuild writes would hide that messages are missing."""
    last = manifest("plain-clean")[-1]["storeTimestamp"]
    synced_until(store, last)
    (store / "commitlog" / f"{65536:020d}").unlink()
    before = {path: path.read_bytes() for path in store.rglob("*") if path.is_file()}

    lost = [finding for finding in findings_of(store) if finding.area is Area.LOG]
    refused = dledger("rebuild", store)

    assert [(finding.position, finding.is_unfinished) for finding in lost] == [(0, False)]
    assert lost[0].expected == f"a record stored at {last}, which was durable"
    assert not any(finding.area is Area.CHECKPOINT and finding.position == 0 for finding in findings_of(store))
    assert (refused.exit_code, "the end of the log is lost" in refused.stderr) == (1, True), refused.stderr
    assert {path: path.read_bytes() for path in store.rglob("*") if path.is_file()} == before
    done = dledger("rebuild", store, "--skip-damaged")
    assert (done.exit_code, "it is discarded" in done.stderr) == (0, True), done.stderr
    assert findings_of(store) == []


def test_java_store_that_lost_its_last_file_in_a_crash_is_rebuilt_with_a_note(store, manifest):
    """RocketMQ may note the time of a record that a power cut takes; a start notes it, too."""
    synced_until(store, manifest("plain-clean")[-1]["storeTimestamp"])
    (store / "commitlog" / f"{65536:020d}").unlink()
    (store / "abort").touch()

    assert all(finding.is_unfinished for finding in findings_of(store) if finding.area is not Area.QUEUES)
    done = dledger("rebuild", store)

    assert (done.exit_code, "found the log's end after one stored at" in done.stderr) == (0, True), done.stderr


def test_time_in_the_future_is_a_damaged_checkpoint_and_rebuild_repairs_it(store):
    synced_until(store, 1 << 60)

    assert [finding.area for finding in findings_of(store)] == [Area.CHECKPOINT]
    assert dledger("rebuild", store).exit_code == 0
    assert findings_of(store) == []
