"""Disk work in a separate thread: all of it has ended when the thread is stopped, whatever its owner does."""

import asyncio

from store.fs.storage_thread import StorageThread
from tests.support.waiting import PATIENCE_S


def test_stop_ends_even_when_the_callback_of_the_owner_fails():
    async def scenario():
        failures = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: failures.append(context["exception"]))
        thread = StorageThread("test")

        def finished(error):
            raise ValueError(f"cannot continue from {error}")

        thread.run(lambda: None, finished)
        async with asyncio.timeout(PATIENCE_S):
            await thread.stop()
        assert [str(failure) for failure in failures] == ["cannot continue from None"]

    asyncio.run(scenario())


def test_stop_waits_for_work_that_other_work_has_asked_for():
    async def scenario():
        done = []
        thread = StorageThread("test")
        thread.run(lambda: done.append(1), lambda _: thread.run(lambda: done.append(2), lambda _: done.append(3)))
        async with asyncio.timeout(PATIENCE_S):
            await thread.stop()
        assert done == [1, 2, 3]

    asyncio.run(scenario())
