"""A survivor becomes a group of its own, with its whole log and a new id; a crash at any step leaves a usable node."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cluster.backup.recovery import NotRecoverable, Recovery, SurvivingNode, finish_begun, kept_path
from dledger.config import Address, NodeConfig, Peer
from dledger.entries.format.codec import RAW_ENTRY_CODEC
from dledger.node.files import NodeFiles
from dledger.storage.identity import WrongDirectory
from dledger.storage.properties import parse_checked
from dledger.storage.snapshot_store import SnapshotStore
from dledger.types import HardState, Member, Membership, MembershipEntry
from store.errors import CorruptData, DirectoryLocked
from store.fs.forwarding import ForwardingFiles
from store.fs.linux.files import OsFiles
from tests.unit.cluster.backup.logs import GROUP_ID, SIZES, bodies_of

MEMBERS = Membership((Member("n0", "h:1"), Member("n1", "h:2", incarnation=9), Member("n2", "h:3")), GROUP_ID)
NEW_ID = 0x77
COMMITTED, LAST = 60, 100


def survivor(tmp_path: Path, node_id: str = "n1", **changes: Any) -> SurvivingNode:
    node = SurvivingNode(str(tmp_path / f"dledger-{node_id}"), node_id, "g", "h:22", SIZES, RAW_ENTRY_CODEC)
    return replace(node, **changes)


def opened(tmp_path: Path, node_id: str = "n1", files: OsFiles | None = None) -> NodeFiles:
    """Open the directory as a node does, with the settings of the old group."""
    config = NodeConfig(
        self_id=node_id,
        group="g",
        peers=tuple(Peer(f"n{number}", Address("h", number + 1)) for number in range(3)),
        client_address=Address("127.0.0.1", 9),
        store_base_dir=str(tmp_path),
        mapped_file_size_for_entry_data=SIZES.data_file_size_bytes,
        mapped_file_size_for_entry_index=SIZES.index_file_size_bytes,
    )
    return NodeFiles.open(files or OsFiles(), config, lambda low, _: low, has_state_machine=False)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return new_directory(tmp_path)


def new_directory(tmp_path: Path) -> Path:
    """Return the directory of a stopped node with entries 0 to 100, of which it knows 60 as committed."""
    files = opened(tmp_path)
    files.hard_state.save(HardState(5, "n0", incarnation=9))
    membership = RAW_ENTRY_CODEC.membership(MEMBERS)
    files.store.append([membership.body], 0, 1, membership.magic)
    files.memberships.save([MembershipEntry(0, MEMBERS)])
    files.store.append(bodies_of(LAST), 1, 4)
    files.close(is_clean=True, committed_index=COMMITTED)
    return tmp_path / "dledger-n1"


def tree(path: Path) -> dict[str, bytes]:
    return {str(each): each.read_bytes() for each in sorted(path.rglob("*")) if each.is_file() and each.name != "lock"}


def recovered(tmp_path: Path, files: Any = None, typed: str = f"{GROUP_ID:016x}") -> int:
    with Recovery(files or OsFiles(), survivor(tmp_path)) as recovery:
        return recovery.apply(typed, draw=lambda *_: NEW_ID, codec=RAW_ENTRY_CODEC, now_ms=123)


def test_plan_says_in_numbers_what_is_kept_and_changes_nothing(tmp_path: Path, directory: Path) -> None:
    before = tree(directory)
    with Recovery(OsFiles(), survivor(tmp_path)) as recovery:
        plan = recovery.plan

    assert (GROUP_ID, MEMBERS, True, 5) == (plan.group_id, plan.membership, plan.is_voter, plan.term)
    assert (0, LAST, 4, COMMITTED, LAST - COMMITTED) == (
        plan.begin_index,
        plan.last_index,
        plan.last_term,
        plan.committed_index,
        plan.uncertain,
    )
    assert before.items() <= tree(directory).items()


def test_recovered_node_is_the_only_voter_of_a_new_group_with_all_entries(tmp_path: Path, directory: Path) -> None:
    before = tree(directory)

    assert NEW_ID == recovered(tmp_path)

    kept = tree(Path(kept_path(str(directory), GROUP_ID)))
    assert list(before.values()) == list(kept.values())
    files = opened(tmp_path)
    new = Membership((Member("n1", "h:22"),), NEW_ID)
    assert bodies_of(LAST) == [files.store.get(index).body for index in range(1, LAST + 1)]
    # A new member learns no other group id from the log.
    first = files.store.get(0)
    assert replace(MEMBERS, group_id=NEW_ID) == RAW_ENTRY_CODEC.decode(first.magic, first.channel, first.body)
    assert (MembershipEntry(LAST + 1, new),) == files.persistent.memberships
    assert HardState(6) == files.persistent.hard_state
    assert (LAST + 1, 6) == (files.store.last_index, files.store.last_term)
    assert LAST + 1 == files.store.recovered_checkpoint.committed_index
    assert [] == list(files.store.recovery_notes)
    files.close(is_clean=True)
    record = parse_checked((directory / "recovered").read_bytes())
    expected = {
        "lostGroupId": f"{GROUP_ID:016x}",
        "lastIndex": "100",
        "lastTerm": "4",
        "committedIndex": "60",
        "uncertainEntries": "40",
        "recoveredMs": "123",
    }
    assert expected.items() <= record.items()
    with pytest.raises(NotRecoverable, match="It needs no recovery"):
        recovered(tmp_path, typed=f"{NEW_ID:016x}")


@pytest.mark.parametrize("typed", ["", "5c1f3a0be2d94f18", "5C1F3A0BE2D94F17", " 5c1f3a0be2d94f17"])
def test_another_group_id_than_that_of_the_group_is_refused(tmp_path: Path, directory: Path, typed: str) -> None:
    before = tree(directory)
    with pytest.raises(NotRecoverable, match=f"expected group id {GROUP_ID:016x}"):
        recovered(tmp_path, typed=typed)
    assert before.items() <= tree(directory).items()


def test_running_node_is_refused(tmp_path: Path, directory: Path) -> None:
    files = opened(tmp_path)
    with pytest.raises(DirectoryLocked):
        recovered(tmp_path)
    files.close(is_clean=True)
    recovered(tmp_path)


@pytest.mark.parametrize("case", ["other node", "no directory", "founding", "wiped"])
def test_directory_that_has_no_part_in_the_group_is_refused(tmp_path: Path, directory: Path, case: str) -> None:
    error: type[Exception] = NotRecoverable
    node = survivor(tmp_path)
    if case == "other node":
        node, error = replace(node, node_id="n0"), WrongDirectory
    elif case == "no directory":
        node = survivor(tmp_path, "n2")
    elif case == "founding":
        (directory / "currterm").write_text("currTerm=0\nvoteLeader=\nfounding=true\n")
    else:
        (directory / "currterm").unlink()

    with pytest.raises(error):
        Recovery(OsFiles(), node)
    assert not (tmp_path / "dledger-n2").exists()
    assert not list(tmp_path.rglob("recovered*"))


def test_node_without_its_vote_is_recoverable_and_the_plan_says_so(tmp_path: Path, directory: Path) -> None:
    (directory / "currterm").write_text("currTerm=5\nvoteLeader=\nincarnation=8\n")
    with Recovery(OsFiles(), survivor(tmp_path)) as recovery:
        assert not recovery.plan.is_voter
    recovered(tmp_path)

    files = opened(tmp_path)
    assert 0 == files.persistent.hard_state.incarnation
    assert 0 == files.persistent.memberships[-1].membership.members[0].incarnation
    files.close(is_clean=True)


def test_log_without_its_beginning_keeps_its_positions_and_snapshots(tmp_path: Path) -> None:
    files = opened(new_directory(tmp_path).parent)
    files.store.delete_before(50)
    begin = files.store.begin_index, files.store.begin_position, files.store.begin_prev_term
    places = [files.store.position_of(index) for index in range(begin[0], LAST + 1)]
    files.close(is_clean=True, committed_index=COMMITTED)
    snapshots = SnapshotStore.open(OsFiles(), str(tmp_path / "dledger-n1"))
    saved = snapshots.save(70, 4, b"the state")
    snapshots.close()

    recovered(tmp_path)

    files = opened(tmp_path)
    assert begin == (files.store.begin_index, files.store.begin_position, files.store.begin_prev_term)
    assert begin[0] > 0
    assert places == [files.store.position_of(index) for index in range(begin[0], LAST + 1)]
    files.close(is_clean=True)
    snapshots = SnapshotStore.open(OsFiles(), str(tmp_path / "dledger-n1"))
    assert (saved, b"the state") == (snapshots.latest(), snapshots.load(saved))
    snapshots.close()


def test_damaged_last_entry_is_refused_as_possibly_the_only_copy(tmp_path: Path, directory: Path) -> None:
    data = max((directory / "data").iterdir())
    raw = bytearray(data.read_bytes())
    last = raw.rindex(bodies_of(1, LAST - 1)[0])
    raw[last] ^= 1
    data.write_bytes(raw)
    (directory / "checkpoint").unlink()

    with pytest.raises(CorruptData, match="only copy"):
        recovered(tmp_path)


class Killed(BaseException):
    """The process ends."""


class KilledFiles(ForwardingFiles):
    """The real file system of a process that is killed before one of its changes of small files or directories.

    Attributes:
        left: changes until then.
    """

    def __init__(self, left: int) -> None:
        super().__init__(OsFiles())
        self.left = left

    def _count(self) -> None:
        if self.left == 0:
            raise Killed
        self.left -= 1

    def replace(self, path: str, content: bytes) -> None:
        self._count()
        super().replace(path, content)

    def sync_directory(self, path: str) -> None:
        self._count()
        super().sync_directory(path)

    def rename(self, path: str, new_path: str) -> None:
        self._count()
        super().rename(path, new_path)


def test_killed_recovery_leaves_the_old_directory_or_the_new_one_and_can_be_repeated(tmp_path: Path) -> None:
    found = []
    for left in range(200):
        base = tmp_path / str(left)
        base.mkdir()
        directory = new_directory(base)
        files = KilledFiles(left)
        with suppress(Killed):
            recovered(base, files)
        is_between = not directory.exists()
        assert is_between == finish_begun(OsFiles(), str(directory))
        node = opened(base)
        ids = [each.membership.group_id for each in node.persistent.memberships]
        entries = node.store.last_index
        node.close(is_clean=True)
        assert (ids, entries) in (([GROUP_ID], LAST), ([NEW_ID], LAST + 1)), left
        if ids == [GROUP_ID]:
            recovered(base)
        found.append((ids[0], is_between))
        if files.left:
            break
    assert (NEW_ID, False) == found[-1]
    assert {(GROUP_ID, False), (NEW_ID, True), (NEW_ID, False)} == set(found)
