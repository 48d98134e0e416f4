"""A plain store that Java closed cleanly and whose log lost its end is refused, although Java's timestamp lags."""

import shutil
from contextlib import nullcontext
from dataclasses import replace

import pytest

from commitlog.conversion.divide import LogDirectories, pad_base_log
from commitlog.plain.store import last_exit_of
from dledger.entries.store import EntryStoreConfig
from store.errors import CorruptData
from store.fs.linux.files import OsFiles
from store.maintenance.directory import StoreRoot
from store.model.finding import Area
from store.queues.unit import UNIT, UNIT_SIZE
from tests.compat.test_offline_damage import change, dledger, findings_of
from tests.support.message_stores import SMALL, open_small, with_log

FILE_SIZE = 65536
LAST = f"commitlog/{FILE_SIZE:020d}"
LOSSES = {
    "removed": lambda path: path.unlink(),
    "emptied": lambda path: path.write_bytes(b""),
    "zeroed": lambda path: path.write_bytes(bytes(path.stat().st_size)),
    "cut short and zeroed": lambda path: path.write_bytes(bytes(1000)),
    "zeroed from the middle on": lambda path: path.write_bytes(path.read_bytes()[:14000].ljust(FILE_SIZE, b"\0")),
}
LOGICS = 8


def config_of(name):
    return with_log(SMALL, has_property_crc=name == "plain-propcrc")


def image(root):
    """Return all files that hold something; a start removes an empty last file of the log, and makes `lock`."""
    return {
        path: path.read_bytes()
        for path in root.rglob("*")
        if path.is_file() and path.name not in ("lock", "checkpoint") and any(path.read_bytes())
    }


def queue_files(root):
    return sorted(path for path in (root / "consumequeue").rglob("*") if path.is_file())


def keep_units(root, kept):
    """Zero the units of records from the second file on, but for those of the places in `kept`."""
    for path in queue_files(root):
        units = list(UNIT.iter_unpack(path.read_bytes().ljust(1000, b"\0")))
        stays = [unit for unit in units if unit[1] and (unit[0] < FILE_SIZE or unit[0] in kept)]
        path.write_bytes(b"".join(UNIT.pack(*unit) for unit in stays).ljust(1000, b"\0"))


def places_past(root):
    """Return the places past the first file that units lead to."""
    units = (unit for path in queue_files(root) for unit in UNIT.iter_unpack(path.read_bytes().ljust(1000, b"\0")))
    return sorted(place for place, size, _ in units if size and place >= FILE_SIZE)


def add_unit(root, place):
    """Put a unit after the last one of a queue."""
    path = root / "consumequeue/TopicTest/3" / f"{0:020d}"
    units = path.read_bytes().rstrip(b"\0")
    count = -(-len(units) // UNIT_SIZE)
    change(path, count * UNIT_SIZE, UNIT.pack(place, 200, 0))


@pytest.mark.parametrize("name", ["plain-clean", "plain-propcrc"])
@pytest.mark.parametrize("loss", LOSSES)
def test_start_refuses_it_each_time_and_changes_nothing(unpack, name, loss):
    root = unpack(name)
    LOSSES[loss](root / LAST)
    before = image(root)

    for _ in range(2):
        with pytest.raises(CorruptData, match=r"units of consume queues that point past it\. Nothing was changed"):
            open_small(root, config_of(name))

        assert image(root) == before
        assert not (root / "abort").exists()


@pytest.mark.parametrize("loss", LOSSES)
def test_verify_reports_it_and_rebuild_refuses_it(unpack, loss):
    root = unpack("plain-clean")
    LOSSES[loss](root / LAST)
    before = image(root)

    lost = [finding for finding in findings_of(root) if finding.area is Area.LOG]
    refused = dledger("rebuild", root)

    assert (lost[-1].path, lost[-1].position, lost[-1].is_unfinished) == (str(root / "checkpoint"), LOGICS, False)
    assert "the end of the log is lost" in lost[-1].meaning
    assert not any(finding.area is Area.CHECKPOINT and finding.position == LOGICS for finding in findings_of(root))
    assert refused.exit_code == 1, refused.stderr
    assert image(root) == before


def test_rebuild_and_a_start_skip_it_with_the_option(unpack, tmp_path):
    root = unpack("plain-clean")
    (root / LAST).unlink()
    shutil.copytree(root, tmp_path / "started")

    done = dledger("rebuild", root, "--skip-damaged")

    assert (done.exit_code, "it is discarded" in done.stderr) == (0, True), done.stderr
    assert findings_of(root) == []
    store = open_small(tmp_path / "started", replace(SMALL, is_corruption_skipped=True))
    assert any("units of consume queues that point past it" in note for note in store.notes), store.notes
    store.close()
    open_small(tmp_path / "started").close()


@pytest.mark.parametrize("loss", ["removed", "zeroed"])
def test_store_that_was_killed_keeps_its_rule(unpack, loss):
    """RocketMQ dispatches records before it syncs them: a power cut may take the record and leave its unit."""
    root = unpack("plain-clean")
    LOSSES[loss](root / LAST)
    (root / "abort").touch()

    open_small(root).close()


def test_wrong_time_or_wrong_unit_stops_no_start(unpack):
    """The log is whole; also both at once are no proof, for one unit does not lead to where the log ends."""
    root = unpack("plain-clean")
    add_unit(root, 1 << 40)
    shutil.copytree(root, root.with_name("unit"))
    open_small(root.with_name("unit")).close()
    change(root / "checkpoint", LOGICS, (1 << 60).to_bytes(8, "big"))
    shutil.copytree(root, root.with_name("both"))
    open_small(root.with_name("both")).close()
    keep_units(root, set(range(FILE_SIZE, 1 << 20)))

    open_small(root).close()


@pytest.mark.parametrize(("distance", "is_refused"), [(0, True), (500, False)])
def test_one_unit_counts_if_it_leads_to_where_the_next_record_would_begin(unpack, distance, is_refused):
    root = unpack("plain-clean")
    (root / LAST).unlink()
    keep_units(root, ())
    add_unit(root, FILE_SIZE + distance)

    with pytest.raises(CorruptData, match="point past it") if is_refused else nullcontext():
        open_small(root).close()


def test_units_to_two_places_count_wherever_they_are(unpack):
    root = unpack("plain-clean")
    (root / LAST).unlink()
    kept = places_past(root)[-2:]
    keep_units(root, kept)
    assert places_past(root) == kept

    with pytest.raises(CorruptData, match="point past it"):
        open_small(root)


def test_group_does_not_continue_from_a_log_without_its_end(unpack):
    """A replicated log begins where the plain one ends: it would make the loss final."""
    root = unpack("plain-clean")
    (root / LAST).unlink()
    before = image(root)
    places = LogDirectories(f"{root}/commitlog", f"{root}/dledger-n0", EntryStoreConfig(data_file_size_bytes=FILE_SIZE))
    store = StoreRoot.open(OsFiles(), str(root), process_id=1)
    last_exit = last_exit_of(store.files, store)

    with pytest.raises(CorruptData, match="point past it"):
        pad_base_log(store.files, places, last_exit)

    store.close(is_clean=False)
    assert image(root) == before
