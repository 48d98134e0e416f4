"""The bootstrap of a broker's node: it obtains the base log of its group (`commitlog.conversion.bootstrap_rule`).

1. The local state is read. If a base log was agreed on before, or there are entries, no other node is asked. Otherwise
   the plain log is recovered and its checksums are computed. 2. The node listens at its peer address and asks all
   others repeatedly until the rule decides. 3. Missing files are fetched, the newest first, each verified and durable
   before the next; then the configuration of the old store, if the node has none (`commitlog.conversion.old_config`).
   4. The manifest is saved as agreed; then the log of entries begins at its divide.

Each step can be repeated after a crash. No Raft message is sent before the bootstrap has ended. Not here: loading the
agreed base log at later starts (`commitlog.conversion.origin.load_origin`).
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from prometheus_client import CollectorRegistry, Gauge

from cluster.replica.bootstrap_peers import fetch_config, fetch_from, in_thread, state_of
from cluster.replica.conversion_settings import shared_settings
from cluster.replica.local_base_log import LocalBaseLog
from commitlog.conversion.base_log_files import BaseLogDamaged, BaseLogFetch, BaseLogManifest, BaseLogsDiffer
from commitlog.conversion.bootstrap_rule import (
    BootstrapDecision,
    Claim,
    Statement,
    Waiting,
    decide,
    source_of_config,
)
from commitlog.conversion.old_config import CONFIG_SIZE_BYTES_MAX
from commitlog.conversion.origin import BaseLogAnswers
from dledger.errors import DLedgerError
from dledger.peer.bootstrap import BootstrapServer
from dledger.security.peers import PLAIN_PEERS
from store.errors import DiskFull

if TYPE_CHECKING:
    from collections.abc import Mapping

    from commitlog.conversion.divide import Divided
    from dledger.config import NodeConfig
    from dledger.entries.format.codec import EntryCodec
    from dledger.peer.handshake import Handshake
    from dledger.security.peers import PeerSecurity
    from store.fs.ports import Files

logger = logging.getLogger(__name__)

_PAUSE_S: Final = 0.5
# The retry interval after a full disk, on which an operator must free space.
_LONG_PAUSE_S: Final = 5.0
_MIB: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class BootstrapResult:
    """The base log that a node continues from.

    Attributes:
        divided: the divide of the log, as the next opening will find it.
        manifest: the manifest of the group.
        fetched_bytes: bytes fetched by this process.
    """

    divided: Divided
    manifest: BaseLogManifest
    fetched_bytes: int = 0


class BaseLogMetrics:
    """The progress metrics of a node that fetches the base log."""

    def __init__(self, config: NodeConfig, registry: CollectorRegistry) -> None:
        def gauge(name: str, text: str) -> Gauge:
            made = Gauge(name, text, ["group", "self_id"], registry=registry)
            return made.labels(config.group, config.self_id)

        self.missing = gauge("dledger_base_log_missing_bytes", "Bytes of the base log that are not fetched yet.")
        self.fetched = gauge("dledger_base_log_fetched_bytes", "Bytes of the base log that this process has fetched.")


async def bootstrap_base_log(
    files: Files,
    config: NodeConfig,
    codec: EntryCodec,
    registry: CollectorRegistry,
    *,
    has_property_crc: bool = False,
    peer_security: PeerSecurity = PLAIN_PEERS,
) -> BootstrapResult:
    """Agree with the group on the base log and fetch it; waits as long as other nodes are down.

    Until it returns, the store directory is locked and the node listens on its peer address. Cancelling it is safe: the
    next start continues.

    Raises:
        BaseLogsDiffer: nodes have different base logs; the error has the first difference.
        commitlog.conversion.base_log_files.BaseLogDamaged: fetched data is damaged repeatedly.
        store.errors.StoreError: the directory is locked, damaged or cannot be written.
        OSError: the peer address cannot be listened on.
    """
    local = LocalBaseLog(files, config, codec, has_property_crc=has_property_crc)
    fetched_bytes = 0
    with ExitStack() as stack:
        stack.callback(local.lock().release)
        if not await in_thread(local.check, local.end):
            agreement = _Agreement(files, config, local, BaseLogMetrics(config, registry), peer_security)
            await agreement.reach()
            fetched_bytes = agreement.fetched_bytes
        return BootstrapResult(await in_thread(local.conclude), local.manifest, fetched_bytes)


class _Agreement:
    """Agrees with the other nodes on the base log, and fetches the files that this node lacks."""

    def __init__(
        self,
        files: Files,
        config: NodeConfig,
        local: LocalBaseLog,
        metrics: BaseLogMetrics,
        peer_security: PeerSecurity,
    ) -> None:
        self._peer_security = peer_security
        self._files = files
        self._config = config
        self._local = local
        self._metrics = metrics
        self._others = {peer.id: peer.address for peer in config.peers if peer.id != config.self_id}
        # The first difference from another node, with which the bootstrap fails.
        self._difference: BaseLogsDiffer | None = None
        # The last logged text of each subject.
        self._said: dict[str, str] = {}
        self._attempts = 0
        # Bytes fetched by this process.
        self.fetched_bytes = 0

    async def reach(self) -> None:
        """Wait until all nodes agree, and this node has all files."""
        if self._local.own.claim is not Claim.NOTHING:
            self._show_settings()
        answers = BaseLogAnswers(
            self._files, self._local.directories.base_directory, lambda: self._local.own, self._take_answer
        )
        server = BootstrapServer(self._config, answers, self._peer_security)
        if self._others:
            await server.start()
        try:
            while not await self._ask_all(server.handshake):  # noqa: ASYNC110  (other nodes send no event)
                await asyncio.sleep(_PAUSE_S)
        finally:
            await server.stop()

    def _take_answer(self, peer_id: str, statement: Statement) -> None:
        """Handle the statement of a node that contacts this one: only a difference in the base logs matters here."""
        if peer_id not in self._others or self._difference is not None:
            return
        try:
            decide(self._local.own, {peer_id: statement}, self._others, is_joining=self._config.is_joining)
        except BaseLogsDiffer as error:
            self._difference = error

    async def _ask_all(self, handshake: Handshake) -> bool:
        """Ask all other nodes in parallel; return whether the nodes agree on the base log."""
        answers = await asyncio.gather(*(self._ask(handshake, peer_id) for peer_id in self._others))
        statements = {
            peer_id: answer for peer_id, answer in zip(self._others, answers, strict=True) if answer is not None
        }
        if self._difference is not None:
            raise self._difference
        decided = decide(self._local.own, statements, self._others, is_joining=self._config.is_joining)
        if isinstance(decided, Waiting):
            self._log_wait("", f"this node waits {decided.reason}")
            return False
        manifest = decided.manifest
        if self._local.own.claim is not Claim.HELD and manifest.files:
            if self._local.own.claim is Claim.NOTHING:
                await in_thread(lambda: self._local.save_awaited(manifest))
                self._show_settings()
                self._local.own = replace(
                    self._local.own, claim=Claim.AWAITED, manifest=manifest, begin=manifest.divide
                )
            if not await self._fetch(handshake, decided, statements):
                return False
        if not self._local.own.config_size_bytes and not await self._get_config(handshake, statements):
            return False
        await in_thread(lambda: self._local.save_agreed(manifest))
        logger.info(
            "base_log_agreed self_id=%s divide=%d files=%d",
            self._config.self_id,
            manifest.divide,
            len(manifest.files),
        )
        return True

    async def _ask(self, handshake: Handshake, peer_id: str) -> Statement | None:
        try:
            return await state_of(handshake, peer_id, self._others[peer_id], self._local.own)
        except (OSError, DLedgerError, ValueError) as error:
            self._log_wait(peer_id, f"{peer_id} does not report its base log: {str(error) or type(error).__name__}")
            return None

    async def _fetch(
        self, handshake: Handshake, decided: BootstrapDecision, statements: Mapping[str, Statement]
    ) -> bool:
        """Fetch missing files from the next source; return whether the node has all files."""
        sources, manifest = decided.sources, decided.manifest
        source = sources[self._attempts % len(sources)] if sources else ""
        # Files that expired in the whole group are neither fetched nor kept.
        wanted = manifest.from_offset(statements[source].begin if source else manifest.divide)
        fetch: BaseLogFetch | None = None
        try:
            fetch = await in_thread(lambda: self._local.begin_fetch(wanted))
            if source:
                logger.info("base_log_fetch from=%s missing_bytes=%d", source, fetch.missing_bytes)
                await self._fetch_from(handshake, source, fetch)
        except (OSError, DLedgerError, ValueError) as error:
            self._attempts += 1
            self._log_wait("fetch", f"the base log from {source}: {str(error) or type(error).__name__}")
            return False
        except BaseLogDamaged as error:
            self._attempts += 1
            if self._attempts >= len(sources):
                raise
            self._log_wait("fetch", str(error))
            return False
        except DiskFull as error:
            self._log_wait("fetch", str(error))
            await asyncio.sleep(_LONG_PAUSE_S)
            return False
        finally:
            if fetch is not None:
                await in_thread(fetch.close)
        return True

    async def _get_config(self, handshake: Handshake, statements: Mapping[str, Statement]) -> bool:
        """Fetch the configuration of the old store from a node that has it, if any; return whether that is complete."""
        source = source_of_config(statements)
        if source is None:
            return True
        if statements[source].config_size_bytes > CONFIG_SIZE_BYTES_MAX:
            logger.warning("config_too_large from=%s: only that node can import its topics and groups", source)
            return True
        try:
            contents = await fetch_config(handshake, source, self._others[source])
            await in_thread(lambda: self._local.save_config(contents))
        except (OSError, DLedgerError, ValueError, DiskFull) as error:
            self._log_wait("config", f"config of the old store from {source}: {str(error) or type(error).__name__}")
            return False
        logger.info("config_fetched from=%s files=%s", source, " ".join(contents))
        return True

    async def _fetch_from(self, handshake: Handshake, source: str, fetch: BaseLogFetch) -> None:
        def on_taken(size: int) -> None:
            self.fetched_bytes += size
            self._metrics.fetched.set(self.fetched_bytes)
            self._metrics.missing.set(fetch.missing_bytes)
            if self._local.progress.is_due():
                missing, fetched = fetch.missing_bytes // _MIB, self.fetched_bytes // _MIB
                logger.info("base_log_fetch from=%s fetched_mib=%d missing_mib=%d", source, fetched, missing)

        self._metrics.missing.set(fetch.missing_bytes)
        quota = self._config.raft.peer_push_quota
        await fetch_from(handshake, source, self._others[source], fetch, bytes_per_s=quota, on_taken=on_taken)

    def _show_settings(self) -> None:
        settings = shared_settings(self._config, has_property_crc=self._local.directories.has_property_crc)
        logger.info("old_store_conversion self_id=%s equal_on_all_nodes: %s", self._config.self_id, settings)

    def _log_wait(self, about: str, text: str) -> None:
        """Log the reason of the wait, once until it changes."""
        if self._said.get(about) != text:
            self._said[about] = text
            logger.warning("base_log_not_agreed self_id=%s text=%r", self._config.self_id, text)
