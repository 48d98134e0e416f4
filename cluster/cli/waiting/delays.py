"""`dledger delay`: the delayed messages of brokers."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from cluster.cli.common import EXIT_USAGE, NameServers, fail, help_of
from cluster.cli.each_broker import Choice, change_chosen, list_chosen
from cluster.cli.message_common import Broker, BrokerNames, Cluster
from cluster.cli.rows import AsJson

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cluster.cli.targets import BrokerTarget
    from cluster.client.broker_calls import BrokerCalls
    from cluster.v1 import broker_pb2 as pb

delay_app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Show delayed messages, and set the delay levels. `dledger produce --delay` sends messages.",
)
_MS_PER_S = 1_000
# The largest unit first, in which a delay is shown.
_UNITS_MS: Final = {"d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1_000, "ms": 1}
_DURATION: Final = re.compile(r"([0-9]{1,9})(ms|[dhms])", re.ASCII)


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


def set_levels(
    context: typer.Context,
    table: Annotated[
        str, typer.Argument(metavar="DELAYS", help="Of level 1, 2, ... as RocketMQ's messageDelayLevel; or `default`.")
    ],
    broker: Broker = "",
    name_servers: NameServers = "",
    broker_names: BrokerNames = None,
    cluster: Cluster = "",
) -> None:
    """Set the delays of the delay levels.

    All nodes of a broker have the same. Messages that wait keep their times. Retries use the new delays, too.

    Examples:
        dledger delay levels "1s 5s 10s 30s 1m 2m 5m 10m 30m 1h 6h 1d"
        dledger delay levels default
    """
    from cluster.v1 import broker_pb2 as pb

    try:
        delays = [] if table.strip() == "default" else [_duration_ms(text) for text in table.split()]
    except ValueError as error:
        fail(f"DELAYS: expected numbers with s, m, h or d, as in '1s 5s 10m 2h', found {error}", EXIT_USAGE)
    request = pb.SetDelayLevelsRequest(delay_ms=delays)

    def change(calls: BrokerCalls) -> str:
        is_changed = calls.ask(lambda stub: stub.SetDelayLevels, request).is_changed
        return f"delay levels {'changed' if is_changed else 'unchanged'}"

    change_chosen(context, Choice(broker, name_servers, broker_names, cluster), change)


def _duration_ms(text: str) -> int:
    """Return the milliseconds of a text like 10s.

    Raises:
        ValueError: it is none.
    """
    match = _DURATION.fullmatch(text)
    if match is None:
        raise ValueError(repr(text))
    return int(match[1]) * _UNITS_MS[match[2]]


def _duration_text(time_ms: int) -> str:
    unit = next((unit for unit, size_ms in _UNITS_MS.items() if time_ms and not time_ms % size_ms), None)
    return "-" if unit is None else f"{time_ms // _UNITS_MS[unit]}{unit}"


def _rows(target: BrokerTarget, found: pb.DelayLevelsResponse) -> Iterator[dict[str, Any]]:
    for each in found.levels:
        if each.max_offset:
            yield {
                "level": each.level,
                "delay": _duration_text(each.delay_ms),
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
delay_app.command("levels", help=help_of(set_levels))(set_levels)
