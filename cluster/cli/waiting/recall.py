"""`dledger recall`: take messages back that wait for their time."""

from __future__ import annotations

from typing import Annotated

import typer

from cluster.cli.common import EXIT_USAGE, NameServers, fail
from cluster.cli.message_common import Broker, targets_of

_Handles = Annotated[
    list[str], typer.Argument(metavar="HANDLE...", help="Recall handles, as `dledger produce` prints them.")
]


def recall(context: typer.Context, handles: _Handles, broker: Broker = "", name_servers: NameServers = "") -> None:
    """Take messages back that wait for their time.

    Prints one word for each: recalled; delivered, if it came too late; unknown, if the broker has no such message. The
    exit code is 1 unless all were recalled.

    Examples:
        dledger recall djEgcmVtaW5kZXJzIGIgMTc5...
    """
    from cluster.client.outcomes import RecallOutcome
    from cluster.client.producer.recalling import outcome_of
    from cluster.protocol.recall_handle import decode_recall_handle
    from cluster.v1 import broker_pb2 as pb
    from store.errors import IllegalRequest

    try:
        topics = [decode_recall_handle(handle).topic for handle in handles]
    except IllegalRequest as error:
        fail(str(error), EXIT_USAGE)
    late_count = 0
    with targets_of(context, broker, name_servers) as targets:
        for handle, topic in zip(handles, topics, strict=True):
            name = decode_recall_handle(handle).broker
            known = list(dict.fromkeys(target for target, _ in targets.queues(topic, is_write=True)))
            # One that was given by its address has no name here; it refuses handles of others.
            target = known[0] if len(known) == 1 else next((each for each in known if each.broker == name), None)
            if target is None:
                fail(f"topic {topic!r} has no broker {name!r}, which the handle names")
            request = pb.RecallMessageRequest(topic=topic, recall_handle=handle)
            outcome = outcome_of(target.calls.ask(lambda stub: stub.RecallMessage, request))
            late_count += outcome is not RecallOutcome.RECALLED
            typer.echo(outcome.value)
    if late_count:
        raise typer.Exit(1)
