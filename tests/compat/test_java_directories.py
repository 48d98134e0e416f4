"""Directories of the Java program open in place, are read entry by entry, and are appended to; Java's entries stay."""

import hashlib
import json
import shutil
from dataclasses import replace
from random import Random

import pytest
from typer.testing import CliRunner

from cluster.cli.app import app
from dledger.config import Address, NodeConfig, Peer
from dledger.entries.log_head import LogHeadFile
from dledger.entries.store import EntryStore, EntryStoreConfig
from dledger.node.files import NodeFiles
from dledger.storage.hard_state import HardStateFile
from dledger.storage.identity import WrongDirectory
from dledger.types import HardState
from store.errors import CorruptData, WrongFileSize
from store.fs.linux.files import OsFiles

CONFIG = EntryStoreConfig(data_file_size_bytes=65536, index_file_size_bytes=1600)
DIRECTORIES = {
    "raw-dledger": ("raw-dledger", "dledger-n0", HardState(10, "n0")),
    "n0": ("raw-dledger-3nodes", "n0/dledger-n0", HardState(3, "n0")),
    "n1": ("raw-dledger-3nodes", "n1/dledger-n1", HardState(3, None)),
    "n2": ("raw-dledger-3nodes", "n2/dledger-n2", HardState(3, "n0")),
}


@pytest.fixture(params=DIRECTORIES)
def java(request, unpack, manifest):
    """Return (directory, manifest, hard state) of a node that Java ran."""
    fixture, folder, hard_state = DIRECTORIES[request.param]
    return unpack(fixture) / folder, manifest(fixture), hard_state


def open_store(directory):
    return EntryStore.open(OsFiles(), str(directory), CONFIG)


def described(store, index):
    entry = store.get(index)
    return {
        "index": entry.index,
        "term": entry.term,
        "pos": entry.position,
        "size": entry.size,
        "bodySize": len(entry.body),
        "bodySha256": hashlib.sha256(entry.body).hexdigest(),
        "magic": entry.magic,
        "channel": entry.channel,
        "chainCrc": entry.chain_crc,
        "bodyCrc": entry.body_crc,
    }


def images(directory):
    return {path.relative_to(directory): path.read_bytes() for path in sorted(directory.glob("*/*"))}


def test_inspect_prints_the_manifest_key_for_key_and_changes_nothing(java):
    directory, entries, _ = java
    before = images(directory)

    result = CliRunner().invoke(app, ["inspect", "entries", str(directory), "--format", "jsonl"])

    assert result.exit_code == 0, result.output
    assert [list(json.loads(line).items()) for line in result.output.splitlines()] == [list(e.items()) for e in entries]
    assert images(directory) == before


def test_every_entry_is_what_java_wrote(java):
    directory, entries, _ = java
    before = images(directory)

    store = open_store(directory)

    assert (store.begin_index, store.last_index, store.recovery_notes) == (0, 149, ())
    assert [described(store, index) for index in range(150)] == entries
    assert [store.index_at_position(entry["pos"]) for entry in entries] == list(range(150))
    assert [store.term_at(index) for index in range(150)] == [entry["term"] for entry in entries]
    runs = [run.term for run in store.log_state().term_runs]
    assert runs == sorted({entry["term"] for entry in entries})
    assert store.recovered_checkpoint.end_index == 149
    store.abandon()
    assert images(directory) == before


def test_term_and_vote_are_what_java_saved(java):
    directory, _, hard_state = java

    assert HardStateFile.open(OsFiles(), str(directory)).load() == hard_state


@pytest.mark.parametrize("is_index_deleted", [False, True])
def test_appends_continue_and_the_entries_of_java_stay_unchanged(java, is_index_deleted):
    directory, entries, _ = java
    end = entries[-1]["pos"] + entries[-1]["size"]
    before = images(directory)
    if is_index_deleted:
        shutil.rmtree(directory / "index")

    store = open_store(directory)
    assert bool(store.recovery_notes) == is_index_deleted
    assert {name: content for name, content in images(directory).items() if name in before} == before
    bodies = [b"%d" % number * (number % 900) for number in range(400)]
    positions = store.append(bodies, 150, 11)
    assert positions[0] == end
    store.truncate(500)
    store.append([b"after a cut"], 500, 12)
    store.close()

    store = open_store(directory)
    assert (store.last_index, store.recovery_notes) == (500, ())
    assert [described(store, index) for index in range(150)] == entries
    assert [store.get(150 + number).body for number in range(350)] == bodies[:350]
    store.abandon()
    after = images(directory)
    written = b"".join(content for name, content in after.items() if name.parts[0] == "data")
    assert written[:end] == b"".join(content for name, content in before.items() if name.parts[0] == "data")[:end]
    units = b"".join(content for name, content in after.items() if name.parts[0] == "index")
    assert (
        units[: 150 * 32]
        == b"".join(content for name, content in before.items() if name.parts[0] == "index")[: 150 * 32]
    )


def test_first_entry_of_ours_begins_a_chain_and_java_entries_stay_without(java):
    directory, _, _ = java
    store = open_store(directory)

    store.append([b"ours", b"ours too"], 150, 11)

    assert [(store.get(index).chain_crc > 0, store.get(index).body_crc > 0) for index in (149, 150, 151)] == [
        (False, False),
        (True, True),
        (True, True),
    ]


def test_entries_of_java_travel_to_a_new_follower(java, tmp_path):
    directory, entries, _ = java
    leader, follower = open_store(directory), open_store(tmp_path / "follower")
    leader.append([b"ours"] * 10, 150, 11)

    while follower.last_index < leader.last_index:
        first_index = follower.last_index + 1
        last_index = leader.fit(first_index, leader.last_index, 8192).last_index
        span, payload = (
            leader.span_of(first_index, last_index),
            leader.read_span(leader.span_of(first_index, last_index)),
        )
        prev_term = leader.term_at(first_index - 1) if first_index else -1
        follower.check_push(span, payload, prev_term)
        follower.append_encoded(span, payload, first_index)

    assert [described(follower, index) for index in range(150)] == entries
    assert follower.log_state() == leader.log_state()


def test_three_nodes_of_java_hold_the_same_log(unpack):
    folder = unpack("raw-dledger-3nodes")
    stores = [open_store(folder / name / f"dledger-{name}") for name in ("n0", "n1", "n2")]

    logs = [[store.get(index) for index in range(150)] for store in stores]

    assert logs[0] == logs[1] == logs[2]


def test_missing_tail_below_the_checkpoint_of_java_is_refused(java):
    directory, entries, _ = java
    last = entries[-1]
    path = directory / "data" / f"{last['pos'] - last['pos'] % 65536:020d}"
    with path.open("r+b") as stream:
        stream.seek(last["pos"] % 65536)
        stream.write(bytes(last["size"]))

    with pytest.raises(CorruptData, match="entries up to 149 were durable here"):
        open_store(directory)
    (directory / "checkpoint").unlink()
    store = open_store(directory)
    assert store.last_index == 148


def test_other_file_sizes_than_those_of_the_directory_are_refused(java):
    directory, _, _ = java

    for config in (EntryStoreConfig(32768, 1600), EntryStoreConfig(1 << 20, 1600), EntryStoreConfig(65536, 3200)):
        with pytest.raises(WrongFileSize, match=r"Start with the file size that this directory was written with"):
            EntryStore.open(OsFiles(), str(directory), config)
    assert open_store(directory).last_index == 149


def test_adopted_log_without_its_first_files_records_its_begin(unpack, manifest):
    base = unpack("raw-dledger")
    directory, entries = base / "dledger-n0", manifest("raw-dledger")
    deleted = sorted(directory.glob("data/*"))[:1]
    for path in deleted:
        path.unlink()
    first = next(entry for entry in entries if entry["pos"] >= CONFIG.data_file_size_bytes)
    settings = {"self_id": "n0", "group": "g", "peers": (Peer("n0", Address("h", 1)),), "store_base_dir": str(base)}
    sizes = {"mapped_file_size_for_entry_data": 65536, "mapped_file_size_for_entry_index": 1600}
    config = NodeConfig(**settings, **sizes, client_address=Address("h", 2))

    with pytest.raises(WrongDirectory):
        NodeFiles.open(OsFiles(), config, Random(1).randrange, has_state_machine=False)
    assert not (directory / "loghead").exists(), "it was not adopted"
    for _ in range(2):
        adopting = replace(config, is_adopting=True)
        opened = NodeFiles.open(OsFiles(), adopting, Random(1).randrange, has_state_machine=False)
        assert (opened.store.begin_index, opened.store.last_index) == (first["index"], 149)
        opened.close(is_clean=True)
        head = LogHeadFile.open(OsFiles(), str(directory)).load()
        assert (head.begin_index, head.begin_position) == (first["index"], first["pos"])
