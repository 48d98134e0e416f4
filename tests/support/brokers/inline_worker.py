"""A `store.fs.storage_thread.Worker` without a thread: jobs run at once, and their ends are reported by the loop."""

import asyncio

from store.errors import StoreError


class InlineWorker:
    """Runs each job within `run`, so that all work on files happens in one thread, in a determined order."""

    def __init__(self, _name):
        self._loop = asyncio.get_running_loop()
        self._running_count = 0
        self._ended = asyncio.Event()

    def run(self, job, finished):
        error = None
        try:
            job()
        except StoreError as raised:
            error = raised
        self._running_count += 1
        self._loop.call_soon(self._finish, finished, error)

    def _finish(self, finished, error):
        self._running_count -= 1
        finished(error)
        self._ended.set()

    async def stop(self):
        """Wait until all ends were reported."""
        while self._running_count:
            self._ended.clear()
            await self._ended.wait()
