"""A consumer in a process of its own, that writes down what it gets: run by `test_consumer_groups`.

Lines of its output, each with the machine's monotonic time in ns: `<time> share <queue>,<queue>` at each change of its
queues; `<time> message <queue> <offset>` for each message, as it is handed out. SIGTERM ends it in order.
"""

from __future__ import annotations

import asyncio
import signal
import sys
import time

from cluster import Consumer


def say(*words: object) -> None:
    """Write one line."""
    print(time.monotonic_ns(), *words, flush=True)


async def main(name_servers: str, client_id: str, *, is_orderly: bool) -> None:
    """Consume until told to stop."""
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    options = {"start": "first", "commit_interval_s": 0.5, "is_orderly": is_orderly}
    async with Consumer(
        name_servers=name_servers, group="g", topics="orders", client_id=client_id, **options
    ) as consumer:
        share = None
        while not stopped.is_set():
            now = ",".join(str(queue.queue_id) for queue in consumer.queues)
            if now != share:
                share = now
                say("share", share or "-")
            for message in await consumer.poll(20, 0.05):
                say("message", message.queue_id, message.queue_offset)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], is_orderly=sys.argv[3] == "orderly"))
