"""The part of the demo about messages that wait: the leader is killed while they do, and each comes nevertheless.

| message | before the kill | after it |
| --- | --- | --- |
| delayed | sent with a delay level | is delivered once |
| for a time | sent for a time of its own | is delivered once |
| failed | a consumer has returned it | comes again, as its second attempt |
| dead | a consumer has given it up | is among the dead letters |
| paid | the first half of a transaction | is committed, and delivered once |
| not paid | … | is rolled back, and never delivered |
"""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING

from demo_stage import BROKER_OPTIONS, say, security_of
from demo_writer import DemoError
from rich.table import Table

from cluster import Consumer, Producer
from cluster.local.brokers import LocalBrokers
from cluster.local.topics import create_topics

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import Console

    from cluster.client.consumer.consumer import BlockingConsumer
    from cluster.client.consumer.received import ReceivedMessage
    from cluster.client.producer.producer import BlockingProducer
    from cluster.local.cluster import LocalCluster

_TOPIC = "orders"
_GROUP = "billing"
_DEAD_LETTERS = f"%DLQ%{_GROUP}"
# Levels 2 and 3: five and ten seconds.
_DELAY_LEVEL, _RETRY_LEVEL = 2, 3
_DELAY_S = 6.0
_LIMIT_S = 60.0
# Time in which a message that came twice would be seen.
_QUIET_S = 2.0
# Messages after the kill, by their bodies: how often each must come.
_EXPECTED = {"delayed": 1, "for a time": 1, "failed": 1, "paid": 1, "not paid": 0}


def waiting_act(folder: Path, console: Console, *, is_secured: bool) -> bool:
    """Run this part; return whether each message came as expected.

    Args:
        folder: for all files.
        console: for all output.
        is_secured: whether the nodes use TLS and have users.

    Raises: DemoError, cluster.local.node.ClusterError, dledger.errors.DLedgerError: the demo cannot continue.
    """
    brokers = LocalBrokers.create(folder / "waiting-brokers", options=BROKER_OPTIONS, is_secured=is_secured)
    (cluster,) = brokers.clusters.values()
    security = security_of(brokers)
    with brokers:
        cluster.wait_for_leader()
        create_topics(cluster.endpoints, [_TOPIC], security)
        with (
            Producer(cluster.endpoints, is_unknown_retried=True, deadline_s=_LIMIT_S, security=security) as producer,
            Consumer(
                cluster.endpoints,
                group=_GROUP,
                topics={_TOPIC: "*"},
                start="first",
                has_retries=True,
                security=security,
            ) as consumer,
        ):
            victim, found = _run(cluster, producer, consumer, console)
        cluster.start_node(victim)
        with Consumer(
            cluster.endpoints, group="operators", topics={_DEAD_LETTERS: "*"}, start="first", security=security
        ) as operators:
            found["dead"] = sum(message.body == b"dead" for message in operators.poll(timeout_s=_LIMIT_S))
    console.print(_table(found))
    return all(found[body] == count for body, count in (_EXPECTED | {"dead": 1}).items())


def _run(
    cluster: LocalCluster, producer: BlockingProducer, consumer: BlockingConsumer, console: Console
) -> tuple[str, Counter[str]]:
    """Send, return, prepare, kill the leader, commit; return the killed node, and what came after the kill."""
    say(console, "A consumer returns one message, and gives up another one")
    for body in ("failed", "dead"):
        producer.send(_TOPIC, body.encode())
    for message in _received(consumer, 2):
        consumer.nack(message, -1 if message.body == b"dead" else _RETRY_LEVEL)
    say(console, "A delayed message, one for a time, and two transactions wait")
    producer.send(_TOPIC, b"delayed", delay_level=_DELAY_LEVEL)
    producer.send(_TOPIC, b"for a time", delay_s=_DELAY_S)
    paid = producer.transaction(_TOPIC, b"paid", group="payments")
    with paid, producer.transaction(_TOPIC, b"not paid", group="payments") as not_paid:
        victim = cluster.wait_for_leader()
        cluster.kill(victim)
        console.print(f"  [red]kill -9[/] of {victim}")
        not_paid.rollback()
    say(console, "One transaction was rolled back and the other one committed at the new leader")
    found: Counter[str] = Counter()
    began = time.monotonic()
    while found.total() < sum(_EXPECTED.values()):
        if time.monotonic() - began > _LIMIT_S:
            raise DemoError(f"not within {_LIMIT_S:.0f} s: all messages; received are {dict(found)}")
        for message in consumer.poll(timeout_s=1.0):
            found[message.body.decode()] += 1
            attempt = f", attempt {message.attempts}" if message.attempts > 1 else ""
            console.print(f"  {time.monotonic() - began:4.1f} s  {message.body.decode()}{attempt}")
    found.update(message.body.decode() for message in consumer.poll(timeout_s=_QUIET_S))
    return victim, found


def _received(consumer: BlockingConsumer, count: int) -> list[ReceivedMessage]:
    messages: list[ReceivedMessage] = []
    end = time.monotonic() + _LIMIT_S
    while len(messages) < count and time.monotonic() < end:
        messages += consumer.poll(timeout_s=1.0)
    if len(messages) < count:
        raise DemoError(f"{count} messages were sent, and {len(messages)} received within {_LIMIT_S:.0f} s")
    return messages


def _table(found: Counter[str]) -> Table:
    table = Table(title="How often each message came after the kill", title_justify="left")
    for name in ("message", "expected", "found"):
        table.add_column(name, justify="left" if name == "message" else "right")
    for body, count in (_EXPECTED | {"dead": 1}).items():
        where = " (dead letters)" if body == "dead" else ""
        table.add_row(f"{body}{where}", str(count), str(found[body]))
    return table
