"""The disk watch records an entry that did not fit on the disk, until there is enough free space for it."""

from dledger.driver.disk_watch import SpaceWatch
from store.errors import DiskFull


class Disk:
    def __init__(self):
        self.space = 0
        self.asked = []

    def reserve(self, sizes):
        self.asked.append(tuple(sizes))
        if sum(sizes) > self.space:
            raise DiskFull("/n0", sum(sizes))


def test_disk_is_full_until_the_refused_size_would_fit():
    disk = Disk()
    watch = SpaceWatch(disk.reserve, interval_ms=100)
    assert not watch.is_full(0)

    watch.lacked([300, 50], 10)

    assert [watch.is_full(now_ms) for now_ms in (10, 109, 110, 111, 209, 210)] == [True] * 6
    assert disk.asked == [(300, 50)] * 2, "it is asked once in an interval"
    disk.space = 350
    assert watch.is_full(309)
    assert not watch.is_full(310)
    assert not watch.is_full(1000)
    assert len(disk.asked) == 3


def test_small_entry_that_fits_does_not_admit_a_large_one():
    watch = SpaceWatch(Disk().reserve, interval_ms=100)
    watch.lacked([300], 10)

    watch.found([299])
    assert watch.is_full(20)
    watch.lacked([5], 30)
    watch.found([299])
    assert watch.is_full(40)
    watch.found([300])
    assert not watch.is_full(50)


def test_continuing_refusals_do_not_delay_the_next_check():
    disk = Disk()
    watch = SpaceWatch(disk.reserve, interval_ms=100)
    for now_ms in range(0, 100, 10):
        watch.lacked([300], now_ms)
    disk.space = 300

    assert not watch.is_full(100)
