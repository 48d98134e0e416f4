"""`dledger verify` finds every kind of damage and names its place; readable data is read; rebuild repairs the rest."""

import json
import random
import struct

import pytest
from typer.testing import CliRunner

from cluster.cli.app import app
from commitlog.offline.directory import find_store
from commitlog.offline.verify import StoreParts, Verification
from commitlog.record.record import decode
from store.fs.read_only_files import ReadOnlyFiles
from store.model.finding import Area

SEED = 20261121
FLIPS = 250
ITEMS_BEGIN = 40 + 4 * 100


@pytest.fixture
def store(unpack):
    """Return the folder of an intact store."""
    return unpack("plain-clean")


def dledger(*arguments):
    return CliRunner().invoke(app, [*map(str, arguments)])


def findings_of(folder):
    files = ReadOnlyFiles()
    return list(Verification(StoreParts(files, find_store(files, str(folder)))).findings())


def change(path, position, content):
    """Overwrite bytes of a file; return the old ones."""
    data = bytearray(path.read_bytes())
    before = bytes(data[position : position + len(content)])
    data[position : position + len(content)] = content
    path.write_bytes(data)
    return before


def only_finding(folder):
    (finding,) = findings_of(folder)
    assert not finding.is_unfinished
    return finding


def queue_file(store, topic="TopicTest", queue_id=2):
    return store / "consumequeue" / topic / str(queue_id) / f"{0:020d}"


def index_file(store):
    (path,) = (store / "index").iterdir()
    return path


# ------------------------------------------------------------------------------------------------- flipped bytes


def unprotected(message, record):
    """Return the ranges of a record in which no checksum, no unit and no item can show a change (RocketMQ's format)."""
    fields = 88 + (12 if message["sysFlag"] & 0x10 else 0) + (12 if message["sysFlag"] & 0x20 else 0)
    ranges = [
        (16, 20),
        (36, fields - 4),
    ]  # flag; sys_flag, born and store time and host, reconsume times, prepared offset
    if not record.body_size:
        ranges.append((8, 12))
    properties = record.size - len(record.properties_raw)
    ranges.append((properties, record.size))
    if message["sysFlag"] & 0xC in (4, 12):  # in no queue
        ranges += [(12, 16), (20, 28)]
    if message["sysFlag"] & 0xC == 12 or not (message["keys"] or message["uniqKey"]):
        ranges.append((fields + record.body_size, properties - 2))
    return ranges


def may_be_silent(path, position, messages):
    if path.name in {"abort.bak", "lock"}:
        return True
    if path.parent.name != "commitlog":
        # masterFlushedOffset: the state of another machine, which is not known here.
        return path.name == "checkpoint" and 24 <= position < 32
    offset, view = int(path.name) + position, memoryview(path.read_bytes())
    for message in messages:
        begin = message["physicalOffset"]
        if begin <= offset < begin + message["size"]:
            record = decode(view, begin - int(path.name))
            return any(low <= offset - begin < high for low, high in unprotected(message, record))
    return False


def places(store, seed):
    """Return places (file, position) all over the store, as many in each kind of file."""
    source = random.Random(seed)
    kinds = [
        sorted((store / "commitlog").iterdir()),
        sorted((store / "consumequeue").rglob("*/*/*")),
        [index_file(store)],
        [store / "checkpoint"],
    ]
    for kind in kinds:
        for _ in range(FLIPS // len(kinds)):
            path = source.choice(kind)
            yield path, source.randrange(path.stat().st_size), 1 << source.randrange(8)


def test_flipped_bits_that_the_format_can_detect_are_reported(store, manifest):
    messages, silent = manifest("plain-clean"), []
    for path, position, bit in places(store, SEED):
        is_excused = may_be_silent(path, position, messages)
        before = change(path, position, bytes([path.read_bytes()[position] ^ bit]))

        findings = findings_of(store)

        change(path, position, before)
        if not findings and not is_excused:
            silent.append((path.relative_to(store), position, bit))
        if findings and path.parent.name != "commitlog":
            assert {finding.path for finding in findings} == {str(path)}, (SEED, path, position, bit, findings)
    assert silent == [], SEED
    assert findings_of(store) == []


def test_flipped_bits_of_bodies_are_found_at_their_record_and_all_other_messages_are_read(store, manifest):
    messages = manifest("plain-clean")
    victims = [message for message in messages if len(message["body"]) > 100][::12]
    for victim in victims:
        offset = victim["physicalOffset"]
        path = store / "commitlog" / f"{offset - offset % 65536:020d}"
        before = change(path, offset % 65536 + 100, b"\xff\x00\xff")

        result = dledger("inspect", "messages", store, "--format", "jsonl")
        findings = [finding for finding in findings_of(store) if finding.area is Area.LOG]

        change(path, offset % 65536 + 100, before)
        assert result.exit_code == 1
        found = [json.loads(line)["physicalOffset"] for line in result.stdout.splitlines()]
        assert found == [message["physicalOffset"] for message in messages if message is not victim]
        assert [(finding.path, finding.position) for finding in findings] == [(str(path), offset % 65536)]
        assert "CRC-32" in findings[0].expected
        assert f"{victim['size']} bytes cannot be read" in findings[0].meaning


@pytest.mark.parametrize("size", [0, 1, 91, 0x7FFFFFFF, -1])
def test_record_with_a_wrong_size_misleads_no_reader(store, manifest, size):
    messages = manifest("plain-clean")
    offset = messages[40]["physicalOffset"]
    change(store / "commitlog" / f"{0:020d}", offset, struct.pack(">i", size))

    result = dledger("inspect", "messages", store, "--format", "jsonl")

    assert result.exit_code == 1
    assert len(result.stdout.splitlines()) == 149
    assert f"at byte {offset}: expected" in result.stderr


# ---------------------------------------------------------------------------------------------- queues and index


def test_unit_that_points_past_the_log_is_found(store):
    path = queue_file(store)
    count = sum(1 for at in range(0, 1000, 20) if any(path.read_bytes()[at : at + 20]))
    change(path, count * 20, struct.pack(">qiq", 1 << 40, 100, 0))

    finding = only_finding(store)

    assert (finding.path, finding.position) == (str(path), count * 20)
    assert "they point past the log's end" in finding.meaning


def test_missing_and_foreign_units_are_found(store):
    path = queue_file(store)
    change(path, 60, bytes(20))
    assert "unit 3 of TopicTest/2" in only_finding(store).expected

    change(path, 60, struct.pack(">qiq", 0, 202, 5))
    finding = only_finding(store)
    assert (finding.path, finding.position) == (str(path), 60)
    assert finding.found == "offset 0, size 202, tags code 5"


def test_lost_end_of_a_queue_is_one_finding_with_its_count(store):
    path = queue_file(store)
    units = path.read_bytes().rstrip(b"\0")
    path.write_bytes(units[:100] + bytes(900))

    finding = only_finding(store)

    assert finding.position == 100
    assert finding.count == -(-len(units) // 20) - 5
    assert "dledger rebuild" in finding.remedy


def test_loop_in_the_index_is_found_and_named(store):
    change(index_file(store), ITEMS_BEGIN + 20 * 50 + 16, struct.pack(">i", 50))

    finding = only_finding(store)

    assert (finding.path, finding.position) == (str(index_file(store)), ITEMS_BEGIN + 20 * 50 + 16)
    assert "a loop" in finding.meaning


def test_changed_slot_hash_offset_and_time_of_the_index_are_found_each_at_its_place(store):
    path = index_file(store)
    for position, meaning in (
        (40 + 4 * 17 + 3, "slot"),
        (ITEMS_BEGIN + 20 * 30 + 3, "key hash"),
        (ITEMS_BEGIN + 20 * 30 + 10, "key hash"),
        (ITEMS_BEGIN + 20 * 30 + 15, "seconds"),
        (3, "begin timestamp"),
        (39, "index count"),
    ):
        before = change(path, position, bytes([path.read_bytes()[position] ^ 1]))
        findings = findings_of(store)
        change(path, position, before)
        assert any(meaning in finding.expected for finding in findings), (position, findings)
        assert all(finding.path == str(path) for finding in findings)


# ------------------------------------------------------------------------------------------------- files and sizes


@pytest.mark.parametrize(
    ("name", "size", "text"),
    [
        ("commitlog/00000000000000000000", 30_000, "expected 65536 bytes, found 30000"),
        ("commitlog/00000000000000065536", 10_000, "expected 65536 bytes, found 10000"),
        ("consumequeue/TopicTest/2/00000000000000000000", 90, "TopicTest/2/00000000000000000000: at byte 0: expected"),
        ("index/*", 4000, "the size of an index file"),
        ("checkpoint", 100, "expected 4096 bytes, found 100 bytes"),
    ],
)
def test_truncated_files_are_found_and_what_is_left_is_read(store, name, size, text):
    (path,) = store.glob(name)
    path.write_bytes(path.read_bytes()[:size])

    result = dledger("verify", store)
    shown = dledger("inspect", "messages", store, "--format", "jsonl")

    assert result.exit_code == 1
    assert text in result.stderr
    assert "Traceback" not in result.output + shown.output
    assert len(shown.stdout.splitlines()) == (150 if not name.startswith("commitlog") else shown.stdout.count("\n"))
    if name.endswith("65536"):
        assert len(shown.stdout.splitlines()) > 119


def test_missing_log_file_is_named_and_later_ones_are_read(unpack):
    store = unpack("plain-clean")
    (store / "commitlog" / f"{0:020d}").rename(store / "gone")
    result = dledger("inspect", "messages", store, "--format", "jsonl")
    assert len(result.stdout.splitlines()) == 31  # an older file is gone: as after retention

    third = store / "commitlog" / f"{131072:020d}"
    (store / "gone").rename(store / "commitlog" / f"{0:020d}")
    (store / "commitlog" / f"{65536:020d}").rename(third)
    result = dledger("verify", store)
    assert result.exit_code == 1
    assert f"{third}: at byte 0: expected" in result.stderr


def test_expired_log_files_are_no_fault_of_queues_and_index(store):
    (store / "commitlog" / f"{0:020d}").unlink()

    assert findings_of(store) == []
    assert dledger("rebuild", store).exit_code == 0
    assert findings_of(store) == []
    queues = [json.loads(line) for line in dledger("inspect", "queue", store, "--format", "jsonl").stdout.splitlines()]
    # A queue without messages keeps its next offset, and none starts again at 0.
    assert sum(row["maxOffset"] for row in queues) == 142


@pytest.mark.parametrize("name", ["commitlog/notes.txt", "consumequeue/TopicTest/2/x", "index/x", "consumequeue/T/x/y"])
def test_foreign_files_are_named_and_do_no_harm(store, name):
    path = store / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("not ours")

    result = dledger("verify", store)

    assert result.exit_code == 1
    assert "Move " in result.stderr
    assert "1 place of damage, 0 unfinished" in result.stderr
    assert len(dledger("inspect", "messages", store, "--format", "jsonl").stdout.splitlines()) == 150


def test_error_of_a_directory_without_a_store_names_what_was_expected_and_found(tmp_path):
    (tmp_path / "photos").mkdir()
    for command in (("inspect", "messages"), ("inspect", "queue"), ("verify",), ("rebuild",), ("export",)):
        result = dledger(*command, tmp_path)
        assert result.exit_code == 2
        assert "expected commitlog/ (RocketMQ), dledger-<id>/data/ (DLedger)" in result.stderr
        assert "found photos" in result.stderr
        assert "is missing" in dledger(*command, tmp_path / "absent").stderr
    file = tmp_path / "file"
    file.write_text("x")
    assert "is not a directory" in dledger("verify", file).stderr


@pytest.mark.parametrize("bound", ["yesterday", "-1", "@x", "1.5"])
def test_error_of_a_bound_that_is_none_names_a_valid_one(store, bound):
    result = dledger("inspect", "messages", store, f"--from={bound}")

    assert result.exit_code == 2
    assert "expected a queue offset (42), a time" in result.stderr


# ------------------------------------------------------------------------------------------------- entries, rebuild


def test_damaged_entry_of_a_replicated_store_is_found_in_its_record(unpack, manifest):
    store, messages = unpack("dledger"), manifest("dledger")
    victim = next(message for message in messages[30:] if len(message["body"]) > 100)
    path = store / "dledger-n0" / "data" / f"{0:020d}"
    change(path, victim["physicalOffset"] + 100, b"\xff\x00\xff")

    result = dledger("inspect", "messages", store, "--format", "jsonl")
    findings = [finding for finding in findings_of(store) if finding.area is Area.LOG]

    assert len(result.stdout.splitlines()) == 149
    assert [(finding.path, finding.position) for finding in findings] == [(str(path), victim["physicalOffset"] - 48)]


def test_index_unit_of_an_entry_that_is_wrong_is_found(unpack):
    store = unpack("raw-dledger")
    change(store / "dledger-n0" / "index" / f"{0:020d}", 32 * 7 + 4, struct.pack(">q", 12))

    result = dledger("verify", store)

    assert result.exit_code == 1
    assert "entry 7 at position" in result.stderr


def test_rebuild_refuses_a_damaged_log_and_leaves_everything_as_it_is(store, manifest):
    offset = manifest("plain-clean")[40]["physicalOffset"]
    change(store / "commitlog" / f"{0:020d}", offset + 4, b"junk")
    queue_file(store).write_bytes(bytes(1000))
    before = {path: path.read_bytes() for path in store.rglob("*") if path.is_file()}

    result = dledger("rebuild", store)

    assert result.exit_code == 1
    assert f"at byte {offset}: expected magic" in result.stderr
    assert "--skip-damaged" in result.stderr
    assert {path: path.read_bytes() for path in store.rglob("*") if path.is_file()} == before

    done = dledger("rebuild", store, "--skip-damaged", "--keep-old")
    assert done.exit_code == 0, done.output
    assert "149 messages" in done.stdout
    assert (store / "rebuild.old" / "consumequeue").is_dir()
    left = findings_of(store)
    assert [finding.area for finding in left] == [Area.LOG], left


def test_one_changed_bit_of_the_last_record_is_no_torn_write(store, manifest):
    """A start of the store refuses it, so verify must not say that the start cuts it."""
    last = manifest("plain-clean")[-1]
    path, position = store / "commitlog" / f"{65536:020d}", last["physicalOffset"] - 65536 + 92
    change(path, position, bytes([path.read_bytes()[position] ^ 4]))
    (store / "abort").touch()

    result = dledger("verify", store)

    assert "one changed bit in the last record" in result.stderr
    assert "--skip-damaged" in result.stderr
    assert dledger("rebuild", store).exit_code == 1
    assert "149 messages" in dledger("rebuild", store, "--skip-damaged").stdout


@pytest.mark.parametrize("options", [[], ["--skip-damaged"]])
def test_rebuild_refuses_a_log_file_that_is_too_long_and_verify_says_how_to_cut_it(store, options):
    path = store / "commitlog" / f"{0:020d}"
    content = path.read_bytes()
    path.write_bytes(content + b"junk" * 25)
    queue_file(store).write_bytes(bytes(1000))

    refused = dledger("rebuild", store, *options)

    command = f"truncate -s {len(content)} {path}"
    assert (refused.exit_code, command in refused.stderr) == (1, True), refused.stderr
    assert "--skip-damaged leaves it as it is" in refused.stderr
    assert queue_file(store).read_bytes() == bytes(1000)
    assert command in dledger("verify", store).stderr
    path.write_bytes(content)
    assert dledger("rebuild", store, *options).exit_code == 0


def test_rebuild_refuses_a_damaged_end_of_a_log_that_was_closed_cleanly_and_takes_a_torn_one(store, manifest):
    last = manifest("plain-clean")[-1]
    change(store / "commitlog" / f"{65536:020d}", last["physicalOffset"] - 65536 + 4, b"junk")

    refused = dledger("rebuild", store)
    (store / "abort").touch()
    done = dledger("rebuild", store)

    assert (refused.exit_code, done.exit_code) == (1, 0)
    assert "the log's end is damaged" in refused.stderr
    assert "149 messages" in done.stdout
    assert "a torn tail" in done.stderr


def test_rebuild_repairs_any_damage_of_queues_index_and_checkpoint(store):
    source = random.Random(SEED)
    for path in [*(store / "consumequeue").rglob("*/*/*"), index_file(store), store / "checkpoint"]:
        path.write_bytes(source.randbytes(source.choice([0, 7, path.stat().st_size])))

    assert dledger("verify", store).exit_code == 1
    assert (
        dledger("rebuild", store, "--queue-file-size", 1000, "--index-slots", 100, "--index-items", 400).exit_code == 0
    )

    assert findings_of(store) == []
