"""Damage of a log that an operator accepts once: later starts skip exactly that, and nothing else."""

import random
from dataclasses import replace

import pytest
from typer.testing import CliRunner

import commitlog.offline.rebuild
from cluster.cli.app import app
from commitlog.conversion.divide import LogDirectories, pad_base_log
from commitlog.plain import accepted_damage
from commitlog.plain.accepted_damage import FILE_NAME, PLACES_MAX, TooMuchDamage, load_accepted
from commitlog.plain.recovery import LastExit
from dledger.entries.config import EntryStoreConfig
from store.errors import CorruptData, ForeignFile, MissingFile, WrongFileSize
from store.fs.linux.files import OsFiles
from store.fs.sealed_json import seal
from tests.support.message_stores import SMALL, Clock, change_checkpoint, numbered, numbers, open_small
from tests.support.store_damage import be_killed, overwrite

SKIPPING = replace(SMALL, is_corruption_skipped=True)
LOG_FILE_SIZE = SMALL.log.mapped_file_size


def dledger(*arguments):
    return CliRunner().invoke(app, list(map(str, arguments)))


def log_file(root, number=0):
    return root / "commitlog" / f"{number * LOG_FILE_SIZE:020d}"


def places_of(root):
    return load_accepted(OsFiles(), str(root)).places


def records_of(root):
    """Return (offset, size) of each record of an intact store."""
    store = open_small(root)
    found, offset = [], 0
    while (batch := store.log.scan(offset, 1 << 20)) is not None:
        found += zip(batch.physical_offsets.tolist(), batch.sizes.tolist(), strict=True)
        offset = batch.next_offset
    store.close()
    return found


def reread(root):
    """Make the next start check the whole log."""
    (root / "checkpoint").unlink(missing_ok=True)
    be_killed(root)


@pytest.fixture
def damaged(root):
    """Return the offset of a record whose body has a changed byte; good records follow in its file."""
    offset, _ = records_of(root)[20]
    overwrite(log_file(root), offset + 100, b"\xff\xfe")
    reread(root)
    return offset


def test_damage_is_accepted_once_and_skipped_at_each_later_start(root, damaged):
    with pytest.raises(CorruptData, match="--skip-damaged"):
        open_small(root)
    assert places_of(root) == ()

    open_small(root, SKIPPING).close()

    (place,) = places_of(root)
    assert place.offset == damaged
    assert "CRC-32" in place.expected
    for _ in range(2):
        reread(root)
        store = open_small(root)
        assert any(f"accepted damage skipped at byte {damaged}" in note for note in store.notes)
        store.messages.put(numbered(7))
        store.close()
    assert places_of(root) == (place,)


@pytest.mark.parametrize("where", ["the same record", "the record after it", "another file"])
def test_new_damage_is_refused_although_other_damage_was_accepted(root, damaged, where):
    open_small(root, SKIPPING).close()
    (place,) = places_of(root)
    at = {"the same record": damaged + 101, "the record after it": place.end_offset + 100}.get(where)
    overwrite(log_file(root, at is None), 100 if at is None else at, b"\xfd")
    reread(root)

    with pytest.raises(CorruptData):
        open_small(root)

    open_small(root, SKIPPING).close()
    reread(root)
    open_small(root).close()


def test_repaired_log_needs_no_list(root, damaged, tmp_path):
    content = log_file(root).read_bytes()
    open_small(root, SKIPPING).close()
    log_file(root).write_bytes(content[: damaged + 100] + b".." + content[damaged + 102 :])
    reread(root)

    store = open_small(root)

    assert not any("accepted" in note for note in store.notes)
    store.close()
    assert dledger("verify", root).exit_code == 0


LISTS = {
    "garbage": b"\xa5" * 300,
    "empty": b"",
    "another format": seal({"format": 2, "places": []}),
    "strange places": seal({"format": 1, "places": [{"offset": "x"}]}),
    "no places": seal({"format": 1, "places": 7}),
    "too many places": seal({"format": 1, "places": [{}] * (PLACES_MAX + 1)}),
    "a negative size": seal(
        {
            "format": 1,
            "places": [{"offset": 0, "size": -1, "crc32c": 0, "expected": "", "found": "", "accepted_at_ms": 0}],
        }
    ),
}


@pytest.mark.parametrize("content", LISTS.values(), ids=LISTS)
def test_damaged_list_is_ignored_and_stops_no_intact_store(root, content):
    offset, _ = records_of(root)[20]
    (root / FILE_NAME).write_bytes(content)

    store = open_small(root)
    reported = [note for note in store.notes if FILE_NAME in note]
    store.close()

    assert len(reported) == 1
    result = dledger("verify", root)
    assert (result.exit_code, "a list of accepted damage" in result.stderr) == (1, True)
    reread(root)
    overwrite(log_file(root), offset + 100, b"\xff")
    with pytest.raises(CorruptData):
        open_small(root)
    open_small(root, SKIPPING).close()
    assert len(places_of(root)) == 1


def test_verify_reports_accepted_damage_as_accepted_and_new_damage_as_damage(root, damaged):
    assert dledger("verify", root).exit_code == 1

    assert dledger("rebuild", root, "--skip-damaged").exit_code == 0

    result = dledger("verify", root)
    assert result.exit_code == 0, result.output
    assert "accepted on 20" in result.stderr
    assert "accepted" in result.stdout
    overwrite(log_file(root), damaged + 101, b"\xfd")
    again = dledger("verify", root)
    assert again.exit_code == 1
    assert "1 place of damage" in again.stderr


def test_rebuild_of_a_log_with_accepted_damage_needs_no_option(root, damaged):
    assert dledger("rebuild", root).exit_code == 1
    open_small(root, SKIPPING).close()

    again = dledger("rebuild", root)

    assert again.exit_code == 0, again.output
    assert "accepted damage" in again.stderr


def test_missing_file_between_others_becomes_zeros_that_are_accepted(root):
    lost = log_file(root, 1)
    assert len(list(lost.parent.iterdir())) > 1
    open_small(root).close()
    store = open_small(root)
    for number in range(300, 900):
        store.messages.put(numbered(number))
    store.close()
    content = lost.read_bytes()
    lost.unlink()
    with pytest.raises(MissingFile):
        open_small(root)

    open_small(root, SKIPPING).close()

    reread(root)
    store = open_small(root)
    assert lost.stat().st_size == LOG_FILE_SIZE
    assert sum(place.size for place in places_of(root)) >= LOG_FILE_SIZE
    assert numbers(store.messages.get("TopicTest", 3, store.messages.max_offset("TopicTest", 3) - 1)) == [899]
    store.close()
    assert dledger("verify", root).exit_code == 0
    lost.write_bytes(content)  # a backup is found later
    reread(root)
    store = open_small(root)
    assert numbers(store.messages.get("TopicTest", 3, store.messages.max_offset("TopicTest", 3) - 1)) == [899]
    store.close()


def test_no_files_are_created_up_to_one_of_another_log_at_a_far_offset(root):
    stray = log_file(root, 500)
    stray.write_bytes(bytes(LOG_FILE_SIZE))
    before = sorted(path.name for path in stray.parent.iterdir())

    for config in (SMALL, SKIPPING):
        with pytest.raises(MissingFile):
            open_small(root, config)

    assert sorted(path.name for path in stray.parent.iterdir()) == before


@pytest.mark.parametrize("name", ["0", "\u0660" * 20, "1"])
def test_no_file_is_created_beside_one_with_a_foreign_name(root, name):
    folder = log_file(root).parent
    (folder / name).write_bytes(b"notes")
    before = sorted(path.name for path in folder.iterdir())

    with pytest.raises(ForeignFile):
        open_small(root, SKIPPING)

    assert sorted(path.name for path in folder.iterdir()) == before


def lose_checkpoint(root, how):
    """Remove all evidence of the durable part of the log; "old": of its later files."""
    path = root / "checkpoint"
    if how == "missing":
        path.unlink()
    elif how == "garbage":
        path.write_bytes(b"\xa5" * path.stat().st_size)
    elif how == "old":
        change_checkpoint(root, physic_msg_timestamp=1_700_000_001_000, log_end=100)


def write_five_files(root):
    """Write 250 messages, fifty or so a file; return what the files of the log hold."""
    clock = Clock()
    store = open_small(root, clock=clock)
    for number in range(250):
        clock.pass_s(1)
        store.messages.put(numbered(number, queues=1, body_size=1000))
    store.close()
    files = {path: path.read_bytes() for path in sorted((root / "commitlog").iterdir())}
    assert len(files) == 5
    return files


def found_in(root, config=SMALL):
    """Return the numbers of all messages that a broker then serves, and the next offset of their queue."""
    store = open_small(root, config)
    end, at, found = store.messages.max_offset("TopicTest", 0), 0, []
    while at < end:
        result = store.messages.get("TopicTest", 0, at)
        found += numbers(result)
        at = result.next_begin_offset
    store.close()
    return found, end


@pytest.mark.parametrize("checkpoint", ["missing", "garbage", "old"])
@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize("way", ["start", "rebuild"])
def test_skipping_a_lost_file_keeps_all_that_follows_it_whatever_the_checkpoint_says(
    tmp_path, way, is_clean, checkpoint
):
    """Zeros in its place look like a lost write: no readable record may be truncated because of it."""
    whole = write_five_files(tmp_path)
    lost = log_file(tmp_path, 2)
    lost.unlink()
    lose_checkpoint(tmp_path, checkpoint)
    if not is_clean:
        be_killed(tmp_path)

    if way == "start":
        found, end = found_in(tmp_path, SKIPPING)
    else:
        assert dledger("rebuild", tmp_path, "--skip-damaged").exit_code == 0
        found, end = found_in(tmp_path)

    assert (found[0], found[-1], end) == (0, 249, 250)
    assert 180 < len(found) < 210
    assert {path: path.read_bytes() for path in whole if path != lost} == {
        path: content for path, content in whole.items() if path != lost
    }
    assert found_in(tmp_path) == (found, end)


@pytest.mark.parametrize("checkpoint", ["missing", "garbage"])
def test_zeroed_file_is_refused_where_no_checkpoint_says_what_was_durable(tmp_path, checkpoint):
    whole = write_five_files(tmp_path)
    lost = log_file(tmp_path, 2)
    lost.write_bytes(bytes(LOG_FILE_SIZE))
    lose_checkpoint(tmp_path, checkpoint)
    be_killed(tmp_path)

    for _ in range(2):
        with pytest.raises(CorruptData, match=r"the checkpoint, .* is missing or damaged.*--skip-damaged") as refusal:
            open_small(tmp_path)
        assert refusal.value.path == str(lost)

    assert all(path.read_bytes() == content for path, content in whole.items() if path != lost)
    found, end = found_in(tmp_path, SKIPPING)
    assert (found[0], found[-1], end) == (0, 249, 250)


@pytest.mark.parametrize("number", [0, -1])
def test_file_that_was_cut_short_gets_zeros(root, number):
    path = sorted((root / "commitlog").iterdir())[number]
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(WrongFileSize):
        open_small(root)

    open_small(root, SKIPPING).close()

    assert path.stat().st_size == LOG_FILE_SIZE
    reread(root)
    open_small(root).close()
    assert dledger("rebuild", root, "--skip-damaged").exit_code == 0
    assert dledger("verify", root).exit_code == 0


@pytest.mark.parametrize("count", [1, 900])
def test_files_of_another_size_are_not_made_longer(tmp_path, count):
    """A start with another file size must not create files with zeros in between."""
    store = open_small(tmp_path)
    for first in range(0, count, 100):
        store.messages.put_many([numbered(number) for number in range(first, min(first + 100, count))])
    store.close()
    before = {path.name: path.read_bytes() for path in (tmp_path / "commitlog").iterdir()}
    other = replace(SKIPPING, log=replace(SKIPPING.log, mapped_file_size=LOG_FILE_SIZE * 4))

    with pytest.raises((WrongFileSize, CorruptData)):
        open_small(tmp_path, other)

    assert {path.name: path.read_bytes() for path in (tmp_path / "commitlog").iterdir()} == before


@pytest.mark.parametrize("seed", range(16))
def test_one_acceptance_covers_all_damage(root, seed):
    """Random damage; a start accepts it or a rebuild does. Later starts and `verify` find nothing new.

    It begins in a body: a start cannot see a change of a header or a property, which have no checksum.
    """
    print(f"seed {seed}")
    source = random.Random(seed)
    records = records_of(root)
    for _ in range(source.randrange(1, 5)):
        offset = source.choice(records[:-60])[0] + 90 + source.randrange(80)
        count = source.choice([1, 3, 200, 512, 5000])
        path, position = log_file(root, offset // LOG_FILE_SIZE), offset % LOG_FILE_SIZE
        data = source.choice([bytes(count), source.randbytes(count)])[: LOG_FILE_SIZE - position]
        overwrite(path, position, data)
    reread(root)
    if seed % 2:
        open_small(root, SKIPPING).close()
    else:
        assert dledger("rebuild", root, "--skip-damaged").exit_code == 0

    for _ in range(2):
        reread(root)
        open_small(root).close()
        result = dledger("verify", root)
        assert result.exit_code == 0, result.output


def test_plain_store_with_accepted_damage_is_converted(root, damaged):
    sizes = EntryStoreConfig(data_file_size_bytes=LOG_FILE_SIZE)
    places = LogDirectories(str(root / "commitlog"), str(root / "dledger-n0"), sizes)
    with pytest.raises(CorruptData):
        pad_base_log(OsFiles(), places, LastExit())
    open_small(root, SKIPPING).close()

    last_exit = LastExit(accepted=load_accepted(OsFiles(), str(root)))
    divide, has_records, notes = pad_base_log(OsFiles(), places, last_exit)

    assert (divide % LOG_FILE_SIZE, has_records) == (0, True)
    assert any("accepted damage" in note for note in notes)


@pytest.mark.parametrize("known_count", [0, 1])
def test_rebuild_that_finds_too_much_damage_changes_nothing(root, damaged, monkeypatch, known_count):
    open_small(root, SKIPPING).close()
    if not known_count:
        (root / FILE_NAME).unlink()
    overwrite(log_file(root, 1), 100, b"\xfd")
    before = {path: path.read_bytes() for path in root.rglob("*") if path.is_file() and path.name != "lock"}
    monkeypatch.setattr(accepted_damage, "PLACES_MAX", 1)
    monkeypatch.setattr(commitlog.offline.rebuild, "PLACES_MAX", 1)

    refused = dledger("rebuild", root, "--skip-damaged")

    assert refused.exit_code == 1, refused.output
    assert "expected at most 1 places of damage, found 2" in refused.output
    assert {path: path.read_bytes() for path in root.rglob("*") if path.is_file() and path.name != "lock"} == before


def test_too_much_damage_is_not_accepted(root, damaged, monkeypatch):
    monkeypatch.setattr(accepted_damage, "PLACES_MAX", 0)

    with pytest.raises(TooMuchDamage, match="at most 0 places"):
        open_small(root, SKIPPING)

    assert places_of(root) == ()
