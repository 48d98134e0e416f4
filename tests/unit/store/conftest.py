"""Message stores in a real directory, with clocks that the test moves."""

import pytest

from tests.message_stores import SMALL, Clock, numbered, open_small


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
        store.keeper.abandon()


@pytest.fixture
def filled(opened):
    """Return a store with 50 messages in each of two queues, tags a, b and c in turn."""
    store = opened()
    store.messages.put_many([numbered(number, queues=2, tag="abc"[number // 2 % 3]) for number in range(100)])
    store.dispatch()
    return store
