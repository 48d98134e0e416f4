"""The bootstrap of a broker's node: it obtains the base log of its group (`commitlog.conversion.rule`).

1. What is there? Agreed on before, or entries: nothing is asked. Else a plain log is brought into order and summed up.
2. The node listens at its peer address and asks all others, again and again, until the rule decides.
3. What the node lacks is fetched, newest file first, each verified and durable before the next; then the configuration
   of the old store, if it has none (`commitlog.conversion.old_config`).
4. The manifest is saved as agreed; then entries are begun at its divide.

Each step can be repeated after a crash. No Raft message is sent before it has ended.

Not here: what is agreed on, once it is (`commitlog.conversion.origin.load_origin`).
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import ExitStack
from dataclasses import dataclass, replace
from time import monotonic
from typing import TYPE_CHECKING, Final

from prometheus_client import CollectorRegistry, Gauge

from cluster.replica.bootstrap_peers import fetch_config, fetch_from, in_thread, state_of
from cluster.replica.conversion_settings import shared_settings
from commitlog.conversion.base_log_files import (
    UNKNOWN_DIVIDE,
    BaseLogDamaged,
    BaseLogFetch,
    BaseLogFile,
    BaseLogManifest,
    BaseLogsDiffer,
    end_fetch,
    make_manifest,
)
from commitlog.conversion.divide import (
    Divided,
    LogDirectories,
    begin_entries,
    begin_of_entries,
    divide_log,
    has_entries,
    pad_base_log,
)
from commitlog.conversion.old_config import CONFIG_SIZE_BYTES_MAX, own_config_size, save_config
from commitlog.conversion.origin import BaseLogAnswers, begin_of
from commitlog.conversion.rule import NOTHING, BootstrapDecision, Claim, Statement, Waiting, decide
from commitlog.conversion.saved_manifest import load_manifest, save_manifest
from commitlog.plain.store import LOG_DIRECTORY, exit_with
from dledger.entries.store import EntryStoreConfig
from dledger.errors import DLedgerError
from dledger.peer.bootstrap import BootstrapServer
from store.dispatch.checkpoint import read_checkpoint
from store.errors import CorruptData, DiskFull, StoreStopped
from store.fs.mapped_file_queue import MappedFileQueue
from store.maintenance.lock import lock_store, note_in

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dledger.config import NodeConfig
    from dledger.entries.format.codec import EntryCodec
    from dledger.peer.handshake import Handshake
    from store.fs.ports import DirectoryLock, Files

logger = logging.getLogger(__name__)

_PAUSE_S: Final = 0.5
# After a full disk, on which an operator must free space.
_LONG_PAUSE_S: Final = 5.0
_PROGRESS_INTERVAL_S: Final = 10.0
_MIB: Final = 1 << 20
# After the end of any log.
_ALL: Final = 1 << 63


@dataclass(frozen=True, slots=True)
class BootstrapResult:
    """The base log that a node continues from.

    Attributes:
        divided: what opening will find.
        manifest: of the group.
        fetched_bytes: by this process.
    """

    divided: Divided
    manifest: BaseLogManifest
    fetched_bytes: int = 0


class BaseLogMetrics:
    """The progress of a node that fetches the base log."""

    def __init__(self, config: NodeConfig, registry: CollectorRegistry) -> None:
        def gauge(name: str, text: str) -> Gauge:
            made = Gauge(name, text, ["group", "self_id"], registry=registry)
            return made.labels(config.group, config.self_id)

        self.missing = gauge("dledger_old_files_missing_bytes", "Bytes of the base log that are still to be fetched.")
        self.fetched = gauge("dledger_old_files_fetched_bytes", "Bytes of the base log that this process has fetched.")


def places_of(config: NodeConfig, *, has_property_crc: bool = False) -> LogDirectories:
    """Return the directories of the logs of a broker's node."""
    root = config.store_base_dir
    sizes = EntryStoreConfig(config.mapped_file_size_for_entry_data, config.mapped_file_size_for_entry_index)
    directories = (f"{root}/{LOG_DIRECTORY}", f"{root}/dledger-{config.self_id}")
    return LogDirectories(*directories, sizes, has_property_crc=has_property_crc)


async def bootstrap_base_log(
    files: Files,
    config: NodeConfig,
    codec: EntryCodec,
    registry: CollectorRegistry,
    *,
    has_property_crc: bool = False,
) -> BootstrapResult:
    """Agree with the group on the base log and fetch it; may take as long as other nodes are down.

    Until it returns the root is locked and the peer address is listened on. Cancelling it is safe: the next
    start continues.

    Raises:
        BaseLogsDiffer: nodes hold different base logs; it names the first difference.
        commitlog.conversion.base_log_files.BaseLogDamaged: what is fetched is wrong again and again.
        store.errors.StoreError: the directory is locked, damaged or cannot be written.
        OSError: the peer address cannot be listened on.
    """
    start = _Start(files, config, codec, has_property_crc=has_property_crc)
    with ExitStack() as stack:
        stack.callback(start.lock().release)
        if not await in_thread(start.look, start.end):
            start.metrics = BaseLogMetrics(config, registry)
            await start.agree()
        return await in_thread(start.conclude)


class _Start:
    """One run of `bootstrap_base_log`; what touches files runs in one thread at a time."""

    metrics: BaseLogMetrics

    def __init__(self, files: Files, config: NodeConfig, codec: EntryCodec, *, has_property_crc: bool) -> None:
        # What this node answers to others. A claim only moves on: nothing, awaited; or held from the start.
        self.own: Statement = NOTHING
        self._files = files
        self._config = config
        self._codec = codec
        self._places = places_of(config, has_property_crc=has_property_crc)
        self._others = {peer.id: peer.address for peer in config.peers if peer.id != config.self_id}
        # Empty until `look` finds, or `save_agreed` saves, the one that the group agreed on.
        self._manifest = BaseLogManifest(0)
        self._notes: list[str] = []
        # The first difference from another node; the start fails with it.
        self._difference: BaseLogsDiffer | None = None
        # What was logged last, by subject.
        self._said: dict[str, str] = {}
        self._fetched_bytes = self._attempts = 0
        self._shown_at = 0.0
        self._is_ending = False

    # -------------------------------------------------------------------------------------------------- on the disk

    def lock(self) -> DirectoryLock:
        """Keep others from the store."""
        self._files.make_directory(self._config.store_base_dir)
        return lock_store(self._files, self._config.store_base_dir)

    def end(self) -> None:
        """Read no further files."""
        self._is_ending = True

    def look(self) -> bool:
        """Read what is in the directory; return whether no other node needs to be asked."""
        files, places, root = self._files, self._places, self._config.store_base_dir
        # What cannot be read is refused before anything is saved of what is found.
        checkpoint = read_checkpoint(files, root)
        saved = load_manifest(files, places.node_directory)
        if saved is not None and saved.is_agreed:
            end_fetch(files, places.node_directory)
            self._check_present(saved.manifest)
            self._manifest = saved.manifest
            return True
        config_size_bytes = own_config_size(files, root, places.node_directory)
        if saved is not None:
            self.own = Statement(Claim.AWAITED, saved.manifest, saved.manifest.divide, config_size_bytes)
            return False
        if has_entries(files, places.node_directory):
            self._check_base_log()
            self.save_agreed(self._sum_up(self._divide_of_entries()))
            return True
        last_exit = exit_with(files, root, checkpoint, is_clean=note_in(files, root) is None)
        divide, _, self._notes = pad_base_log(files, places, last_exit)
        if divide:
            manifest = self._sum_up(divide)
            self.own = Statement(Claim.HELD, manifest, begin_of(files, places.base_directory, manifest))
        self.own = replace(self.own, config_size_bytes=config_size_bytes)
        return False

    def save_agreed(self, manifest: BaseLogManifest) -> None:
        """Record durably which base log the group continues from."""
        save_manifest(self._files, self._places.node_directory, manifest, is_agreed=True)
        self._manifest = manifest

    def conclude(self) -> BootstrapResult:
        """Begin the entries where the base log ends, unless there are some."""
        files, places, manifest = self._files, self._places, self._manifest
        if manifest.divide > 0 and not has_entries(files, places.node_directory):
            begin_entries(files, places, self._codec, manifest.divide)
            self._notes.append(f"{places.base_directory}: the base log up to {manifest.divide}; entries begin there")
        divided = divide_log(files, places, self._codec)
        return BootstrapResult(replace(divided, notes=(*self._notes, *divided.notes)), manifest, self._fetched_bytes)

    def _check_base_log(self) -> None:
        """Refuse files that are no row of whole files: the manifest of the base log never changes again."""
        places = self._places
        queue = MappedFileQueue(self._files, places.base_directory, places.sizes.data_file_size_bytes)
        try:
            queue.load(is_read_only=True, durable_end=_ALL)
        finally:
            queue.close()

    def _check_present(self, manifest: BaseLogManifest) -> None:
        """Refuse files that appeared later: this node has stated to the group that it lacks them."""
        directory, known = self._places.base_directory, {file.name for file in manifest.files}
        names = self._files.list_directory(directory) if self._files.is_directory(directory) else []
        unknown = next((name for name in names if name not in known), None)
        if unknown is not None:
            expected = "no file of the base log but those that this node has agreed on with its group"
            raise CorruptData(f"{directory}/{unknown}", 0, expected, "one that appeared later")

    def _divide_of_entries(self) -> int:
        """Return the divide of a log of entries that another program, or an older one of ours, began."""
        files, places = self._files, self._places
        begin, is_whole = begin_of_entries(files, places.node_directory)
        if is_whole:
            return begin
        names = files.list_directory(places.base_directory) if files.is_directory(places.base_directory) else []
        return int(names[-1]) + places.sizes.data_file_size_bytes if names else UNKNOWN_DIVIDE

    def _sum_up(self, divide: int) -> BaseLogManifest:
        directory, size = self._places.base_directory, 0

        def on_file(file: BaseLogFile) -> None:
            nonlocal size
            size += file.size
            if self._is_ending:
                raise StoreStopped("the node was stopped while it read its base log")
            if self._is_time_to_show():
                logger.info("old_files_summed directory=%r bytes=%d file=%s", directory, size, file.name)

        return make_manifest(self._files, directory, divide, on_file)

    # ------------------------------------------------------------------------------------------------ with the others

    async def agree(self) -> None:
        """Agree with the other nodes on the base log, and fetch the files that are missing here."""
        if self.own.claim is not Claim.NOTHING:
            self._show_settings()
        answers = BaseLogAnswers(self._files, self._places.base_directory, lambda: self.own, self._take_answer)
        server = BootstrapServer(self._config, answers)
        if self._others:
            await server.start()
        try:
            while not await self._ask_all(server.handshake):  # noqa: ASYNC110  (other nodes send no event)
                await asyncio.sleep(_PAUSE_S)
        finally:
            await server.stop()

    def _take_answer(self, peer_id: str, statement: Statement) -> None:
        """Handle the statement of a node that asks this one: only a difference counts; its files are asked for."""
        if peer_id not in self._others or self._difference is not None:
            return
        try:
            decide(self.own, {peer_id: statement}, self._others, is_joining=self._config.is_joining)
        except BaseLogsDiffer as error:
            self._difference = error

    async def _ask_all(self, handshake: Handshake) -> bool:
        """Ask all others at once; return whether the nodes agree on the base log now."""
        answers = await asyncio.gather(*(self._ask(handshake, peer_id) for peer_id in self._others))
        statements = {
            peer_id: answer for peer_id, answer in zip(self._others, answers, strict=True) if answer is not None
        }
        if self._difference is not None:
            raise self._difference
        decided = decide(self.own, statements, self._others, is_joining=self._config.is_joining)
        if isinstance(decided, Waiting):
            self._say("", f"this node waits {decided.reason}")
            return False
        manifest = decided.manifest
        if self.own.claim is not Claim.HELD and manifest.files:
            if self.own.claim is Claim.NOTHING:
                await in_thread(
                    lambda: save_manifest(self._files, self._places.node_directory, manifest, is_agreed=False)
                )
                self._show_settings()
                self.own = replace(self.own, claim=Claim.AWAITED, manifest=manifest, begin=manifest.divide)
            if not await self._fetch(handshake, decided, statements):
                return False
        if not self.own.config_size_bytes and not await self._get_config(handshake, decided.sources, statements):
            return False
        await in_thread(lambda: self.save_agreed(manifest))
        logger.info(
            "old_files_settled self_id=%s divide=%d files=%d",
            self._config.self_id,
            manifest.divide,
            len(manifest.files),
        )
        return True

    async def _ask(self, handshake: Handshake, peer_id: str) -> Statement | None:
        try:
            return await state_of(handshake, peer_id, self._others[peer_id], self.own)
        except (OSError, DLedgerError, ValueError) as error:
            self._say(peer_id, f"{peer_id} does not report its base log: {str(error) or type(error).__name__}")
            return None

    async def _fetch(
        self, handshake: Handshake, decided: BootstrapDecision, statements: Mapping[str, Statement]
    ) -> bool:
        """Fetch what is lacking from the next source; return whether everything is here."""
        sources, manifest = decided.sources, decided.manifest
        source = sources[self._attempts % len(sources)] if sources else ""
        # Of files that expired in the whole group nothing is wanted, nor kept.
        wanted = manifest.from_offset(statements[source].begin if source else manifest.divide)
        places = self._places
        fetch: BaseLogFetch | None = None
        try:
            fetch = await in_thread(
                lambda: BaseLogFetch(self._files, places.base_directory, places.node_directory, wanted)
            )
            if source:
                logger.info("old_files_fetch from=%s missing_bytes=%d", source, fetch.missing_bytes)
                await self._fetch_from(handshake, source, fetch)
        except (OSError, DLedgerError, ValueError) as error:
            self._attempts += 1
            self._say("fetch", f"the base log from {source}: {str(error) or type(error).__name__}")
            return False
        except BaseLogDamaged as error:
            self._attempts += 1
            if self._attempts >= len(sources):
                raise
            self._say("fetch", str(error))
            return False
        except DiskFull as error:
            self._say("fetch", str(error))
            await asyncio.sleep(_LONG_PAUSE_S)
            return False
        finally:
            if fetch is not None:
                await in_thread(fetch.close)
        return True

    async def _get_config(
        self, handshake: Handshake, first: Sequence[str], statements: Mapping[str, Statement]
    ) -> bool:
        """Get the configuration of the old store from a node that has it, if any has; return whether that is done."""
        sources = [peer for peer in (*first, *sorted(statements)) if statements[peer].config_size_bytes]
        if not sources:
            return True
        source = sources[0]
        if statements[source].config_size_bytes > CONFIG_SIZE_BYTES_MAX:
            logger.warning("config_too_large from=%s: only that node can import its topics and groups", source)
            return True
        files, root, node_directory = self._files, self._config.store_base_dir, self._places.node_directory
        try:
            contents = await fetch_config(handshake, source, self._others[source])
            await in_thread(lambda: save_config(files, root, node_directory, contents))
        except (OSError, DLedgerError, ValueError, DiskFull) as error:
            self._say("config", f"config of the old store from {source}: {str(error) or type(error).__name__}")
            return False
        logger.info("config_fetched from=%s files=%s", source, " ".join(contents))
        return True

    async def _fetch_from(self, handshake: Handshake, source: str, fetch: BaseLogFetch) -> None:
        def on_taken(size: int) -> None:
            self._fetched_bytes += size
            self.metrics.fetched.set(self._fetched_bytes)
            self.metrics.missing.set(fetch.missing_bytes)
            if self._is_time_to_show():
                missing, fetched = fetch.missing_bytes // _MIB, self._fetched_bytes // _MIB
                logger.info("old_files_fetch from=%s fetched_mib=%d missing_mib=%d", source, fetched, missing)

        self.metrics.missing.set(fetch.missing_bytes)
        quota = self._config.raft.peer_push_quota
        await fetch_from(handshake, source, self._others[source], fetch, bytes_per_s=quota, on_taken=on_taken)

    def _is_time_to_show(self) -> bool:
        now = monotonic()
        if now - self._shown_at < _PROGRESS_INTERVAL_S:
            return False
        self._shown_at = now
        return True

    def _show_settings(self) -> None:
        settings = shared_settings(self._config, has_property_crc=self._places.has_property_crc)
        logger.info("old_store_conversion self_id=%s equal_on_all_nodes: %s", self._config.self_id, settings)

    def _say(self, about: str, text: str) -> None:
        """Log what holds the node up, once until it changes."""
        if self._said.get(about) != text:
            self._said[about] = text
            logger.warning("old_files_not_settled self_id=%s text=%r", self._config.self_id, text)
