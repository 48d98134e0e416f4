"""After every file operation of a merge and every class of lost writes: either the old indexes are current, or the new.

Readers see the latest message of each key in both cases, and what is compacted again gives the same.
"""

from collections import Counter
from random import Random

from commitlog.plain.commit_log import CommitLogConfig
from commitlog.plain.store import PlainStoreConfig, open_plain_store
from dledger.testing.disk.disk import SimDisk
from dledger.testing.faults import FaultCounts
from store.model.config import MessageStoreConfig
from tests.crashpoints.crashes import IS_LONG, Crashes
from tests.crashpoints.workload import files_on
from tests.support.brokers.compacting import compact, copy_all, keyed, put, read_all
from tests.support.message_stores import Clock

ROOT = "/s"
CONFIG = PlainStoreConfig(
    log=CommitLogConfig(mapped_file_size=4096),
    store=MessageStoreConfig(
        mapped_file_size_consume_queue=160, max_hash_slot_num=16, max_index_num=20, dispatch_size_bytes=700
    ),
)
STRIDE = 1 if IS_LONG else 7


class Workload:
    """Compactions of one store, whose messages are durable before each of them.

    Attributes:
        puts: the durable messages of the topic C: (key, body), by offset.
        found: the number of crashes after which a store had the index of each merge.
    """

    def __init__(self):
        self.crashes = Crashes(101 if not IS_LONG else 29, stride=STRIDE, second_stride=37)
        self.disk = SimDisk(Random(1), FaultCounts())
        self.puts = []
        self.found = Counter()
        self.is_watched = False
        self.store = open_plain_store(files_on(self.disk, self.see), ROOT, CONFIG, process_id=1, clocks=Clock())

    def see(self, number):
        if self.is_watched:
            self.crashes.see(f"operation {number}", self.disk, self.inspect)

    def put(self, *keys):
        for key in keys:
            body = b"%d" % len(self.puts)
            self.puts.append((key, body))
            put(self.store, keyed(key, body))

    def compact(self):
        self.is_watched = True
        compact(self.store)
        self.is_watched = False

    def inspect(self, disk, before_operation):
        files = files_on(disk, before_operation)
        store = open_plain_store(files, ROOT, CONFIG, process_id=1, clocks=Clock())
        latest = {key: offset for offset, (key, _) in enumerate(self.puts)}
        compaction = store.messages.compaction
        self.found[compaction._manifest.serial] += 1
        for _ in range(2):
            seen = read_all(store.messages)
            assert all(body == self.puts[offset][1] for offset, body in seen.items())
            assert seen.keys() >= set(latest.values())
            compact(store)
        assert seen.keys() == set(latest.values())
        assert compaction.needed_from >= min(index.min_place for _, index in compaction.queues())


def test_each_crash_during_a_merge_leaves_the_old_indexes_or_the_new():
    work = Workload()
    work.put("a", "b", "c")
    work.compact()
    work.put("a", "d", "b")
    work.compact()
    copy_all(work.store, work.store.log.end_offset)
    work.compact()
    work.is_watched = False
    counts = work.crashes.counts
    print(dict(counts), dict(work.found))
    assert set(work.found) == {0, 1, 2, 3}
    assert min(counts["operations"], counts["images"]) > 15, counts
