"""A restored node has the entries of the backup up to the chosen end, and belongs to a new group."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cluster.backup import create, restore
from cluster.backup.errors import BackupDamaged, NoBackup
from cluster.backup.log_copy import WrongSizes
from cluster.backup.restore import DirectoryInUse, NewNode, Restore, RestoredLog, RestoreEnd
from cluster.cli.entry_kinds import AnyLogChecks
from commitlog.record.encoder import RecordEncoder
from commitlog.record.record import decode
from commitlog.record.system_records import STAMP_AT, MessageEntryCodec
from dledger.config import Address, NodeConfig, Peer
from dledger.entries.format.codec import RAW_ENTRY_CODEC
from dledger.node.files import NodeFiles
from dledger.types import Member, Membership
from store.fs.linux.files import OsFiles
from store.model.message import LOOPBACK, Message
from tests.unit.cluster.backup.logs import GROUP_ID, SIZES, StoredLog, append, back_up, bodies_of, folder_of, new_log

if TYPE_CHECKING:
    from dledger.entries.store import EntryStore

NEW_MEMBERS = Membership((Member("r0", "127.0.0.1:1"), Member("r1", "127.0.0.1:2")))
NODE = NewNode("", "r0", "restored", NEW_MEMBERS, SIZES, lambda _: RAW_ENTRY_CODEC)


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(create, "PART_SIZE_BYTES", 3000)


@pytest.fixture
def log(tmp_path: Path) -> StoredLog:
    """Return a raw log in two terms, with a backup in `b`."""
    log = new_log(tmp_path / "log", bodies_of(150))
    append(log, bodies_of(100, 150), term=4)
    back_up(tmp_path / "b", log)
    return log


def restored(tmp_path: Path, node: NewNode = NODE, *, run: str = "1", **end: int) -> RestoredLog:
    node = replace(node, base_directory=str(tmp_path / "data"))
    folder = folder_of(tmp_path / "b")
    task = Restore(OsFiles(), folder, folder.existing(), node, checks=AnyLogChecks(), end=RestoreEnd(**end), run=run)
    return task.run(lambda low, _: low + 7)


def opened(tmp_path: Path, node_id: str = "r0", codec: object = RAW_ENTRY_CODEC) -> NodeFiles:
    """Open the directory as a node does."""
    peers = tuple(Peer(each.id, Address.parse(each.address)) for each in NEW_MEMBERS.members)
    config = NodeConfig(
        self_id=node_id,
        group="restored",
        peers=peers,
        client_address=Address("127.0.0.1", 9),
        store_base_dir=str(tmp_path / "data"),
        mapped_file_size_for_entry_data=SIZES.data_file_size_bytes,
        mapped_file_size_for_entry_index=SIZES.index_file_size_bytes,
    )
    return NodeFiles.open(OsFiles(), config, lambda low, _: low, has_state_machine=False, codec=codec)


def content(store: EntryStore, last_index: int) -> list[tuple[object, ...]]:
    """Return all that a reader sees of the entries, without the group ids in memberships."""
    entries = [store.get(index) for index in range(store.begin_index, last_index + 1)]
    return [(each.index, each.term, each.position, each.magic, each.channel, anonymous(each.body)) for each in entries]


def anonymous(body: bytes) -> bytes:
    without = re.sub(rb'(?<="groupId":")[0-9a-f]{16}', b"", body)
    # In a record its checksum is different, too.
    return without if without == body or body.startswith(b"{") else without[:8] + without[12:]


def group_ids(store: EntryStore) -> set[str]:
    """Return the group ids of all memberships in a log, whose records are sound."""
    entries = [store.get(index) for index in range(store.begin_index, store.last_index + 1)]
    found = [store.codec.decode(each.magic, each.channel, each.body) for each in entries]
    for each, membership in zip(entries, found, strict=True):
        if membership is not None and each.channel:
            assert decode(memoryview(each.body), 0).check(physical_offset=each.position + 48) is None
    return {f"{membership.group_id:016x}" for membership in found if membership is not None}


def test_restored_node_has_the_same_entries_and_is_a_voter_of_the_new_group(tmp_path: Path, log: StoredLog) -> None:
    found = restored(tmp_path)

    files = opened(tmp_path)
    assert RestoredLog(0, 250, 4, 0, -1, found.group_id) == found
    assert content(log.store, 250) == content(files.store, 250)
    # A new member learns no other group id from the log.
    assert {found.group_id} == group_ids(files.store)
    assert {f"{GROUP_ID:016x}"} == group_ids(log.store)
    assert 251 == files.store.last_index
    membership = replace(NEW_MEMBERS, group_id=int(found.group_id, 16))
    added = files.store.get(251)
    assert (membership, 5) == (RAW_ENTRY_CODEC.decode(added.magic, added.channel, added.body), added.term)
    assert [(251, membership)] == [(each.index, each.membership) for each in files.persistent.memberships]
    state = files.persistent.hard_state
    assert (5, None, False, 0) == (state.term, state.voted_for, state.is_founding, state.incarnation)
    # All entries count as committed at once.
    assert (251, 251) == (files.store.recovered_checkpoint.end_index, files.store.recovered_checkpoint.committed_index)
    assert () == files.store.recovery_notes
    assert not (tmp_path / "data/dledger-r0.restoring").exists()
    files.close(is_clean=True)


def test_all_nodes_of_a_restore_have_the_same_log_and_id(tmp_path: Path, log: StoredLog) -> None:
    found = [restored(tmp_path, replace(NODE, node_id=each.id)) for each in NEW_MEMBERS.members]

    assert found[0] == found[1]
    files = [opened(tmp_path, each.id) for each in NEW_MEMBERS.members]
    assert content(files[0].store, 251) == content(files[1].store, 251)
    for each in files:
        each.close(is_clean=True)


@pytest.mark.parametrize("case", ["run", "end", "members", "group"])
def test_nodes_that_were_restored_differently_have_different_groups(tmp_path: Path, log: StoredLog, case: str) -> None:
    first = restored(tmp_path)
    node = replace(NODE, node_id="r1")
    if case == "run":
        second = restored(tmp_path, node, run="2")
    elif case == "end":
        second = restored(tmp_path, node, index=249)
    elif case == "members":
        second = restored(tmp_path, replace(node, membership=Membership(NEW_MEMBERS.members[1:])))
    else:
        second = restored(tmp_path, replace(node, group="another"))

    assert 3 == len({first.group_id, second.group_id, f"{GROUP_ID:016x}"})


@pytest.mark.parametrize("index", [0, 1, 149, 150, 151, 249])
def test_log_ends_at_the_chosen_index(tmp_path: Path, log: StoredLog, index: int) -> None:
    found = restored(tmp_path, index=index)

    term = log.store.term_at(index)
    assert (index, term, 250 - index) == (found.last_index, found.last_term, found.left_out)
    files = opened(tmp_path)
    assert content(log.store, index) == content(files.store, index)
    assert (index + 1, term + 1) == (files.store.last_index, files.store.last_term)
    files.close(is_clean=True)


@pytest.mark.parametrize("index", [251, 1 << 40])
def test_end_beyond_the_backup_is_refused(tmp_path: Path, log: StoredLog, index: int) -> None:
    with pytest.raises(NoBackup, match=f"expected entry {index} in the backup, found entries 0 to 250"):
        restored(tmp_path, index=index)
    assert not (tmp_path / "data").exists()


def test_log_without_its_beginning_begins_where_the_backup_does(tmp_path: Path, log: StoredLog) -> None:
    log.store.delete_before(100)
    for each in sorted((tmp_path / "b").rglob("*"), reverse=True):
        each.rmdir() if each.is_dir() else each.unlink()
    back_up(tmp_path / "b", log)
    begin = log.store.begin_index

    found = restored(tmp_path)

    files = opened(tmp_path)
    assert begin == found.first_index > 0
    assert log.store.begin_position == files.store.begin_position
    assert content(log.store, 250) == content(files.store, 250)
    files.close(is_clean=True)


def test_damaged_backup_makes_no_directory(tmp_path: Path, log: StoredLog) -> None:
    part = sorted((tmp_path / "b/parts").iterdir())[2]
    part.write_bytes(part.read_bytes()[:-1] + b"?")

    with pytest.raises(BackupDamaged):
        restored(tmp_path)
    assert not (tmp_path / "data/dledger-r0").exists()


def test_interrupted_restore_can_be_repeated(tmp_path: Path, log: StoredLog, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(restore, "complete", lambda *_, **__: pytest.fail("the process ends here"))
        with pytest.raises(pytest.fail.Exception):
            restored(tmp_path)
    assert [tmp_path / "data/dledger-r0.restoring"] == list((tmp_path / "data").iterdir())

    restored(tmp_path)

    files = opened(tmp_path)
    assert content(log.store, 250) == content(files.store, 250)
    files.close(is_clean=True)


@pytest.mark.parametrize("name", ["dledger-r0", "consumequeue"])
def test_existing_store_is_not_touched(tmp_path: Path, log: StoredLog, name: str) -> None:
    (tmp_path / "data" / name).mkdir(parents=True)

    with pytest.raises(DirectoryInUse, match=name):
        restored(tmp_path, replace(NODE, other_names=("consumequeue",)))
    assert [name] == [each.name for each in (tmp_path / "data").iterdir()]


def test_other_file_size_is_refused_with_the_setting(tmp_path: Path, log: StoredLog) -> None:
    sizes = replace(SIZES, data_file_size_bytes=8192)

    with pytest.raises(WrongSizes, match="mapped_file_size_for_entry_data"):
        restored(tmp_path, replace(NODE, sizes=sizes))
    assert not (tmp_path / "data/dledger-r0").exists()


def test_raw_log_is_not_restored_for_a_broker_and_has_no_times(tmp_path: Path, log: StoredLog) -> None:
    with pytest.raises(NoBackup, match="a log of raw entries"):
        restored(tmp_path, replace(NODE, has_messages=True))
    with pytest.raises(NoBackup, match="raw entries: name its last index"):
        restored(tmp_path, time_ms=5)


# ------------------------------------------------------------------------------------------------------- messages


def log_of_messages(path: Path) -> StoredLog:
    """Return a log of 40 messages, stored at 1000, 1010, 1020 …, two of each time."""
    codec = MessageEntryCodec(lambda: 1000)
    log = new_log(path, [], codec=codec)
    encoder = RecordEncoder(LOOPBACK)
    for number in range(40):
        time_ms = 1000 + number // 2 * 10
        body = encoder.prepare([Message("orders", b"%d" % number)]).encode_each([number], time_ms)[0]
        append(log, [body], term=2, stamp_at=STAMP_AT)
    return log


@pytest.mark.parametrize(("time_ms", "messages"), [(1000, 2), (1009, 2), (1010, 4), (1189, 38), (1190, 40), (5000, 40)])
def test_log_ends_before_the_first_message_that_was_stored_later(tmp_path: Path, time_ms: int, messages: int) -> None:
    log = log_of_messages(tmp_path / "log")
    manifest = back_up(tmp_path / "b", log)
    node = replace(NODE, new_codec=lambda at: MessageEntryCodec(lambda: at), has_messages=True)

    found = restored(tmp_path, node, time_ms=time_ms)

    assert 1190 == manifest.last_time_ms
    assert (messages, 40 - messages) == (found.last_index, found.left_out)
    assert 1000 + (messages // 2 - 1) * 10 == found.last_time_ms
    files = opened(tmp_path, codec=MessageEntryCodec(lambda: 0))
    assert content(log.store, messages) == content(files.store, messages)
    assert {found.group_id} == group_ids(files.store)
    files.close(is_clean=True)


def test_messages_are_not_restored_for_a_node_of_raw_entries(tmp_path: Path) -> None:
    back_up(tmp_path / "b", log_of_messages(tmp_path / "log"))
    with pytest.raises(NoBackup, match="expected a log of raw entries"):
        restored(tmp_path)
