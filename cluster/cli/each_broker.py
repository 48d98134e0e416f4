"""Common code of commands for topics, groups, users and policies: calls to several brokers, and their answers.

With name servers a change is applied to all brokers of a cluster, or to chosen ones, one after another, as by
RocketMQ's `updateTopic -c CLUSTER` and `-b BROKER`. A failure at one broker does not affect the others; changes are
idempotent, so the command can be repeated.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import typer
from rich.markup import escape

from cluster.cli.common import fail, notes
from cluster.cli.message_common import targets_of
from cluster.cli.rows import print_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from cluster.cli.rows import Row
    from cluster.cli.targets import BrokerTarget
    from cluster.client.broker_calls import BrokerCalls


Answer = TypeVar("Answer")


class Choice(NamedTuple):
    """The brokers chosen by the options of these commands.

    Attributes:
        broker: addresses of one broker.
        name_servers: addresses of name servers.
        names: names of registered brokers; empty: all.
        cluster: their cluster; empty: any.
    """

    broker: str
    name_servers: str
    names: list[str] | None
    cluster: str


@contextmanager
def chosen_brokers(context: typer.Context, choice: Choice, *, is_change: bool) -> Iterator[list[BrokerTarget]]:
    """Yield the chosen brokers, and turn exceptions into an error message with advice."""
    with targets_of(context, choice.broker, choice.name_servers) as targets:
        yield targets.chosen(choice.names or (), choice.cluster, is_change=is_change)


def change_chosen(context: typer.Context, choice: Choice, change: Callable[[BrokerCalls], str]) -> None:
    """Apply a change at each chosen broker; see `change_each`."""
    with chosen_brokers(context, choice, is_change=True) as targets:
        change_each(targets, change)


def change_each(
    targets: Sequence[BrokerTarget],
    change: Callable[[BrokerCalls], str],
    *,
    silent: Sequence[str] = (),
    remedy: str = "repeat the same command",
) -> None:
    """Apply a change at each broker, and print the results; exit with 1 if one failed.

    A broker without the topic or the group is an error only if no broker has it.

    Args:
        targets: the brokers.
        change: applies the change, and returns the text to print.
        silent: names of brokers that did not answer before, which are not called again.
        remedy: advice if some brokers failed.

    Raises:
        RequestFailed: no broker has the topic or the group; or the only broker failed.
    """
    from cluster.protocol.errors import Reason, RequestFailed

    missing: list[RequestFailed] = []
    failed: list[str] = [*silent]
    for target in targets:
        if target.broker in silent:
            continue
        prefix = f"{escape(target.broker)}: " if target.broker else ""
        try:
            notes.print(f"{prefix}{escape(change(target.calls))}", highlight=False, soft_wrap=True)
        except RequestFailed as failure:
            if len(targets) == 1:
                raise
            notes.print(f"{prefix}{escape(failure.message)}", highlight=False, soft_wrap=True)
            if failure.reason in (Reason.UNKNOWN_TOPIC, Reason.UNKNOWN_GROUP):
                missing.append(failure)
            else:
                failed.append(target.broker)
    if failed:
        names = ", ".join(failed)
        fail(f"{len(failed)} of {len(targets)} brokers failed ({names}): {remedy} to complete the change")
    if len(missing) == len(targets):
        raise missing[-1]


def read_each(
    targets: Sequence[BrokerTarget], read: Callable[[BrokerCalls], Answer]
) -> tuple[list[tuple[BrokerTarget, Answer]], list[str]]:
    """Return each broker's answer, and the names of brokers without an answer, whose failures are printed.

    Raises:
        RequestFailed: the only broker does not answer.
    """
    from cluster.protocol.errors import RequestFailed

    answers: list[tuple[BrokerTarget, Answer]] = []
    silent: list[str] = []
    for target in targets:
        try:
            answers.append((target, read(target.calls)))
        except RequestFailed as failure:
            if len(targets) == 1:
                raise
            notes.print(f"{escape(target.broker)}: {escape(failure.message)}", highlight=False, soft_wrap=True)
            silent.append(target.broker)
    return answers, silent


def list_chosen(
    context: typer.Context,
    choice: Choice,
    read: Callable[[BrokerCalls], Answer],
    rows_of: Callable[[BrokerTarget, Answer], Iterable[Row]],
    columns: Mapping[str, str],
    *,
    as_json: bool,
    order: Sequence[str] = (),
) -> None:
    """Print rows of each chosen broker; exit with 1 if one did not answer.

    Args:
        context: of the command.
        choice: the brokers.
        read: asks one of them.
        rows_of: makes rows of its answer.
        columns: as for `print_rows`; `broker` is left out of a table where brokers are not known by name.
        as_json: print JSON.
        order: names of texts by which rows are ordered; without: by broker, as answered.
    """
    with chosen_brokers(context, choice, is_change=False) as targets:
        answers, silent = read_each(targets, read)
    rows = [row for target, answer in answers for row in rows_of(target, answer)]
    if order:
        rows.sort(key=lambda row: [row[name] for name in order])
    if not any(target.broker for target in targets):
        columns = {name: heading for name, heading in columns.items() if name != "broker"}
    print_rows(columns, rows, as_json=as_json)
    end_if_silent(silent)


def end_if_silent(silent: Sequence[str]) -> None:
    """End with exit code 1 if brokers did not answer; to be called after the other answers were printed."""
    if silent:
        fail(f"{', '.join(silent)} did not answer, see above: the output is incomplete")
