"""An unchanged official client of RocketMQ 5 sends, and receives what it sent; run by an interpreter that has it.

    python official_client.py ENDPOINTS COUNT

With a secret in the variable DEMO_SECRET it connects with TLS, and signs its calls with the access key `shop-key`.
Prints the number of each acknowledged message as it is acknowledged, and at the end one line of JSON:

    failed: sends that raised an error. longest_s: longest time between two acknowledged sends, in seconds.
    received: acknowledged messages that were received. repeated: messages that were received more than once.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections import Counter

from rocketmq import ClientConfiguration, Credentials, FilterExpression, Message, Producer, SimpleConsumer

TOPIC = "orders"
ACCESS_KEY = "shop-key"
SECRET = os.environ.get("DEMO_SECRET", "")
LIMIT_S = 60.0
QUIET_S = 2.0


def main() -> None:
    """Send COUNT messages, receive and acknowledge them."""
    endpoints, count = sys.argv[1], int(sys.argv[2])
    configuration = ClientConfiguration(endpoints, Credentials(ACCESS_KEY, SECRET) if SECRET else Credentials())
    producer = Producer(configuration, (TOPIC,), tls_enable=bool(SECRET))
    producer.startup()
    acknowledged, failed, longest_s = sent(producer, count)
    found = received(configuration, acknowledged)
    print(
        json.dumps(
            {
                "failed": failed,
                "longest_s": longest_s,
                "received": len(acknowledged & set(found)),
                "repeated": sum(times > 1 for times in found.values()),
            }
        ),
        flush=True,
    )
    # Threads of the client may still run.
    os._exit(0)


def sent(producer: Producer, count: int) -> tuple[set[bytes], int, float]:
    """Send; return the bodies of acknowledged messages, the number of failures, and the longest pause in seconds."""
    acknowledged: set[bytes] = set()
    failed, longest_s, before = 0, 0.0, time.monotonic()
    for number in range(count):
        message = Message()
        message.topic, message.body = TOPIC, str(number).encode()
        try:
            producer.send(message)
        except Exception as error:  # noqa: BLE001  (whatever the client raises)
            print(error, file=sys.stderr)
            failed += 1
            continue
        acknowledged.add(message.body)
        longest_s, before = max(longest_s, time.monotonic() - before), time.monotonic()
        print(number, flush=True)
    return acknowledged, failed, longest_s


def received(configuration: ClientConfiguration, expected: set[bytes]) -> Counter[bytes]:
    """Return how often each body came, until all have come and for two more seconds."""
    subscriptions = {TOPIC: FilterExpression()}
    consumer = SimpleConsumer(configuration, "billing", subscriptions, await_duration=2, tls_enable=bool(SECRET))
    consumer.startup()
    found: Counter[bytes] = Counter()
    end, is_complete = time.monotonic() + LIMIT_S, False
    while time.monotonic() < end:
        for message in consumer.receive(32, 30):
            found[message.body] += 1
            consumer.ack(message)
        if not is_complete and expected <= set(found):
            is_complete, end = True, time.monotonic() + QUIET_S
    return found


if __name__ == "__main__":
    main()
