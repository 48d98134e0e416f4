"""`dledger top`: a live view of nodes, rates, disks, and the lag of followers and of consumer groups."""

from __future__ import annotations

import json
import os
import select
import sys
import termios
import time
import tty
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Final

import typer

from cluster.cli.client_target import nodes_asked
from cluster.cli.common import DEFAULT_ENDPOINTS, DEFAULT_GROUP, EXIT_USAGE, Endpoints, Group, NameServers, fail, output

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rich.console import RenderableType

    from cluster.cli.nodes.top_samples import Sample, Sampler

_INTERVAL_MIN_S: Final = 0.2
_INTERVAL_MAX_S: Final = 60.0
# The polling interval for keys and the terminal's size.
_KEYS_S: Final = 0.1
_KEYS_TEXT: Final = "q quit  space pause  +/- interval  j/k scroll"


def top(
    context: typer.Context,
    endpoints: Endpoints = DEFAULT_ENDPOINTS,
    group: Group = DEFAULT_GROUP,
    name_servers: NameServers = "",
    interval: Annotated[
        float,
        typer.Option(
            "--interval",
            "-i",
            min=_INTERVAL_MIN_S,
            max=_INTERVAL_MAX_S,
            metavar="SECONDS",
            help="Refresh interval.",
        ),
    ] = 2.0,
    timeout: Annotated[
        float, typer.Option("--timeout", min=0.05, metavar="SECONDS", help="How long to wait for each node.")
    ] = 1.0,
    *,
    once: Annotated[bool, typer.Option("--once", help="Print one view after one interval, and exit.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print a JSON object each interval instead, until Ctrl-C; one with --once.")
    ] = False,
) -> None:
    """Show nodes, rates, lag and disks, live.

    For each group: entries appended and read per second; for each node its role, term, last index, lag in entries, and
    disk usage. With brokers also the lag of each consumer group; if there are many, each refresh queries eight pairs of
    group and topic. A dead node remains in the view and is marked.

    Keys: q quits, space pauses, + and - change the interval, j and k (or the arrows) scroll.

    If standard output is not a terminal, one view is printed, as with --once.

    Examples:
        dledger top
        dledger top --context prod --interval 5
        dledger top --once
        dledger top --json --once | jq '.groups[].appends_per_s'
    """
    from cluster.cli.nodes.top_samples import Sampler

    asked = nodes_asked(context, endpoints, name_servers, group)
    try:
        sampler = Sampler(asked, timeout)
        if as_json:
            _print_json(sampler, interval, is_once=once)
        elif once or not (sys.stdout.isatty() and sys.stdin.isatty()):
            _print_once(sampler, interval)
        else:
            _Screen(sampler, interval).run()
    except ValueError as error:
        fail(str(error), EXIT_USAGE)
    except KeyboardInterrupt:
        raise typer.Exit from None


def _print_json(sampler: Sampler, interval_s: float, *, is_once: bool) -> None:
    sampler.take()
    while True:
        time.sleep(interval_s)
        typer.echo(json.dumps(asdict(sampler.take())))
        sys.stdout.flush()
        if is_once:
            return


def _print_once(sampler: Sampler, interval_s: float) -> None:
    from cluster.cli.nodes.top_view import tables

    sampler.take()
    time.sleep(interval_s)
    output.print(tables(sampler.take(), output.width))


class _Screen:
    """The live view. A separate thread takes the samples, so that the view reacts to keys while a node is slow."""

    def __init__(self, sampler: Sampler, interval_s: float) -> None:
        self._sampler = sampler
        self._interval_s = interval_s
        self._sample: Sample | None = None
        self._is_paused = False
        self._first = 0

    def run(self) -> None:
        """Show samples until the user quits."""
        from rich.live import Live

        pool = ThreadPoolExecutor(1, "top")
        taking: Future[Sample] = pool.submit(self._sampler.take)
        next_s = 0.0
        size = output.size
        try:
            with _keys() as keys, Live(self._view(), console=output, screen=True, auto_refresh=False) as live:
                while True:
                    is_changed = size != output.size
                    size = output.size
                    for key in keys():
                        if key in ("q", "Q", "\x1b", "\x03"):
                            return
                        is_changed |= self._press(key)
                    if taking.done() and next_s == 0.0:
                        self._sample, next_s = taking.result(), time.monotonic() + self._interval_s
                        is_changed = True
                    elif next_s and not self._is_paused and time.monotonic() >= next_s:
                        taking, next_s = pool.submit(self._sampler.take), 0.0
                    if is_changed:
                        live.update(self._view(), refresh=True)
        finally:
            pool.shutdown(wait=False, cancel_futures=True)

    def _press(self, key: str) -> bool:
        """Handle a key; return whether it is a known key."""
        match key:
            case " ":
                self._is_paused = not self._is_paused
            case "+" | "=":
                self._interval_s = min(self._interval_s * 2, _INTERVAL_MAX_S)
            case "-":
                self._interval_s = max(self._interval_s / 2, _INTERVAL_MIN_S)
            case "j" | "\x1b[B":
                self._first += 1
            case "k" | "\x1b[A":
                self._first = max(self._first - 1, 0)
            case _:
                return False
        return True

    def _view(self) -> RenderableType:
        from cluster.cli.nodes.top_samples import Sample
        from cluster.cli.nodes.top_view import Page

        state = "paused" if self._is_paused else f"every {self._interval_s:g} s"
        waiting = "" if self._sample is not None else ", waiting for the nodes"
        sample = self._sample or Sample((), ())
        page = Page(output, sample, self._first, f" {state}{waiting}  |  {_KEYS_TEXT}")
        self._first = page.first
        return page.renderable()


@contextmanager
def _keys() -> Iterator[Callable[[], list[str]]]:
    """Read keys without echo; restore the terminal afterwards."""
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)

    def read() -> list[str]:
        """Return the pressed keys; wait one polling interval for the first."""
        if not select.select([descriptor], [], [], _KEYS_S)[0]:
            return []
        text = os.read(descriptor, 64).decode(errors="replace")
        # A read from a closed terminal returns no bytes.
        return [text] if text.startswith("\x1b[") else list(text) or ["q"]

    try:
        tty.setcbreak(descriptor)
        yield read
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
