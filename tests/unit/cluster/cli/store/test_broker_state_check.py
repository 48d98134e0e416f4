"""`dledger verify` of the state of a standalone broker: the journal is checked as a start would, and not changed."""

import pytest

from cluster.cli.store.broker_state_check import check_broker_state
from store.fs.linux.files import OsFiles
from tests.support.brokers.local_states import JOURNAL, fill, opened
from tests.support.waiting import run


@pytest.fixture
def segment(tmp_path):
    """The only segment of a journal with five changes."""

    async def scenario():
        state = opened(OsFiles(), tmp_path)
        await fill(state, 5)
        await state.stop()

    run(scenario())
    assert list(check_broker_state(str(tmp_path))) == []
    (path,) = (tmp_path / JOURNAL).iterdir()
    return path


def found(root):
    return [
        (each.path, each.position, each.found, each.is_unfinished) for each in check_broker_state(str(root.parents[3]))
    ]


def test_damage_of_the_journal_is_a_finding_with_file_and_position(segment):
    content = segment.read_bytes()
    segment.write_bytes(content[:50] + b"\xff" + content[51:])
    ((path, position, _, is_unfinished),) = found(segment)
    assert (path, position, is_unfinished) == (str(segment), 36, False)


def test_missing_file_of_the_journal_is_a_finding(segment):
    segment.unlink()
    assert found(segment) == [(str(segment), 0, "none", False)]


def test_part_of_a_batch_is_unfinished_and_stays(segment):
    content = segment.read_bytes()
    end = len(content.rstrip(b"\0"))
    torn = content[:end] + content[36:80] + content[end + 44 :]
    segment.write_bytes(torn)
    assert found(segment) == [(str(segment), end, "a part of a batch", True)]
    assert segment.read_bytes() == torn
