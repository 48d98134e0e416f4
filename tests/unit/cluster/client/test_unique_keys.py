"""Ids of messages: RocketMQ's format, unique within a millisecond, over forks, and over clock jumps."""

from __future__ import annotations

import os
import re
from datetime import UTC, datetime

import pytest

from cluster.client.producer.unique_keys import UniqueKeys

NOVEMBER = int(datetime(2026, 11, 1, tzinfo=UTC).timestamp()) * 1000
DECEMBER = int(datetime(2026, 12, 1, tzinfo=UTC).timestamp()) * 1000


class Clock:
    now = NOVEMBER + 5

    def __call__(self) -> int:
        return self.now


@pytest.mark.parametrize(("address", "length"), [(bytes([10, 0, 0, 7]), 32), (bytes(range(16)), 56)])
def test_an_id_has_the_parts_that_rocketmq_gives_it(address: bytes, length: int) -> None:
    ids = UniqueKeys(address, Clock(), pid=lambda: 0x1_2345)

    first, second = ids.next(), ids.next()

    assert re.fullmatch(rf"[0-9A-F]{{{length}}}", first)
    assert first.startswith(address.hex().upper() + "2345")
    assert (first[-12:], second[-12:]) == ("00000005" + "0000", "00000005" + "0001")


def test_ids_are_unique_within_a_millisecond_and_over_clock_jumps_and_month_ends() -> None:
    clock = Clock()
    ids = UniqueKeys(bytes(4), clock)
    made = [ids.next() for _ in range(3 * 65_536)]
    for now in (NOVEMBER, NOVEMBER + 6, DECEMBER - 1, DECEMBER, NOVEMBER):
        clock.now = now
        made += [ids.next() for _ in range(65_537)]

    assert len(set(made)) == len(made)


def test_a_batch_of_ids_equals_ids_created_one_by_one() -> None:
    one, many = (UniqueKeys(bytes(4), Clock(), pid=lambda: 1) for _ in range(2))

    assert many.take(0) == []
    assert [key[-12:] for key in many.take(65_000) + many.take(70_000)] == [one.next()[-12:] for _ in range(135_000)]


def test_processes_with_equal_pids_and_forked_ones_create_different_ids() -> None:
    pid = [7]
    one, other = (UniqueKeys(bytes(4), Clock(), pid=lambda: pid[0]) for _ in range(2))
    before, twin = one.next(), other.next()
    pid[0] = 7 + 0x1_0000

    assert len({before, twin, one.next(), other.next()}) == 4


def test_a_key_without_an_address_has_more_random_digits() -> None:
    clock = Clock()
    heads = {UniqueKeys(clock_ms=clock, pid=lambda: 1).next()[:8] for _ in range(50)}

    assert len(heads) == 50
    assert len(UniqueKeys().next()) == 32


def test_a_month_begins_with_zero() -> None:
    clock = Clock()
    clock.now = DECEMBER
    assert UniqueKeys(bytes(4), clock).next()[-12:-4] == "00000000"
    clock.now = DECEMBER - 1
    assert int(UniqueKeys(bytes(4), clock).next()[-12:-4], 16) == 30 * 86_400_000 - 1


def test_a_forked_process_creates_different_keys() -> None:
    ids = UniqueKeys(bytes(4), Clock())
    ids.next()
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.write(writing, ids.next().encode())
        os._exit(0)
    os.waitpid(child, 0)

    assert os.read(reading, 32).decode()[:20] != ids.next()[:20]
