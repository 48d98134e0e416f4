"""Message stores in a real directory, with clocks that the test advances."""

import shutil

import pytest

from tests.support.faulty_disk import FaultyDisk
from tests.support.message_stores import SMALL, Clock, numbered, open_small
from tests.support.store_damage import COUNT


@pytest.fixture
def faulty_files():
    """Return a file system that fails where a test says so."""
    return FaultyDisk()


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def opened(tmp_path, clock):
    """Return a function that opens the store of the test, with other settings if they are given."""
    stores = []

    def open_one(config=SMALL):
        stores.append(open_small(tmp_path / "store", config, clock=clock))
        return stores[-1]

    yield open_one
    for store in stores:
        store.lifecycle.abandon()


@pytest.fixture
def filled(opened):
    """Return a store with 50 messages in each of two queues, tags a, b and c in turn."""
    store = opened()
    store.messages.put_many([numbered(number, queues=2, tag="abc"[number // 2 % 3]) for number in range(100)])
    store.dispatch()
    return store


@pytest.fixture(scope="session")
def template(tmp_path_factory):
    """Return a store of 300 messages, 2 s apart, closed cleanly; several files of each kind."""
    root, clock = tmp_path_factory.mktemp("template") / "store", Clock()
    store = open_small(root, clock=clock)
    for number in range(0, COUNT, 3):
        clock.pass_s(6)
        store.messages.put_many([numbered(number + at, sys_flag=4 if number % 30 == 0 else 0) for at in range(3)])
    store.close()
    assert len(list((root / "commitlog").iterdir())) == 2
    assert len(list((root / "index").iterdir())) > 2
    return root


@pytest.fixture
def root(template, tmp_path):
    """Return a copy of the store, to be damaged."""
    return shutil.copytree(template, tmp_path / "store")
