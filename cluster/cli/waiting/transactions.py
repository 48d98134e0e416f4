"""`dledger transaction`: the open transactions of brokers."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cluster.cli.common import NameServers, help_of
from cluster.cli.each_broker import Choice, list_chosen
from cluster.cli.message_common import Broker, BrokerNames, Cluster
from cluster.cli.rows import AsJson

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from cluster.cli.targets import BrokerTarget
    from cluster.v1 import broker_pb2 as pb

transaction_app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Show the transactions that producers have not ended.",
)
_MS_PER_S = 1_000
LIMIT_MAX = 1_000


def list_transactions(
    context: typer.Context,
    broker: Broker = "",
    name_servers: NameServers = "",
    broker_names: BrokerNames = None,
    cluster: Cluster = "",
    *,
    limit: Annotated[
        int, typer.Option(min=1, max=LIMIT_MAX, help="Transactions of each broker, the oldest first.")
    ] = 100,
    as_json: AsJson = False,
) -> None:
    """List the open transactions.

    For each: the half message, its topic and producer group, how often producers were asked about it, and when next.

    Examples:
        dledger transaction list
        dledger transaction list --limit 10 --json | jq .transaction_id
    """
    from cluster.v1 import broker_pb2 as pb

    request = pb.ListTransactionsRequest(max_transactions=limit)
    columns = {"half": "half", "broker": "broker", "topic": "topic", "group": "group", "transaction_id": "id"}
    list_chosen(
        context,
        Choice(broker, name_servers, broker_names, cluster),
        lambda calls: calls.ask(lambda stub: stub.ListTransactions, request).transactions,
        _rows,
        {**columns, "begun": "begun", "checks": "checks", "next_check": "next check"},
        as_json=as_json,
        order=("broker", "half"),
    )


def _rows(target: BrokerTarget, transactions: Iterable[pb.Transaction]) -> Iterator[dict[str, Any]]:
    for each in transactions:
        yield {
            "half": each.half_offset,
            "physical_offset": each.physical_offset,
            "broker": target.broker,
            "topic": each.topic,
            "group": each.producer_group,
            "transaction_id": each.transaction_id,
            "begun": _time(each.store_timestamp),
            "begun_ms": each.store_timestamp,
            "checks": each.checks,
            "next_check": _time(each.next_check_ms),
            "next_check_ms": each.next_check_ms,
        }


def _time(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / _MS_PER_S, UTC).isoformat(" ", "milliseconds")


transaction_app.callback()(lambda: None)
transaction_app.command("list", help=help_of(list_transactions))(list_transactions)
