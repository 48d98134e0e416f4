"""`dledger brokers`: the brokers registered with name servers, and maintenance mode for a broker."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer
from rich import box
from rich.markup import escape
from rich.table import Table

from cluster.cli.common import EXIT_USAGE, fail, help_of, notes
from cluster.cli.rows import show_table
from cluster.cli.tls import security_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from cluster.v1.nameserver_pb2 import RegisteredBroker
    from cluster.v1.nameserver_pb2_grpc import NameServerStub

Answer = TypeVar("Answer")

_DEFAULT = "127.0.0.1:9876"
_MS_PER_S = 1000
_USUAL_CLUSTER = "DefaultCluster"

NameServers = Annotated[
    str,
    typer.Option(
        "--name-servers",
        "-n",
        envvar="DLEDGER_NAME_SERVERS",
        metavar="HOST:PORT,...",
        help="All name servers; each is queried separately.",
    ),
]
BrokerName = Annotated[str, typer.Argument(metavar="BROKER", help="The broker: the name of its Raft group.")]

brokers_app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Show the brokers registered with name servers; drain one.",
    epilog="\b\nMaintenance of a broker:\n"
    "    dledger brokers drain b0        clients stop sending messages to it, but still read\n"
    "    dledger brokers restore b0      clients send messages to it again",
)


def list_brokers(
    context: typer.Context,
    name_servers: NameServers = _DEFAULT,
    *,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object for each name server and broker.")
    ] = False,
) -> None:
    """Show the brokers that each name server knows.

    The exit code is 1 if a name server does not answer, or the name servers do not agree.

    Examples:
        dledger brokers list --name-servers 10.0.0.5:9876,10.0.0.6:9876
        dledger brokers list --json | jq .leader
    """
    from cluster.client import name_server_calls

    answers = _ask_all(context, name_servers, name_server_calls.list_brokers)
    found = {address: answer.brokers for address, answer in answers.items() if not isinstance(answer, str)}
    if as_json:
        for address, brokers in found.items():
            for broker in brokers:
                typer.echo(json.dumps({"name_server": address, **_as_object(broker)}))
    elif found:
        show_table(_table({address: list(brokers) for address, brokers in found.items()}))
    _fail_on_silence(answers)
    views = {tuple((each.broker, each.term, each.is_writable) for each in brokers) for brokers in found.values()}
    if len(views) > 1:
        fail("the name servers do not agree; a recent change reaches all of them within 30 s")


def drain(context: typer.Context, broker: BrokerName, name_servers: NameServers = _DEFAULT) -> None:
    """Stop clients from sending messages to a broker.

    Clients still read from it. The setting outlasts restarts of the broker, but not those of a name server. `restore`
    ends it.

    Examples:
        dledger brokers drain broker-a
        dledger brokers list                  puts: no
    """
    _set_writable(context, broker, name_servers, is_writable=False)


def restore(context: typer.Context, broker: BrokerName, name_servers: NameServers = _DEFAULT) -> None:
    """Make a drained broker accept messages again.

    Examples:
        dledger brokers restore broker-a
    """
    _set_writable(context, broker, name_servers, is_writable=True)


def _set_writable(context: typer.Context, broker: str, name_servers: str, *, is_writable: bool) -> None:
    from cluster.client.name_server_calls import TIMEOUT_S
    from cluster.protocol.wire.answers import check_answer
    from cluster.v1.nameserver_pb2 import SetWritableRequest

    def ask(stub: NameServerStub) -> int:
        request = SetWritableRequest(broker=broker, is_writable=is_writable)
        response = stub.SetWritable(request, timeout=TIMEOUT_S)
        check_answer(response.answer)
        return response.topics_count

    answers = _ask_all(context, name_servers, ask)
    for address, answer in answers.items():
        if not isinstance(answer, str):
            notes.print(f"{address}: clients may write to {answer} topics of {escape(broker)}", highlight=False)
    _fail_on_silence(answers)


def _ask_all(
    context: typer.Context, name_servers: str, ask: Callable[[NameServerStub], Answer]
) -> dict[str, Answer | str]:
    """Ask each name server; return its answer, or the text of its failure."""
    from cluster.client.name_server_calls import ask_each
    from dledger.client.endpoints import parse_endpoints

    try:
        addresses = parse_endpoints(name_servers)
    except ValueError as error:
        fail(f"--name-servers: {error}", EXIT_USAGE)
    return ask_each(addresses, ask, security=security_of(context))


def _fail_on_silence(answers: dict[str, Answer | str]) -> None:
    """End with an error if a name server failed."""
    failures = [answer for answer in answers.values() if isinstance(answer, str)]
    if failures:
        fail("; ".join(failures) + ". Set all name servers with --name-servers or DLEDGER_NAME_SERVERS")


def _as_object(broker: RegisteredBroker) -> dict[str, object]:
    return {
        "broker": broker.broker,
        "cluster": broker.cluster,
        "term": broker.term,
        "leader": broker.leader_id,
        "nodes": {node.id: node.address for node in broker.nodes},
        "topics": broker.topics_count,
        "silent_ms": broker.silent_ms,
        "is_writable": broker.is_writable,
    }


def _table(found: dict[str, list[RegisteredBroker]]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    # The cluster is shown only if it is not the default: most installations have one cluster, and 80 columns are few.
    has_clusters = any(each.cluster != _USUAL_CLUSTER for brokers in found.values() for each in brokers)
    for name in ("name server", "broker", *(("cluster",) if has_clusters else ()), "leader"):
        table.add_column(name, no_wrap=True)
    for name in ("term", "topics", "seen"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("puts", no_wrap=True)
    for address, brokers in found.items():
        for each in brokers:
            leader = next((node.address for node in each.nodes if node.id == each.leader_id), "")
            table.add_row(
                address,
                escape(each.broker),
                *((escape(each.cluster),) if has_clusters else ()),
                escape(leader if each.leader_id == each.broker else f"{each.leader_id} {leader}"),
                str(each.term),
                str(each.topics_count),
                f"{each.silent_ms // _MS_PER_S} s ago",
                "yes" if each.is_writable else "drained",
            )
        if not brokers:
            table.add_row(address, "none")
    return table


for _name, _command in (("list", list_brokers), ("drain", drain), ("restore", restore)):
    brokers_app.command(_name, help=help_of(_command))(_command)
