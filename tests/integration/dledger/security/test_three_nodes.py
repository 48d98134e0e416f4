"""Clients of three nodes over TLS, also while a leader stops and certificates change."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from prometheus_client import CollectorRegistry

from dledger.client import AdminClient, AsyncAdminClient, AsyncLogClient, LogClient, reaching
from dledger.client.outcomes import NotAppended, Refused
from dledger.metrics import NodeMetrics
from dledger.node.node import Node
from dledger.security.credentials import Credentials
from dledger.security.settings import Tls
from dledger.service.log import start_server
from tests.support.certificates import new_authority, node_pair, tls_of, user_pair, write_tls
from tests.support.waiting import PATIENCE_S, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine
    from pathlib import Path

    from dledger.config import NodeConfig

    Run = Callable[[Coroutine[Any, Any, None]], None]

OURS = new_authority()
ALICE = tls_of(user_pair(OURS, "alice"), OURS)
TRUSTING = Tls(OURS.certificate_pem())


@pytest.fixture(autouse=True)
def patient_search_for_a_leader(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two seconds may not be enough for three handshakes where many programs share a machine."""
    monkeypatch.setattr(reaching, "TLS_STATUS_TIMEOUT_S", PATIENCE_S)


@asynccontextmanager
async def nodes(
    configs: dict[str, NodeConfig], folder: Path, *, is_mutual: bool
) -> AsyncIterator[dict[str, Credentials]]:
    """Run three nodes, each with its own certificate; yield these."""
    used = {}
    async with AsyncExitStack() as stack:
        for node_id, config in configs.items():
            files = write_tls(folder / node_id, tls_of(node_pair(OURS, node_id, group="test"), OURS))
            used[node_id] = Credentials(files, is_certificate_required=is_mutual)
            node = Node(config, NodeMetrics(CollectorRegistry(), config.group, node_id))
            stack.push_async_callback(node.stop)
            await node.start()
            server = await start_server(node, config.client_address, used[node_id].current_tls)
            stack.push_async_callback(server.stop, None)
        yield used


def endpoints(configs: dict[str, NodeConfig]) -> str:
    return ",".join(str(config.client_address) for config in configs.values())


@pytest.mark.parametrize("is_mutual", [False, True], ids=["TLS", "mutual TLS"])
def test_all_clients_append_read_and_administer_over_tls(
    run: Run, configs: dict[str, NodeConfig], tmp_path: Path, is_mutual: bool
) -> None:
    security = ALICE if is_mutual else TRUSTING
    settings = {"group": "test", "deadline_s": PATIENCE_S, "security": security}

    def blocking() -> list[bytes]:
        with LogClient(endpoints(configs), **settings) as log, AdminClient(endpoints(configs), **settings) as admin:
            done = log.append(b"blocking")
            leader = admin.members().leader.id
            admin.transfer(next(each for each in configs if each != leader))
            log.append(b"to the next leader")
            return [entry.body for entry in log.read(done.index) if entry.body]

    async def scenario() -> None:
        async with nodes(configs, tmp_path, is_mutual=is_mutual):
            async with AsyncLogClient(endpoints(configs), **settings) as log:
                done = await log.append(b"asyncio")
                assert [entry.body async for entry in log.read(done.index)][:1] == [b"asyncio"]
            async with AsyncAdminClient(endpoints(configs), **settings) as admin:
                assert {member.id for member in (await admin.members()).members} == set(configs)
            assert await asyncio.to_thread(blocking) == [b"blocking", b"to the next leader"]

    run(scenario())


def test_client_without_the_right_certificate_appends_nothing(
    run: Run, configs: dict[str, NodeConfig], tmp_path: Path
) -> None:
    async def scenario() -> None:
        async with nodes(configs, tmp_path, is_mutual=True):
            async with AsyncLogClient(endpoints(configs), group="test", security=TRUSTING, deadline_s=2.0) as caller:
                with pytest.raises((NotAppended, Refused), match="may require TLS, or another certificate"):
                    await caller.append(b"untrusted")
            async with AsyncLogClient(endpoints(configs), group="test", security=ALICE, deadline_s=PATIENCE_S) as log:
                await log.append(b"alice's")
                assert [entry.body async for entry in log.read(0) if entry.body] == [b"alice's"]

    run(scenario())


def test_authority_is_replaced_while_clients_append(run: Run, configs: dict[str, NodeConfig], tmp_path: Path) -> None:
    """Goal: no append fails. Method: the files change under three nodes step by step, and new clients come and go."""
    new = new_authority("the next authority")
    by_new = tls_of(user_pair(new, "alice"), new, OURS)

    async def append(security: Tls) -> None:
        async with AsyncLogClient(endpoints(configs), group="test", security=security, deadline_s=PATIENCE_S) as log:
            await log.append(b"entry")

    async def scenario() -> None:
        async with (
            nodes(configs, tmp_path, is_mutual=True) as used,
            AsyncLogClient(endpoints(configs), group="test", security=ALICE, deadline_s=PATIENCE_S) as old,
        ):
            for signer, trusted in ((OURS, (OURS, new)), (new, (new, OURS)), (new, (new,))):
                for node_id, credentials in used.items():
                    own = node_pair(signer, node_id, group="test")
                    write_tls(tmp_path / node_id, tls_of(own, *trusted))
                    assert await asyncio.to_thread(credentials.reload_if_changed), credentials.fault
                    if trusted != (OURS, new):
                        await append(by_new)
                    await old.append(b"entry of a connection that stays open")
            await until(lambda: all(each.current.generation == 4 for each in used.values()))

    run(scenario())
