"""The sender of a producer ends when it is closed."""

import asyncio
from contextlib import suppress

from cluster.client.producer.sender import SendPump, SendRules
from tests.support.waiting import run


def test_sender_ends_although_its_task_lost_the_cancellation(monkeypatch):
    """Without a bound, `close` waited for the task without end: two tests of writers hung in it."""

    async def story():
        sends = asyncio.Event()

        async def send_one(_):
            sends.set()
            with suppress(asyncio.CancelledError):
                await asyncio.Event().wait()

        monkeypatch.setattr(SendPump, "_may_send", lambda _: True)
        monkeypatch.setattr(SendPump, "_send_one", send_one)
        pump = SendPump("broker", None, SendRules(0.0, 1, 1, 1, 1.0, False), None)
        pump._wakeup.set()
        await sends.wait()
        async with asyncio.timeout(5):
            await pump.close()

    run(story())
