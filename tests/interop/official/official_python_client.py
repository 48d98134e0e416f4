"""Scenarios with the official Python client, `rocketmq-python-client`; run by an interpreter that has its packages.

    python official_python_client.py ENDPOINTS SCENARIO

Prints one line of JSON: what was observed. The tests compare it (`test_official_python_client`).
"""

import json
import os
import sys
import threading
import time
from datetime import UTC, datetime

from rocketmq import (
    ClientConfiguration,
    ConsumeResult,
    Credentials,
    FilterExpression,
    Message,
    MessageListener,
    Producer,
    PushConsumer,
    SimpleConsumer,
    TransactionChecker,
    TransactionResolution,
)

LIMIT_S = 60


def message(topic, body, **fields):
    """Return a message; fields are those of the client."""
    made = Message()
    made.topic, made.body = topic, body.encode()
    for name, value in fields.items():
        setattr(made, name, value)
    return made


def received(consumer, count, seconds=LIMIT_S):
    """Receive and acknowledge until `count` messages were received, or for some seconds."""
    found, end = [], time.monotonic() + seconds
    while len(found) < count and time.monotonic() < end:
        for each in consumer.receive(32, 30):
            consumer.ack(each)
            found.append(each)
    return found


def opened(kind, configuration, *arguments, **options):
    """Return a client that has started."""
    client = kind(configuration, *arguments, **options)
    client.startup()
    return client


class Commits(TransactionChecker):
    """Commits what it is asked about."""

    def __init__(self):
        self.asked = []

    def check(self, asked):
        """Answer a question."""
        self.asked.append(asked.body.decode())
        return TransactionResolution.COMMIT


class Noting(MessageListener):
    """Fails to process each message once."""

    def __init__(self):
        self.attempts = []
        self.is_done = threading.Event()

    def consume(self, given):
        """Process a message."""
        self.attempts.append((given.body.decode(), given.delivery_attempt))
        if given.delivery_attempt == 1:
            return ConsumeResult.FAILURE
        self.is_done.set()
        return ConsumeResult.SUCCESS


def kinds(configuration):
    """Send a message of each kind, and receive it."""
    checker = Commits()
    producer = opened(Producer, configuration, ("NORMAL", "FIFO", "DELAY", "TRANSACTION"), checker=checker)
    normal = message("NORMAL", "normal", tag="A", keys="k1")
    normal.keys = "k2"
    normal.add_property("a", "b")
    receipt = producer.send(normal)
    producer.send(message("NORMAL", "other", tag="B"))
    for number in range(5):
        producer.send(message("FIFO", str(number), message_group="g"))
    due = int(datetime.now(UTC).timestamp()) + 3
    producer.send(message("DELAY", "delay", delivery_timestamp=due))
    recalled = producer.send(message("DELAY", "recalled", delivery_timestamp=due + 1))
    producer.recall_message("DELAY", recalled.recall_handle)
    for body, end in (("committed", "commit"), ("rolled back", "rollback"), ("orphan", None)):
        transaction = producer.begin_transaction()
        producer.send(message("TRANSACTION", body), transaction)
        if end is not None:
            getattr(transaction, end)()
    found = {}
    expected = {"NORMAL": 1, "FIFO": 5, "DELAY": 1, "TRANSACTION": 2}
    for topic, count in expected.items():
        expression = FilterExpression("A") if topic == "NORMAL" else FilterExpression()
        consumer = opened(SimpleConsumer, configuration, f"G{topic}", {topic: expression}, await_duration=5)
        messages = received(consumer, count)
        found[topic] = [each.body.decode() for each in messages]
        if topic == "NORMAL":
            (one,) = messages
            details = [one.tag, sorted(one.keys), dict(one.properties), one.message_id == receipt.message_id]
        consumer.shutdown()
    producer.shutdown()
    return {"found": found, "asked": checker.asked, "details": details, "is_late": datetime.now(UTC).timestamp() >= due}


def redelivery(configuration):
    """Change the invisible time of a message, and fail to process one with a push consumer."""
    producer = opened(Producer, configuration, ("NORMAL",))
    producer.send(message("NORMAL", "again"))
    simple = opened(SimpleConsumer, configuration, "Gagain", {"NORMAL": FilterExpression()}, await_duration=5)
    attempts = []
    end = time.monotonic() + LIMIT_S
    while len(attempts) < 2 and time.monotonic() < end:
        for each in simple.receive(1, 30):
            attempts.append(each.delivery_attempt)
            if len(attempts) == 1:
                simple.change_invisible_duration(each, 1)
            else:
                simple.ack(each)
    simple.shutdown()
    listener = Noting()
    push = opened(PushConsumer, configuration, "Gpush", listener, {"NORMAL": FilterExpression()})
    listener.is_done.wait(LIMIT_S)
    push.shutdown()
    producer.shutdown()
    return {"simple": attempts, "push": listener.attempts}


def load(configuration):
    """Send until standard input ends, then receive; print `sending` when the first ones are sent."""
    producer = opened(Producer, configuration, ("NORMAL",))
    consumer = opened(SimpleConsumer, configuration, "Gload", {"NORMAL": FilterExpression()}, await_duration=5)
    ended = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
    acknowledged, failed, after = set(), 0, 0
    longest, before = 0.0, time.monotonic()
    while not ended.is_set() or after < 20:
        body = str(len(acknowledged) + failed)
        try:
            producer.send(message("NORMAL", body))
        except Exception as error:  # noqa: BLE001  (whatever the client raises)
            failed += 1
            print(error, file=sys.stderr)
            continue
        acknowledged.add(body)
        now = time.monotonic()
        longest, before = max(longest, now - before), now
        after += ended.is_set()
        if len(acknowledged) == 20:
            print("sending", flush=True)
    found, end = [], time.monotonic() + 2 * LIMIT_S
    while not acknowledged <= set(found) and time.monotonic() < end:
        found += [each.body.decode() for each in received(consumer, 1)]
    lost = sorted(acknowledged - set(found))
    return {"sent": len(acknowledged), "failed": failed, "lost": lost, "longest_s": round(longest, 2)}


def main():
    """Run one scenario."""
    endpoints, scenario = sys.argv[1:]
    observed = {"kinds": kinds, "redelivery": redelivery, "load": load}[scenario](
        ClientConfiguration(endpoints, Credentials())
    )
    print(json.dumps(observed), flush=True)
    # Threads of the client may still run.
    os._exit(0)


if __name__ == "__main__":
    main()
