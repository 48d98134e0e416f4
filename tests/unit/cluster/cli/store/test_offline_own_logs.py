"""The offline commands on a replicated log of messages of this program: a leader's own records are hidden."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from cluster.cli.app import app
from commitlog.conversion.base_log_files import BaseLogManifest
from commitlog.conversion.saved_manifest import save_manifest
from commitlog.record.encoder import RecordEncoder
from commitlog.record.system_records import STAMP_AT, MessageEntryCodec
from dledger.entries.membership_file import MembershipFile
from dledger.entries.store import EntriesTicket, EntryStore, EntryStoreConfig
from dledger.storage.hard_state import HardStateFile
from dledger.storage.identity import IdentityFile
from dledger.types import NO_INDEX, NO_TERM, HardState, Member, Membership, MembershipEntry
from store.fs.linux.files import OsFiles
from store.model.message import LOOPBACK, Message
from store.model.topics import DLEDGER_TOPIC

NOW = 1_795_227_552_330
DATA_FILE_SIZE = 4096
MEMBERSHIP = Membership((Member("n0", "h:1"),))


def dledger(*arguments: object) -> Result:
    return CliRunner().invoke(app, [*map(str, arguments)])


def rows(result: Result) -> list[dict[str, object]]:
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


def open_entries(root: Path, codec: MessageEntryCodec) -> EntryStore:
    sizes = EntryStoreConfig(DATA_FILE_SIZE, 32 * 100)
    return EntryStore.open(OsFiles(), node_directory(root), sizes, codec=codec)


def node_directory(root: Path) -> str:
    return str(root / "dledger-n0")


def save_small_files(root: Path) -> None:
    """Write the files of a node before its first entry: identity, term and vote, members, the base log."""
    files, directory = OsFiles(), node_directory(root)
    IdentityFile(files, directory).begin("n0", "g", has_state=False, is_adopting=False, draw=random.Random(1).randrange)
    HardStateFile.open(files, directory).save(HardState(2, "n0"))
    MembershipFile.open(files, directory).save([MembershipEntry(NO_INDEX, MEMBERSHIP)])
    save_manifest(files, directory, BaseLogManifest(0), is_agreed=True)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Write the log of a node: forty messages, with no-ops of two terms and a membership between them."""
    codec = MessageEntryCodec(clock=lambda: NOW)
    entries = open_entries(tmp_path, codec)
    encoder = RecordEncoder(LOOPBACK)

    def append_own(entry, term: int) -> None:
        entries.append(
            [entry.body], entries.last_index + 1, term, magic=entry.magic, channel=entry.channel, stamp_at=STAMP_AT
        )

    append_own(codec.no_op(), 1)
    for first in range(0, 40, 10):
        numbers = range(first, first + 10)
        messages = [
            Message("orders", b"body %d " % n * 9, n % 2, {"KEYS": f"k{n}", "UNIQ_KEY": f"{n:032X}"}) for n in numbers
        ]
        bodies = encoder.prepare(messages).encode_each([n // 2 for n in numbers], NOW + first)
        entries.append(bodies, entries.last_index + 1, 1 + first // 20, stamp_at=STAMP_AT)
        if first == 10:
            append_own(codec.membership(MEMBERSHIP), 1)
            append_own(codec.no_op(), 2)
    entries.close()
    save_small_files(tmp_path)
    return tmp_path


def test_messages_are_shown_without_a_leaders_own_which_are_shown_among_the_entries(store: Path) -> None:
    messages = rows(dledger("inspect", "messages", store, "--format", "jsonl"))
    entries = rows(dledger("inspect", "entries", store, "--format", "jsonl"))

    assert [message["keys"] for message in messages] == [f"k{n}" for n in range(40)]
    assert rows(dledger("inspect", "messages", store, "--topic", DLEDGER_TOPIC, "--format", "jsonl")) == []
    of_clients = [entry for entry in entries if not entry["channel"]]
    assert [message["physicalOffset"] for message in messages] == [entry["pos"] + 48 for entry in of_clients]
    assert [entry["channel"] for entry in entries if entry["channel"]] == [2, 3, 2]


def test_rebuilt_queues_contain_only_messages_and_verify_passes(store: Path) -> None:
    assert dledger("rebuild", store, "--index-slots", 100, "--index-items", 400).exit_code == 0

    result = dledger("verify", store)
    assert result.exit_code == 0, result.output
    assert "43 entries, 43 index units" in result.stdout
    queues = rows(dledger("inspect", "queue", store, "--format", "jsonl"))
    assert [(row["topic"], row["queueId"], row["minOffset"], row["maxOffset"]) for row in queues] == [
        ("orders", 0, 0, 20),
        ("orders", 1, 0, 20),
    ]
    assert [
        message["uniqKey"] for message in rows(dledger("inspect", "messages", store, "--key", "k17", "--format=jsonl"))
    ] == [f"{17:032X}"]


def test_changed_byte_anywhere_in_an_entry_is_found(store: Path) -> None:
    assert dledger("rebuild", store, "--index-slots", 100, "--index-items", 400).exit_code == 0
    message = rows(dledger("inspect", "messages", store, "--format", "jsonl"))[5]
    begin = int(str(message["physicalOffset"]))
    file = store / "dledger-n0" / "data" / f"{begin - begin % DATA_FILE_SIZE:020d}"
    whole = file.read_bytes()
    for at in range(begin - 48, begin + int(str(message["size"])), 7):
        content = bytearray(whole)
        content[at % DATA_FILE_SIZE] ^= 0x40
        file.write_bytes(content)

        result = dledger("verify", store)

        assert result.exit_code == 1, at
        assert "0 places of damage" not in result.stderr, at
        assert str(file) in result.stderr, at
    file.write_bytes(whole)
    assert dledger("verify", store).exit_code == 0


@pytest.mark.parametrize("first_index", [0, 7])
def test_log_that_begins_above_0_needs_the_file_that_records_it(tmp_path: Path, first_index: int) -> None:
    """RocketMQ writes no such file, and in its mixed stores the entries begin at the end of the base log."""
    codec = MessageEntryCodec(clock=lambda: NOW)
    entries = open_entries(tmp_path, codec)
    entries.reset(first_index, 2 * DATA_FILE_SIZE, NO_TERM)
    own = codec.no_op()
    entries.append([own.body], first_index, 2, magic=own.magic, channel=own.channel, stamp_at=STAMP_AT)
    entries.close()
    save_small_files(tmp_path)
    assert rebuilt_and_verified(tmp_path).exit_code == 0
    (tmp_path / "dledger-n0" / "loghead").unlink()

    result = rebuilt_and_verified(tmp_path)

    assert result.exit_code == (1 if first_index else 0), result.output
    assert ("the start of the log is unknown" in result.stderr) == bool(first_index)


def rebuilt_and_verified(root: Path) -> Result:
    assert dledger("rebuild", root, "--index-slots", 100, "--index-items", 400).exit_code == 0
    return dledger("verify", root)


def test_verify_reports_a_log_that_was_set_aside(tmp_path: Path) -> None:
    entries = EntryStore.open(OsFiles(), node_directory(tmp_path), EntryStoreConfig(DATA_FILE_SIZE, 32 * 100))
    entries.append([b"old"] * 200, 0, 1)
    entries.end_flush(_synced(entries.begin_flush()))
    entries.reset(300, 10 * DATA_FILE_SIZE, 1, caught_up_index=400)
    entries.append([b"new"] * 3, 300, 2)
    entries.close()
    save_small_files(tmp_path)

    result = dledger("verify", tmp_path)

    # How the table breaks its lines depends on the length of the path.
    shown = " ".join(result.stdout.split())
    assert result.exit_code == 0, result.output
    assert "unchecked old log" in shown
    assert "folder aside" in shown
    assert "3 entries" in shown


def _synced(ticket: EntriesTicket) -> EntriesTicket:
    ticket.sync()
    return ticket
