"""One changed bit of a unit, which no checksum covers, hides no message that the log still has."""

import shutil

from store.model.message import Message, QueueKey
from tests.support.message_stores import Clock, open_small

LOG_FILE = 65536
# Of a unit of 20 bytes: the byte of the physical offset that has the bit of 65,536.
OFFSET_BYTE = 5


def expired(root, clock, changed=None):
    """Change a unit of a copy of the store, delete the first file of its log: (first offset, where the files begin)."""
    copy = root.parent / "copy"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(root, copy)
    store = open_small(copy, clock=clock)
    if changed is not None:
        file, unit = divmod(changed, 50)
        with (copy / "consumequeue" / "T" / "0" / f"{1000 * file:020d}").open("r+b") as stream:
            stream.seek(unit * 20 + OFFSET_BYTE)
            stream.write(b"\0")
    store.log.delete_before(LOG_FILE)
    store.messages.expire()
    queue = store.messages.derived.queues.get(QueueKey("T", 0))
    found = queue.min_offset, queue.begin_offset
    store.close()
    return found


def test_expiry_of_a_queue_is_not_misled(tmp_path):
    root, clock = tmp_path / "store", Clock()
    store = open_small(root, clock=clock)
    for number in range(600):
        clock.pass_s(0.01)
        store.messages.put(Message("T", b"%05d" % number * 20))
    store.dispatch()
    store.close()
    first, begin = expired(root, clock)
    assert begin < first < begin + 49

    # The last unit of the first file that is kept decides whether the file goes; the others are on the way of a search.
    for changed in (begin + 49, *range(first + 1, first + 30, 3), (begin + 600) // 2):
        assert expired(root, clock, changed) == (first, begin), changed
