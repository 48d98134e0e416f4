"""Loss of data after `dledger rebuild` is detected by the next start, as after a clean exit."""

import pytest

from store.dispatch.checkpoint import decode_checkpoint
from store.errors import CorruptData, WrongFileSize
from store.model.finding import Area
from tests.compat.test_java_log_lost_its_end import LAST, LOSSES, queue_files
from tests.compat.test_offline_damage import dledger, findings_of
from tests.support.message_stores import derived_files, open_small


@pytest.fixture
def rebuilt(unpack):
    """Return the folder of a store that was rebuilt; RocketMQ's checkpoint knew less than what follows."""
    root = unpack("plain-clean")
    assert dledger("rebuild", root).exit_code == 0
    return root


@pytest.mark.parametrize("loss", LOSSES)
def test_lost_end_of_the_log_is_refused_by_start_verify_and_rebuild(rebuilt, loss):
    LOSSES[loss](rebuilt / LAST)
    before = {path: path.read_bytes() for path in rebuilt.rglob("*") if path.is_file() and path.name != "lock"}

    lost = [finding for finding in findings_of(rebuilt) if finding.area is Area.LOG]
    refused = dledger("rebuild", rebuilt)

    assert any("bytes of the log are lost" in finding.meaning for finding in lost), lost
    assert refused.exit_code == 1, refused.output
    for _ in range(2):
        with pytest.raises((CorruptData, WrongFileSize)):
            open_small(rebuilt)
    after = {path: path.read_bytes() for path in rebuilt.rglob("*") if path.is_file() and path.name != "lock"}
    assert after == before


def test_queues_that_lost_a_file_are_built_again(rebuilt):
    whole = derived_files(rebuilt)
    queue_files(rebuilt)[-1].unlink()
    next((rebuilt / "index").iterdir()).unlink()

    store = open_small(rebuilt)
    store.close()

    assert any("files changed while the store was closed" in note for note in store.notes), store.notes
    assert derived_files(rebuilt) == whole


def test_start_finds_the_store_as_rebuild_left_it(rebuilt):
    store = open_small(rebuilt)

    assert store.notes == ()
    store.close()


@pytest.mark.parametrize("name", ["dledger", "mixed"])
def test_rebuild_guarantees_no_end_of_a_replicated_log(unpack, name):
    root = unpack(name)
    assert dledger("rebuild", root).exit_code == 0

    checkpoint = decode_checkpoint((root / "checkpoint").read_bytes())

    assert (checkpoint.is_sealed, checkpoint.log_end) == (True, 0)
