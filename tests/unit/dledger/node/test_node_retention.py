"""Space on the disk of a node: a log that was set aside is deleted before any file of the current log."""

from collections import deque
from types import SimpleNamespace

import pytest

from dledger.node.maintenance.retention import NodeRetention, RetentionFloor


class Policy(SimpleNamespace):
    """Chooses the files before entries 5 and 9 for deletion."""

    is_disk_full = is_held_back = False
    used_ratio = 0.9
    silence_s = 0.0

    def read_clocks(self, clocks):
        pass

    def check(self, _clocks, _floor):
        return [index for index in (5, 9) if index not in self.deleted]


def looked(*, is_short_of_space, aside_count, is_stalled=False):
    """Return the deletions of one check of the retention, and its calls, in order."""
    deleted, steps = [], deque()
    driver = SimpleNamespace(raft=SimpleNamespace(begin_index=0), delete_before=deleted.append)

    core = SimpleNamespace(retention_floor=100, is_disk_stalled=is_stalled)

    def free_aside():
        if deleted.count("aside") == aside_count:
            return False
        deleted.append("aside")
        return True

    retention = NodeRetention(
        Policy(is_short_of_space=is_short_of_space, deleted=deleted),
        floor=RetentionFloor(core, None, None),
        core=core,
        steps=SimpleNamespace(soon=steps.append),
        free_aside=free_aside,
        clocks=lambda: None,
    )
    retention.check()
    for _ in range(aside_count + 2):
        if steps:
            steps.popleft()(driver)
    return deleted, retention.deleted_files_count


@pytest.mark.parametrize("aside_count", [0, 1, 3])
def test_log_that_was_set_aside_is_deleted_before_files_of_the_current_one(aside_count):
    deleted, count = looked(is_short_of_space=True, aside_count=aside_count)

    assert deleted == ["aside"] * aside_count + [5, 9]
    assert count == 2


def test_log_that_was_set_aside_is_kept_while_the_disk_has_space():
    assert looked(is_short_of_space=False, aside_count=3) == ([5, 9], 2)


def test_nothing_is_deleted_on_a_stalled_disk():
    assert looked(is_short_of_space=True, aside_count=3, is_stalled=True) == ([], 0)
