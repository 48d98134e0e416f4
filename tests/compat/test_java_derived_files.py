"""Queues and index made from the manifests are those that Java made, byte for byte; Java's are read and continued."""

import pytest

from store.dispatch.checkpoint import read_checkpoint
from store.fs.linux.files import OsFiles
from store.index.key_index import KeyIndex
from store.index.layout import IndexLayout
from store.maintenance.lock import note_in
from store.model.message import QueueKey
from store.queues.consume_queues import ConsumeQueues
from tests.support.dispatch_batches import batch_of_manifest, key_hash

LAYOUT = IndexLayout(100, 400)
QUEUE_FILE_SIZE = 1000
CLEAN = ("plain-clean", "plain-propcrc", "dledger", "mixed")
UNCLEAN = ("plain-killed", "plain-livecopy", "plain-torn", "dledger-killed")
ALL_TIME = (0, 1 << 50)


class Derived:
    """Queues and index of a directory."""

    def __init__(self, root):
        self.queues = ConsumeQueues(OsFiles(), str(root), QUEUE_FILE_SIZE)
        self.index = KeyIndex(OsFiles(), str(root), LAYOUT)
        assert self.queues.load() == []
        assert self.index.load() == []

    def append(self, lines, step=1 << 20):
        for begin in range(0, len(lines), step):
            batch = batch_of_manifest(lines[begin : begin + step])
            assert self.queues.append(batch) == []
            self.index.append(batch)

    def close(self):
        self.queues.flush()
        self.index.flush()
        self.queues.close()
        self.index.close()


def build(root, lines, step=1 << 20):
    derived = Derived(root)
    derived.append(lines, step)
    derived.close()


def queue_files(root):
    folder = root / "consumequeue"
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def index_files(root):
    return [path.read_bytes() for path in sorted((root / "index").iterdir())]


@pytest.mark.parametrize(("name", "step"), [("plain-clean", 1), *((name, 7) for name in CLEAN)])
def test_files_built_from_the_messages_equal_javas(unpack, manifest, tmp_path, name, step):
    java = unpack(name)

    build(tmp_path / "ours", manifest(name), step)

    assert queue_files(java) == queue_files(tmp_path / "ours")
    assert index_files(java) == index_files(tmp_path / "ours")


@pytest.mark.parametrize("name", UNCLEAN)
@pytest.mark.parametrize("part", [0, 0.6])
def test_files_that_java_left_are_made_to_match_the_log(unpack, manifest, tmp_path, name, part):
    java, lines = unpack(name), manifest(name)
    times = {line["physicalOffset"]: line["storeTimestamp"] for line in lines}
    place = lines[int(len(lines) * part)]["physicalOffset"]
    assert note_in(OsFiles(), str(java)) is not None

    derived = Derived(java)
    place = min(place, derived.index.max_physical_offset, derived.queues.max_physical_offset)
    derived.queues.truncate(place)
    derived.index.truncate(place, times.__getitem__)
    derived.append(lines)
    derived.close()
    build(tmp_path / "ours", lines)

    ours = queue_files(tmp_path / "ours")
    assert {path: content for path, content in queue_files(java).items() if path in ours} == ours
    assert all(not any(content) for path, content in queue_files(java).items() if path not in ours)
    assert index_files(java) == index_files(tmp_path / "ours")


@pytest.mark.parametrize("name", CLEAN)
def test_every_message_is_found_by_queue_and_by_key(unpack, manifest, name):
    derived = Derived(unpack(name))

    for line in manifest(name):
        if line["inConsumeQueue"]:
            queue = derived.queues.get(QueueKey(line["topic"], line["queueId"]))
            unit = line["physicalOffset"], line["size"], line["tagsCode"]
            assert queue.unit_tuples(line["queueOffset"], 1) == [unit]
        keys = [line["uniqKey"], *(line["keys"] or "").split(" ")]
        for key in filter(None, keys if line["indexed"] else ()):
            hits = derived.index.query(key_hash(line["topic"], key), *ALL_TIME, 64)
            assert line["physicalOffset"] in hits.physical_offsets
            assert hits.faults == []


@pytest.mark.parametrize("name", CLEAN)
def test_javas_files_are_continued_like_ours(unpack, manifest, tmp_path, name):
    java, lines = unpack(name), manifest(name)
    end = max(line["physicalOffset"] + line["size"] for line in lines)
    more = [dict(line, physicalOffset=end + line["physicalOffset"]) for line in lines]
    counts = {}
    for line in [*lines, *more]:
        if line["inConsumeQueue"]:
            line["queueOffset"] = counts.setdefault((line["topic"], line["queueId"]), 0)
            counts[line["topic"], line["queueId"]] += 1

    build(java, lines + more)
    build(tmp_path / "ours", lines + more)

    assert queue_files(java) == queue_files(tmp_path / "ours")
    assert index_files(java) == index_files(tmp_path / "ours")


@pytest.mark.parametrize("name", CLEAN + UNCLEAN)
def test_checkpoint_of_java_is_read(unpack, manifest, name):
    checkpoint = read_checkpoint(OsFiles(), str(unpack(name)))

    times = {line["storeTimestamp"] for line in manifest(name)} | {0}
    if name in CLEAN:
        assert {checkpoint.logics_msg_timestamp} <= times
    assert min(checkpoint.physic_msg_timestamp, checkpoint.logics_msg_timestamp) <= max(times) + 3000
