"""Changes the files of a message store between two openings."""

from store.dispatch.checkpoint import read_checkpoint
from store.fs.linux.files import OsFiles
from tests.support.message_stores import change_checkpoint

COUNT = 300


def be_killed(root):
    (root / "abort").write_text("1")


def forget(root):
    (root / "checkpoint").unlink()
    be_killed(root)


def last_of(root, directory):
    return max(path for path in (root / directory).rglob("*") if path.is_file())


def overwrite(path, position, data):
    content = bytearray(path.read_bytes())
    content[position : position + len(data)] = data
    path.write_bytes(content)


def lower_checkpoint(root, queues_seconds, index_seconds):
    """Set the checkpoint back to this many seconds before the last message; None: to zero."""
    said = read_checkpoint(OsFiles(), str(root))
    queues, index = (
        0 if seconds is None else value - seconds * 1000
        for value, seconds in ((said.logics_msg_timestamp, queues_seconds), (said.index_msg_timestamp, index_seconds))
    )
    change_checkpoint(root, logics_msg_timestamp=queues, index_msg_timestamp=index)
    be_killed(root)
