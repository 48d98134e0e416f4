"""`dledger watch`: elections, votes and stalls of a group as they happen, one line each."""

from __future__ import annotations

import asyncio
import json
import sys
from contextlib import aclosing
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Final

import typer

from cluster.cli.client_target import LogNodes, log_nodes
from cluster.cli.common import DEFAULT_ENDPOINTS, DEFAULT_GROUP, Endpoints, Group, fail, print_note, reported_errors
from dledger.client.endpoints import parse_endpoints

if TYPE_CHECKING:
    from collections.abc import Callable

    from dledger.client.aio.watching import WatchBroken
    from dledger.v1.watch_pb2 import WatchEvent, WatchResponse

    Answer = WatchResponse | WatchBroken

# Answers that wait to be printed; a terminal that is slow stops the streams, and the nodes count what it misses.
_WAITING_MAX: Final = 256


def watch(
    context: typer.Context,
    endpoints: Endpoints = DEFAULT_ENDPOINTS,
    group: Group = DEFAULT_GROUP,
    interval: Annotated[
        float, typer.Option("--interval", "-i", min=0.1, max=60.0, metavar="SECONDS", help="Between two --states.")
    ] = 1.0,
    count: Annotated[
        int, typer.Option("--count", "-n", min=0, metavar="N", help="Exit after N lines; 0: until Ctrl-C.")
    ] = 0,
    *,
    has_history: Annotated[
        bool, typer.Option("--history", help="Begin with the last events that each node still has.")
    ] = False,
    has_states: Annotated[bool, typer.Option("--states", help="Also print each node's state when it changes.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object a line.")] = False,
) -> None:
    """Show elections, votes and stalls as they happen.

    Prints one line for each event of the nodes at --endpoints: pre-votes, candidates, votes, leaders and why they step
    down, transfers, members, followers that are lost or stall. Each node shows what it knows itself. A node that does
    not answer is asked again every second; its events of that time are printed when it answers.

    Examples:
        dledger watch
        dledger watch --history --count 20
        dledger watch --json | jq 'select(.kind == "elected")'
    """
    nodes = log_nodes(context, endpoints, group)
    show = _json_lines if as_json else _text_lines
    with reported_errors(nodes.endpoints):
        addresses = parse_endpoints(nodes.endpoints)
        printer = _Printer(show, count, has_states=has_states, as_json=as_json)
        try:
            asyncio.run(_watch_all(nodes, addresses, printer, int(interval * 1_000), has_history=has_history))
        except KeyboardInterrupt:
            raise typer.Exit from None
    if printer.is_refused:
        fail("no node can be watched")


async def _watch_all(
    nodes: LogNodes, addresses: tuple[str, ...], printer: _Printer, interval_ms: int, *, has_history: bool
) -> None:
    """Print what all nodes send, until enough is printed or all refuse."""
    from dledger.client.aio.host import secured_host
    from dledger.client.aio.watching import watch_node

    host = secured_host(nodes.security)
    answers: asyncio.Queue[tuple[str, Answer | None]] = asyncio.Queue(_WAITING_MAX)

    async def feed(address: str) -> None:
        stream = watch_node(address, group=nodes.group, host=host, interval_ms=interval_ms, has_history=has_history)
        async with aclosing(stream):
            async for answer in stream:
                await answers.put((address, answer))
        await answers.put((address, None))

    feeding = [asyncio.create_task(feed(address)) for address in addresses]
    open_count = len(feeding)
    try:
        while open_count and not printer.is_done:
            address, answer = await answers.get()
            if answer is None:
                open_count -= 1
            else:
                printer.take(address, answer)
        printer.is_refused = not printer.is_done
    finally:
        for task in feeding:
            task.cancel()
        await asyncio.gather(*feeding, return_exceptions=True)


class _Printer:
    """Prints answers as lines, up to a number of them; 0: without end."""

    def __init__(
        self, show: Callable[[str, WatchResponse, bool], list[str]], count: int, *, has_states: bool, as_json: bool
    ) -> None:
        self._show = show
        self._left = count or None
        self._has_states = has_states
        self._as_json = as_json
        # By address: the last failure, which is printed once, however often it repeats.
        self._broken: dict[str, str] = {}
        self.is_refused = False

    @property
    def is_done(self) -> bool:
        """Whether enough is printed."""
        return self._left == 0

    def take(self, address: str, answer: Answer) -> None:
        """Print an answer of the node at `address`."""
        from dledger.client.aio.watching import WatchBroken

        if isinstance(answer, WatchBroken):
            if self._broken.get(address) != answer.message:
                self._broken[address] = answer.message
                print_note(answer.message)
            return
        if self._broken.pop(address, None) is not None:
            print_note(f"{address} answers")
        for line in self._show(address, answer, self._has_states):
            if not self.is_done:
                typer.echo(line)
                self._left = None if self._left is None else self._left - 1
        sys.stdout.flush()


def _text_lines(_: str, response: WatchResponse, has_states: bool) -> list[str]:
    from dledger.client.watch_text import event_text

    state = response.state
    lines = [f"{_time_of(event)}  {state.self_id}  {event_text(event)}" for event in response.events]
    if has_states:
        shown = {name: getattr(state, name) for name in _INDEXES if state.HasField(name)}
        indexes = "  ".join(f"{name.removesuffix('_index')} {index}" for name, index in shown.items())
        time = _time_text(response.wall_ms)
        lines.append(f"{time}  {state.self_id}  {state.role.lower()} in term {state.term}  {indexes}")
    return lines


_INDEXES: Final = ("last_index", "durable_index", "commit_index", "applied_index", "snapshot_index")


def _json_lines(address: str, response: WatchResponse, has_states: bool) -> list[str]:
    from dledger.client.watch_text import kind_name, plain_fields

    node = {"endpoint": address, "node": response.state.self_id}
    rows = [{**node, **plain_fields(event), "kind": kind_name(event)} for event in response.events]
    if has_states:
        rows.append({**node, "kind": "state", "wall_ms": response.wall_ms, **plain_fields(response.state)})
    return [json.dumps(row) for row in rows]


def _time_of(event: WatchEvent) -> str:
    return _time_text(event.wall_ms) if event.HasField("wall_ms") else " " * len(_time_text(0))


def _time_text(wall_ms: int) -> str:
    """Return the local time of day with milliseconds, as the node's clock has it."""
    return datetime.fromtimestamp(wall_ms / 1_000).astimezone().strftime("%H:%M:%S.%f")[:-3]
