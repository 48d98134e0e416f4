"""Common code of `dledger topic` and `dledger group`: calls to several brokers, and their answers.

With name servers a change goes to all brokers of a cluster, or to those that are named, one after the other: RocketMQ's
`updateTopic -c CLUSTER` and `-b BROKER`. One that fails hinders no other; the same command again does the rest, for no
change is made twice.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import typer
from rich.markup import escape

from cluster.cli.common import fail, notes
from cluster.cli.message_common import targets_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from cluster.cli.targets import BrokerTarget
    from cluster.client.broker_calls import BrokerCalls


Answer = TypeVar("Answer")


class Choice(NamedTuple):
    """Which brokers a person names: the options of these commands.

    Attributes:
        broker: addresses of one broker.
        name_servers: addresses of theirs.
        names: of brokers that name servers know; empty: all.
        cluster: of which the brokers are; empty: of any.
    """

    broker: str
    name_servers: str
    names: list[str] | None
    cluster: str


@contextmanager
def chosen_brokers(context: typer.Context, choice: Choice, *, is_change: bool) -> Iterator[list[BrokerTarget]]:
    """Return the brokers that are chosen; what is met becomes a message that says what to do next."""
    with targets_of(context, choice.broker, choice.name_servers) as targets:
        yield targets.chosen(choice.names or (), choice.cluster, is_change=is_change)


def change_chosen(context: typer.Context, choice: Choice, change: Callable[[BrokerCalls], str]) -> None:
    """Change something at each broker that is chosen; see `change_each`."""
    with chosen_brokers(context, choice, is_change=True) as targets:
        change_each(targets, change)


def change_each(
    targets: Sequence[BrokerTarget],
    change: Callable[[BrokerCalls], str],
    *,
    silent: Sequence[str] = (),
    remedy: str = "give the same command again",
) -> None:
    """Apply a change at each broker, and print the results; exit with 1 if one failed.

    A broker that does not have the topic or the group counts only when no other has it.

    Args:
        targets: the brokers.
        change: makes it, and returns what to print.
        silent: names of those among them that did not answer before, which are not asked again.
        remedy: what to do when some brokers have not done it.

    Raises:
        RequestFailed: no broker has the topic or the group; or the only broker has not done it.
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
        fail(f"{len(failed)} of {len(targets)} brokers failed ({names}): {remedy}, which does the rest")
    if len(missing) == len(targets):
        raise missing[-1]


def read_each(
    targets: Sequence[BrokerTarget], read: Callable[[BrokerCalls], Answer]
) -> tuple[list[tuple[BrokerTarget, Answer]], list[str]]:
    """Return each broker's answer, and the names of those that do not answer, whose failure is printed.

    Raises:
        RequestFailed: the only broker does not.
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


def end_if_silent(silent: Sequence[str]) -> None:
    """End with 1 if brokers did not answer, once what the others say is shown."""
    if silent:
        fail(f"{', '.join(silent)} did not answer, see above: what is there is not shown")
