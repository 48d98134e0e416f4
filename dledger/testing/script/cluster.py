"""The machines of a script, their time and messages, and the checks after each command."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dledger.core.events import PeerUnreachable, Received
from dledger.entries.store import EntryStore, EntryStoreConfig
from dledger.storage.hard_state import HardStateFile
from dledger.testing.checks.all_checks import node_directory
from dledger.testing.script.links import Envelope, Links
from dledger.testing.script.machine import ScriptEnvironment, ScriptMachine, Settings
from dledger.testing.script.safety import Safety
from dledger.testing.script.transcript import Arrow, ScriptError, Transcript
from dledger.types import HardState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

TICK_MS = 10
# A command that causes more deliveries than this is assumed to cause endless messages.
DELIVERIES_MAX = 2_000


class Cluster:
    """All machines of one script.

    Attributes:
        settings: from the first line of the script.
        transcript: records what happens.
        machines: by id, in order.
        links: the messages in flight between them.
        has_begun: the nodes were started; before that, a script may write logs and terms.
    """

    def __init__(self, settings: Settings) -> None:
        self.transcript = Transcript()
        self.links = Links(self.transcript)
        self.has_begun = False
        self.settings = settings
        self._ids_count = 0
        self._safety = Safety()
        self._environment = ScriptEnvironment(settings, self.transcript, self.links, self._safety)
        self.machines: dict[str, ScriptMachine] = {}
        for node_id in settings.node_ids:
            self.add_machine(node_id)

    def expect_loss(self) -> None:
        """Allow that committed entries are replaced."""
        self._safety.is_loss_expected = True

    def add_machine(self, node_id: str) -> ScriptMachine:
        """Add a machine without a running node."""
        machine = ScriptMachine(self._environment, node_id, len(self.machines) + 1)
        self.machines[node_id] = machine
        return machine

    def machine(self, node_id: str) -> ScriptMachine:
        """Return a machine.

        Raises:
            ScriptError: there is none with this id.
        """
        if node_id not in self.machines:
            raise ScriptError(f"no node {node_id}; there are {' '.join(self.machines)}")
        return self.machines[node_id]

    def next_id(self) -> int:
        """Return a new number for a request of a client."""
        self._ids_count += 1
        return self._ids_count

    # ------------------------------------------------------------------------------------- before the nodes begin

    def write_log(self, node_id: str, terms: Iterable[int]) -> None:
        """Write a log of entries with these terms, and the last one as current term, before the node starts."""
        machine = self._untouched(node_id)
        sizes = EntryStoreConfig(self.settings.data_file_size_bytes, self.settings.index_file_size_bytes)
        store = EntryStore.open(machine.files, node_directory(node_id), sizes)
        last_term = 0
        for index, term in enumerate(terms):
            store.append([f"{term}.{index}".encode()], index, term)
            last_term = term
        store.close()
        self.write_hard_state(node_id, HardState(last_term))

    def write_hard_state(self, node_id: str, state: HardState) -> None:
        """Write term and vote before the node starts."""
        HardStateFile.open(self._untouched(node_id).files, node_directory(node_id)).save(state)

    def _untouched(self, node_id: str) -> ScriptMachine:
        if self.has_begun:
            raise ScriptError("logs and terms are laid down before anything else happens")
        return self.machine(node_id)

    def begin(self) -> None:
        """Start all nodes if they were not started yet, without lines in the transcript; none knows a recent leader."""
        if not self.has_begun:
            self.has_begun = True
            for machine in self.machines.values():
                machine.start()
                machine.now_ms = self.settings.raft.min_election_timeout_ms
                machine.guard(lambda node: node.tick())

    # ------------------------------------------------------------------------------------------------------- time

    def pass_time(
        self, machines: list[ScriptMachine], elapsed_ms: int, after_tick: Callable[[], None] | None = None
    ) -> None:
        """Advance the time of some machines, in steps of the nodes' ticks."""
        for _ in range(0, elapsed_ms, TICK_MS):
            for machine in machines:
                machine.now_ms += TICK_MS
                machine.guard(lambda node: node.tick())
            if after_tick is not None:
                after_tick()

    # --------------------------------------------------------------------------------------------------- messages

    def deliver(self, is_wanted: Callable[[Envelope], bool], count_max: int = DELIVERIES_MAX) -> int:
        """Deliver the selected messages, oldest first, and the selected ones that they cause; return their number.

        Raises:
            ScriptError: the messages do not end.
        """
        count = 0
        while count < count_max:
            envelope = self.links.take(is_wanted)
            if envelope is None:
                return count
            count += 1
            self.machine(envelope.target).feed(Received(envelope.source, envelope.message))
        if count_max == DELIVERIES_MAX:
            raise ScriptError(f"after {count} messages there are still more: the nodes never come to rest")
        return count

    def settle(self, node_ids: Iterable[str]) -> None:
        """Deliver all messages between some nodes until none is left."""
        among = list(node_ids)
        self.deliver(lambda envelope: envelope.source in among and envelope.target in among)

    def show(self, *arrows: Arrow) -> None:
        """Record only these outcomes of messages from now on."""
        self.transcript.shown = frozenset(arrows)

    def break_connections(self, node_id: str) -> None:
        """Break the connections of all others to a node, and report it to them; messages in flight to it are lost."""
        self.links.forget(node_id)
        for machine in self.machines.values():
            if machine.id != node_id:
                machine.feed(PeerUnreachable(node_id))

    def check(self) -> None:
        """Check the whole cluster.

        Raises:
            Violation: a property of Raft does not hold.
        """
        self._safety.check(list(self.machines.values()))
