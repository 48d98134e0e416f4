"""`dledger delay`: the delayed messages of brokers."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import typer

from cluster.cli.common import NameServers, help_of
from cluster.cli.each_broker import Choice, list_chosen
from cluster.cli.message_common import Broker, BrokerNames, Cluster
from cluster.cli.rows import AsJson
from store.model.topics import DELAY_LEVEL_NAMES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cluster.cli.targets import BrokerTarget
    from cluster.v1 import broker_pb2 as pb

delay_app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Show the messages that wait for their delivery. `dledger produce --delay` sends them.",
)
_MS_PER_S = 1_000


def list_delays(
    context: typer.Context,
    broker: Broker = "",
    name_servers: NameServers = "",
    broker_names: BrokerNames = None,
    cluster: Cluster = "",
    *,
    as_json: AsJson = False,
) -> None:
    """List the delay levels that have had messages.

    For each level: its delay, how many messages wait, when the next one is due, and how many were delivered.
    Level 0 has the messages that wait for a time of their own.

    Examples:
        dledger delay list
        dledger delay list --json | jq .waiting
    """
    from cluster.v1 import broker_pb2 as pb

    columns = {"level": "level", "delay": "delay", "broker": "broker", "waiting": "waiting"}
    list_chosen(
        context,
        Choice(broker, name_servers, broker_names, cluster),
        lambda calls: calls.ask(lambda stub: stub.DelayLevels, pb.DelayLevelsRequest()),
        _rows,
        {**columns, "next_due": "next due", "delivered": "delivered"},
        as_json=as_json,
        order=("level", "broker"),
    )


def _rows(target: BrokerTarget, found: pb.DelayLevelsResponse) -> Iterator[dict[str, Any]]:
    for each in found.levels:
        if each.max_offset:
            yield {
                "level": each.level,
                "delay": DELAY_LEVEL_NAMES[each.level - 1],
                "delay_ms": each.delay_ms,
                "broker": target.broker,
                "waiting": each.max_offset - each.delivered_offset,
                **_due(each.next_due_ms),
                "delivered": each.delivered_offset,
            }
    if found.timers_waiting:
        yield {
            "level": 0,
            "delay": "any",
            "delay_ms": None,
            "broker": target.broker,
            "waiting": found.timers_waiting,
            **_due(found.timers_next_due_ms),
            "delivered": None,
        }


def _due(time_ms: int) -> dict[str, Any]:
    if time_ms < 0:
        return {"next_due": None, "next_due_ms": None}
    time = datetime.fromtimestamp(time_ms / _MS_PER_S, UTC)
    return {"next_due": time.isoformat(" ", "milliseconds"), "next_due_ms": time_ms}


delay_app.callback()(lambda: None)
delay_app.command("list", help=help_of(list_delays))(list_delays)
