"""The queues of the broker itself are shown with what they contain, and those of delayed messages with times."""

from __future__ import annotations

import json
from pathlib import Path

from typer.testing import CliRunner

from cluster.cli.app import app
from store.model.java_hash import java_hash
from store.model.message import Message
from store.model.topics import HALF_TOPIC, OP_HALF_TOPIC, SCHEDULE_TOPIC
from tests.support.message_stores import Clock, open_small

QUEUES = {
    (SCHEDULE_TOPIC, 2): "delayed, level 3, 10s",
    # RocketMQ can be configured with more levels.
    (SCHEDULE_TOPIC, 18): "delayed, level 19",
    (HALF_TOPIC, 0): "prepared transactions",
    (OP_HALF_TOPIC, 0): "ends of transactions",
    ("%RETRY%billing", 0): "returned by group billing",
    ("%DLQ%billing", 0): "dead letters of group billing",
    ("rmq_sys_wheel_timer", 0): "messages for a time",
    ("orders", 3): "",
}


def put_one_into_each(root: Path) -> None:
    store = open_small(root, clock=Clock(1_700_000_000.0))
    for topic, queue_id in QUEUES:
        properties = {"DELAY": str(queue_id + 1), "REAL_TOPIC": "orders"} if topic == SCHEDULE_TOPIC else {}
        store.messages.put(Message(topic, b"body", queue_id, properties))
    store.dispatch()
    store.close()


def rows(*arguments: object) -> list[dict[str, object]]:
    result = CliRunner().invoke(app, ["inspect", "queue", *map(str, arguments), "--format", "jsonl"])
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_each_queue_of_the_broker_is_shown_with_its_content(tmp_path: Path) -> None:
    put_one_into_each(tmp_path)

    assert {(row["topic"], row["queueId"]): row["content"] for row in rows(tmp_path)} == QUEUES


def test_units_of_delayed_messages_are_shown_with_the_time_of_delivery(tmp_path: Path) -> None:
    put_one_into_each(tmp_path)

    (unit,) = rows(tmp_path, "--topic", SCHEDULE_TOPIC, "--queue", 2)
    table = CliRunner().invoke(app, ["inspect", "queue", str(tmp_path), "--topic", SCHEDULE_TOPIC, "--queue", "2"])

    assert (unit["tagsCode"], unit["deliveryTime"]) == (1_700_000_010_000, "2023-11-14T22:13:30.000Z")
    assert "2023-11-14T22:13:30.000" in table.stdout
    (unit,) = rows(tmp_path, "--topic", "orders", "--queue", 3)
    assert "deliveryTime" not in unit


def test_a_timer_unit_of_rocketmq_is_no_damage_and_a_changed_time_is(tmp_path: Path) -> None:
    """RocketMQ writes the hash of the tags where ours has the time of delivery."""
    store = open_small(tmp_path, clock=Clock(1_700_000_000.0))
    properties = {"REAL_TOPIC": "orders", "REAL_QID": "0", "TIMER_DELIVER_MS": "1700000060000", "TAGS": "paid"}
    for _ in range(3):
        store.messages.put(Message("rmq_sys_wheel_timer", b"body", 0, properties))
    store.dispatch()
    store.close()
    (file,) = (tmp_path / "consumequeue" / "rmq_sys_wheel_timer" / "0").iterdir()
    units = file.read_bytes()

    def exit_code(code: int) -> int:
        file.write_bytes(units[:32] + code.to_bytes(8, "big", signed=True) + units[40:])
        return CliRunner().invoke(app, ["verify", str(tmp_path)]).exit_code

    assert int.from_bytes(units[32:40], "big") == 1_700_000_060_000
    assert [exit_code(code) for code in (1_700_000_060_000, java_hash("paid"), -5)] == [0, 0, 0]
    assert exit_code(1_700_000_060_001) == 1
