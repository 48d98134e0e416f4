"""Common code of the commands for messages: broker addresses, output of errors and messages."""

from __future__ import annotations

import base64
import json
import sys
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from cluster.cli.client_target import are_given, preferred_option
from cluster.cli.common import EXIT_USAGE, BodyFormat, fail
from cluster.cli.tls import security_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cluster.cli.targets import Targets
    from cluster.protocol.skipped_messages import SkippedMessages
    from commitlog.record.record import Record

DEFAULT_BROKER = "127.0.0.1:10911"
_TIMEOUT_S = 10.0
_MS_PER_S = 1000
_NEXT_STEPS = {
    "UNKNOWN_TOPIC": "`dledger topic list` shows the topics.",
    "UNKNOWN_GROUP": "`dledger group list` shows the groups.",
    "NOT_REACHED": "Is the broker running? Set its address with --broker or DLEDGER_BROKER, or its name servers with "
    "--name-servers or DLEDGER_NAME_SERVERS, or both by a context (`dledger context`). `dledger broker "
    "--standalone DIR` starts a broker.",
}

Broker = Annotated[
    str,
    typer.Option(
        "--broker",
        "-b",
        envvar="DLEDGER_BROKER",
        metavar="HOST:PORT,...",
        help="Address of the broker, or of one or more of its nodes.",
        show_default=DEFAULT_BROKER,
    ),
]
BrokerNames = Annotated[
    list[str] | None,
    typer.Option("--broker-name", metavar="NAME", help="With --name-servers: only this broker; may be repeated."),
]
Cluster = Annotated[
    str, typer.Option("--cluster", "-c", metavar="NAME", help="With --name-servers: only the brokers of this cluster.")
]
Topic = Annotated[str, typer.Argument(metavar="TOPIC", help="The topic.")]


FormatOption = Annotated[
    BodyFormat, typer.Option("--format", help="text: the bodies, one a line. jsonl: one JSON object a message.")
]


@contextmanager
def targets_of(context: typer.Context, broker: str, name_servers: str) -> Iterator[Targets]:
    """Yield the brokers of a command, and turn exceptions into an error message with advice.

    `cluster.cli.client_target` decides between `broker` and `name_servers`; at equal precedence the broker is used.
    """
    from cluster.cli.targets import Targets

    if are_given(context, "broker", "name_servers"):
        fail("--broker and --name-servers: expected only one of the two", EXIT_USAGE)
    if not (broker or name_servers):
        broker = DEFAULT_BROKER
    elif preferred_option(context, "broker", "name_servers") == "broker":
        name_servers = ""
    else:
        broker = ""
    security = security_of(context)
    with _reported_failures(), Targets(broker, name_servers, _TIMEOUT_S, security) as targets:
        yield targets


@contextmanager
def _reported_failures() -> Iterator[None]:
    from cluster.protocol.errors import RequestFailed
    from store.errors import StoreError

    try:
        yield
    except ValueError as error:
        fail(str(error), EXIT_USAGE)
    except RequestFailed as failure:
        fail(f"{failure.message}. {_NEXT_STEPS.get(failure.name, '')}".strip())
    except StoreError as error:
        fail(str(error))


def print_skipped(skipped: SkippedMessages) -> None:
    """Print on standard error which messages cannot be read."""
    sys.stderr.write(f"dledger: {skipped}\n")


def fail_if_skipped(count: int) -> None:
    """End with exit code 1 if messages could not be read; each was reported before."""
    if count:
        what = "1 message is" if count == 1 else f"{count} messages are"
        fail(f"{what} unreadable here, see above; `dledger verify` shows the damage; another node may have a copy")


def print_message(record: Record, style: BodyFormat) -> None:
    """Print one message; in JSON the body is `body`, or `bodyBase64` if it is not UTF-8."""
    from cluster.cli.message_rows import row_of
    from commitlog.record.compression import uncompressed_body

    body = uncompressed_body(record.sys_flag, record.body)
    if style is BodyFormat.TEXT:
        sys.stdout.buffer.write(body + b"\n")
        return
    row = row_of(record, tags_code=None, is_indexed=True)
    for name in ("inConsumeQueue", "indexed", "tagsCode", "body"):
        del row[name]
    try:
        row["body"] = body.decode()
    except UnicodeDecodeError:
        row["bodyBase64"] = base64.b64encode(body).decode()
    sys.stdout.write(json.dumps(row, ensure_ascii=False) + "\n")


def moment(timestamp_ms: int) -> str | None:
    """Format a time in UTC; None if there is none."""
    if timestamp_ms < 0:
        return None
    return datetime.fromtimestamp(timestamp_ms / _MS_PER_S, UTC).strftime("%Y-%m-%d %H:%M:%S")
