"""Simulated client processes: tasks that append and read with the production client library."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from random import Random
from typing import TYPE_CHECKING, cast

from dledger.client.administration import AdminFailed
from dledger.client.aio.admin import AsyncAdminClient
from dledger.client.aio.client import AsyncLogClient
from dledger.client.aio.host import ClientHost
from dledger.client.outcomes import AppendUnknown, NotAppended, ReadFailed
from dledger.errors import ResponseCode
from dledger.testing.clock import SimClock
from dledger.testing.faults import Violation
from dledger.testing.shell.loop.sim_loop import SimLoop
from dledger.testing.shell.options import CLIENT_PORT, PEER_PORT, ShellFault
from dledger.testing.shell.rpc.client import RpcChannel

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from typing import Any

    import grpc.aio

    from dledger.client.reading import ReadMode
    from dledger.testing.shell.world import ShellWorld

_TRUE_PPM = 1_000_000
_DEADLINE_S = 3.0
_ANSWER_TIMEOUT_S = 1.5
_GIVE_UP_MAX_S = 0.2
_READ_BACK_MAX = 30
_FOLLOWED_MAX = 20
_FOLLOW_MAX_S = 1.5
_RESTORE_S = 15.0


class ClientProcess:
    """One client with its tasks; it runs until it is stopped.

    Args:
        world: the shared state of the run.
        client_id: of its machine.

    Attributes:
        is_stopping: its tasks begin no further calls.
        appended_count: calls that ended `Appended`.
    """

    def __init__(self, world: ShellWorld, client_id: str) -> None:
        self.client_id = client_id
        self.is_stopping = False
        self.appended_count = 0
        self._world = world
        self._random = Random(f"{world.options.seed}/client/{client_id}")
        self.loop = SimLoop(  # type: ignore[abstract]  # (a run uses only the implemented part of asyncio)
            world.scheduler,
            SimClock(world.scheduler, _TRUE_PPM),
            world.network,
            client_id,
            random=self._random,
            turn_max_us=world.options.turn_max_us,
            on_error=self._on_error,
            is_crashed=lambda: False,
            after_step=self._after_step,
        )
        self._host = ClientHost(
            self.loop.now_s,
            Random(f"{world.options.seed}/library/{client_id}"),
            lambda address: cast("grpc.aio.Channel", RpcChannel(self.loop, address)),
        )
        self._endpoints = [f"{node_id}:{CLIENT_PORT}" for node_id in world.options.node_ids]
        self._replacing: asyncio.Task[None] | None = None
        self._main = self.loop.run(self._work())

    @property
    def has_ended(self) -> bool:
        """Whether all tasks are done and the client is closed."""
        return self._main.done()

    async def _work(self) -> None:
        async with AsyncLogClient(
            self._endpoints,
            group="shell",
            deadline_s=_DEADLINE_S,
            answer_timeout_s=_ANSWER_TIMEOUT_S,
            host=self._host,
        ) as log:
            await asyncio.gather(*(self._one_after_the_other(log) for _ in range(self._world.options.tasks_count)))

    async def _one_after_the_other(self, log: AsyncLogClient) -> None:
        options, random = self._world.options, self._random
        while not self.is_stopping:
            await asyncio.sleep(random.random() * options.think_max_us / 1e6)
            call = self._read(log) if random.random() < options.read_share else self._append(log)
            await (self._give_up(call) if random.random() < options.cancel_rate else call)

    async def _give_up(self, call: Coroutine[Any, Any, None]) -> None:
        """Make a call, and cancel it after a while if it has not ended."""
        task = self.loop.create_task(call)
        done, _ = await asyncio.wait([task], timeout=self._random.random() * _GIVE_UP_MAX_S)
        if done:
            task.result()
            return
        self._world.tally.add(ShellFault.CANCELLED)
        task.cancel()
        await asyncio.wait([task])
        if not task.cancelled():
            task.result()

    # ---------------------------------------------------------------------------------------------- calls

    async def _append(self, log: AsyncLogClient) -> None:
        options, random, history = self._world.options, self._random, self._world.history
        count = random.randint(1, options.batch_max)
        append = history.begin([random.randint(8, options.body_size_max_bytes) for _ in range(count)])
        try:
            places = [await log.append(append.bodies[0])] if count == 1 else await log.append_many(append.bodies)
        except NotAppended:
            history.refused(append)
        except (AppendUnknown, asyncio.CancelledError) as error:
            history.unknown(append)
            if isinstance(error, asyncio.CancelledError):
                raise
        else:
            self.appended_count += 1
            history.appended(append, places)

    async def _read(self, log: AsyncLogClient) -> None:
        options, random, history = self._world.options, self._random, self._world.history
        mode: ReadMode = "lease" if random.random() < options.lease_share else "linearizable"
        kind = random.random()
        floor = history.floor
        begin = max(0, floor + 1 - random.randrange(_READ_BACK_MAX))
        is_follow, is_local = kind < 0.15, 0.15 <= kind < 0.3
        next_index = begin
        entries = log.read(
            begin,
            follow=is_follow,
            max_entries=random.randint(1, _FOLLOWED_MAX) if is_follow else 0,
            mode="local" if is_local else mode,
            prefer_followers=0.3 <= kind < 0.5,
            include_internal=True,
        )
        try:
            # A reader that follows the log would wait forever while no client appends.
            async with asyncio.timeout(_FOLLOW_MAX_S if is_follow else None), aclosing(cast("Any", entries)):
                async for entry in entries:
                    history.delivered(entry, next_index)
                    next_index += 1
        except ReadFailed as error:
            # A node with a failed disk answers with the same code.
            if error.code == ResponseCode.DISK_ERROR and "sent damaged bytes" in str(error):
                raise Violation("no unjustified warning", f"{self.client_id}: {error}") from error
            return
        except TimeoutError:
            return
        if not is_local and not is_follow:
            history.read(next_index, floor)

    # ---------------------------------------------------------------------------------------------- the process

    def transfer(self, target: str) -> None:
        """Ask the leader to transfer the leadership to `target`."""
        self._world.tally.add(ShellFault.TRANSFER_ASKED)
        self.loop.call_soon(self.loop.create_task, self._transfer(target))

    async def _transfer(self, target: str) -> None:
        async with AsyncAdminClient(self._endpoints, group="shell", deadline_s=2.0, host=self._host) as admin:
            try:
                await admin.transfer(target)
            except AdminFailed:
                return

    def replace_member(self, member_id: str) -> None:
        """Remove a member, add it as a learner, and promote it."""
        if self._replacing is None or self._replacing.done():
            self._replacing = self.loop.create_task(self._replace_member(member_id))

    def restore_members(self) -> asyncio.Task[None]:
        """Make all nodes voters again; return the task."""
        return self.loop.create_task(self._restore_members())

    async def _replace_member(self, member_id: str) -> None:
        async with AsyncAdminClient(self._endpoints, group="shell", deadline_s=2.0, host=self._host) as admin:
            try:
                await admin.remove(member_id)
                self._world.tally.add(ShellFault.MEMBERS_CHANGED)
                await self._admit(admin, member_id)
            except AdminFailed:
                return

    async def _restore_members(self) -> None:
        if self._replacing is not None:
            await asyncio.wait([self._replacing])
        async with AsyncAdminClient(self._endpoints, group="shell", deadline_s=_RESTORE_S, host=self._host) as admin:
            for node_id in self._world.options.node_ids:
                await self._admit(admin, node_id)

    async def _admit(self, admin: AsyncAdminClient, member_id: str) -> None:
        await admin.add(member_id, f"{member_id}:{PEER_PORT}")
        await admin.promote(member_id)

    def _on_error(self, message: str, error: BaseException | None) -> None:
        self._world.on_error(self.client_id, message, error)

    def _after_step(self) -> None:
        if self._main.done() and not self._main.cancelled() and self._world.violation is None:
            error = self._main.exception()
            if isinstance(error, Violation):
                self._world.violate(error)
            elif error is not None:
                self._world.on_error(self.client_id, "the client raised", error)

    def kill(self) -> None:
        """End the process."""
        self._world.left += self.loop.kill()
        self._world.network.process_ended(self.client_id)
