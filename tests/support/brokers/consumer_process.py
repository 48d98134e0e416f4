"""A consumer in a separate process that prints the messages it receives, and a class to run it in a test.

Lines of its output, each with the machine's monotonic time in ns: `<time> share <queue>,<queue>` at each change of its
queues; `<time> message <queue> <offset>` for each message, when it is delivered. SIGTERM stops it cleanly.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import time
from pathlib import Path
from typing import Any

from cluster import Consumer
from cluster.client.consumer import group_member
from cluster.local.children import start_child
from tests.support.waiting import PATIENCE_S


class ConsumerProcess:
    """One consumer of group `g` and topic `orders`, and its output.

    Args:
        path: of its output.
        client_id: its name.
        options: of `cluster.Consumer`; `beat_s`: heartbeat interval; `work_s`: seconds of processing before it prints a
            message.
    """

    def __init__(self, path: Path, client_id: str, **options: Any) -> None:
        self.client_id = client_id
        self._path = path
        with path.open("w") as output:
            command = [sys.executable, "-m", "tests.support.brokers.consumer_process", client_id, json.dumps(options)]
            self._process = start_child(command, stdout=output, cwd=Path(__file__).parents[3])

    def lines(self) -> list[list[str]]:
        """Return the words of each whole line."""
        text = self._path.read_text()
        return [line.split() for line in text[: text.rfind("\n") + 1].splitlines()]

    def share(self) -> set[int]:
        """Return its current queues."""
        shares = [line[2] for line in self.lines() if line[1] == "share"]
        return {int(each) for each in shares[-1].split(",")} if shares and shares[-1] != "-" else set()

    def messages(self) -> list[tuple[int, int, int]]:
        """Return time, queue and offset of each message."""
        return [(int(line[0]), int(line[2]), int(line[3])) for line in self.lines() if line[1] == "message"]

    def pause(self) -> None:
        """Pause it, with its connections."""
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Resume it."""
        self._process.send_signal(signal.SIGCONT)

    def end(self) -> None:
        """Stop it cleanly."""
        self._process.terminate()
        assert self._process.wait(PATIENCE_S) == 0

    def kill(self) -> None:
        """Kill it. Does nothing if it has exited."""
        self._process.kill()
        self._process.wait()


def shared_out(queues: int, *consumers: ConsumerProcess) -> bool:
    """Return whether each of the queues has one consumer, and each consumer a queue."""
    shares = [consumer.share() for consumer in consumers]
    return all(shares) and sorted(each for share in shares for each in share) == list(range(queues))


def say(*words: object) -> None:
    """Write one line."""
    print(time.monotonic_ns(), *words, flush=True)


async def main(client_id: str, options: dict[str, Any]) -> None:
    """Consume until SIGTERM comes."""
    group_member._BEAT_S = options.pop("beat_s", group_member._BEAT_S)
    work_s = options.pop("work_s", 0.0)
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    rules = {"group": "g", "topics": "orders", "start": "first", "commit_interval_s": 0.5, **options}
    async with Consumer(client_id=client_id, **rules) as consumer:
        share = None
        while not stopped.is_set():
            now = ",".join(str(queue.queue_id) for queue in consumer.queues)
            if now != share:
                share = now
                say("share", share or "-")
            messages = await consumer.poll(20, 0.05)
            for message in messages:
                await asyncio.sleep(work_s)
                say("message", message.queue_id, message.queue_offset)
            # So that no message is delivered again if it is stopped now.
            consumer.acknowledge(messages)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], json.loads(sys.argv[2])))
