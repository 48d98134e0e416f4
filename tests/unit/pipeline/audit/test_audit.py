"""Audits: every planted difference of three replicas is found at its entry, and reported for its replica."""

import itertools
import shutil
import struct
from pathlib import Path

import pytest

from commitlog.record.encoder import RecordEncoder
from commitlog.record.record import PHYSICAL_OFFSET_POSITION
from dledger.entries.store import EntryStore, EntryStoreConfig
from dledger.types import NO_INDEX
from pipeline.audit.compare import AuditKind, log_ranges
from pipeline.audit.replica import open_replicas
from pipeline.audit.run import run_audit
from pipeline.common.errors import BadOption, NoStore
from store.fs.linux.files import OsFiles
from store.model.message import Host, Message

HOST = Host(b"\x0a\x00\x00\x01", 10911)
CONFIG = EntryStoreConfig(1 << 18, 32 * 4096)
BATCH = 50


def write(folder, terms, *, committed=NO_INDEX, body="body"):
    """Write a batch of entries of each term; return the positions of all entries."""
    files = OsFiles()
    files.make_directory(str(folder))
    entries = EntryStore.open(files, f"{folder}/dledger-n0", CONFIG)
    encoder = RecordEncoder(HOST)
    positions = []
    for number, term in enumerate(terms):
        first = entries.last_index + 1
        messages = [
            Message("orders", f"{body if term > 1 else 'body'} {first + each}".encode() * 40, 0, {"KEYS": f"k{each}"})
            for each in range(BATCH)
        ]
        records = encoder.prepare(messages).encode_each(range(first, first + BATCH), 1_760_000_000_000 + number)
        positions += entries.append(records, first, term, stamp_at=PHYSICAL_OFFSET_POSITION)
    entries.close(entries.last_index if committed is None else committed)
    return positions


@pytest.fixture
def replicas(tmp_path):
    """Three equal replicas of 2,000 entries in several files, all committed; and where the entries begin."""
    folders = [tmp_path / name for name in ("a", "b", "c")]
    positions = write(folders[0], [1] * 40, committed=None)
    for folder in folders[1:]:
        shutil.copytree(folders[0], folder)
    return [str(folder) for folder in folders], positions


def file_of(folder, offset):
    """Return the file that holds an offset of the log, and the position in it."""
    position = offset % CONFIG.data_file_size_bytes
    return Path(folder, "dledger-n0", "data", f"{offset - position:020d}"), position


def change(folder, offset, content):
    """Overwrite bytes of the log of a replica."""
    path, position = file_of(folder, offset)
    with path.open("r+b") as file:
        file.seek(position)
        file.write(content)


def flip(folder, offset):
    """Change one bit."""
    path, position = file_of(folder, offset)
    change(folder, offset, bytes([path.read_bytes()[position] ^ 0x04]))


def found(paths, **arguments):
    audit = run_audit(open_replicas(paths), **arguments)
    return [(each.kind, each.replica, each.entry_index) for each in audit.findings], audit


def test_equal_replicas_have_no_findings(replicas):
    paths, positions = replicas
    findings, audit = found(paths)

    assert findings == []
    assert audit.errors == 0
    assert audit.size_bytes > 3 * positions[-1]


@pytest.mark.parametrize(
    ("index", "place"),
    [(3, 200), (999, 48 + 100), (1500, 4), (1501, 8), (1502, 16), (1503, 24), (1504, 36), (1505, 40), (1506, 48 + 20)],
)
def test_a_flipped_bit_is_found_in_exactly_its_entry(replicas, index, place):
    paths, positions = replicas
    flip(paths[2], positions[index] + place)
    findings, audit = found(paths)

    assert findings == [(AuditKind.BAD_CHECKSUM, paths[2], index)]
    assert audit.errors == 1
    (finding,) = audit.findings
    assert finding.begin == positions[index]
    assert finding.path.startswith(paths[2])


def test_flips_on_all_replicas_are_distinguished(replicas):
    paths, positions = replicas
    planted = [(0, 10), (1, 10), (2, 11), (0, 700), (1, 1999)]
    for replica, index in planted:
        flip(paths[replica], positions[index] + 60 + replica)
    findings, _ = found(paths)

    assert set(findings) == {(AuditKind.BAD_CHECKSUM, paths[replica], index) for replica, index in planted}
    assert len(findings) == len(planted)


def test_a_flip_that_all_replicas_share_is_found_by_its_checksum(replicas):
    paths, positions = replicas
    for path in paths:
        flip(path, positions[77] + 48 + 100)
    _, audit = found(paths)

    assert [(each.kind, each.begin) for each in audit.findings] == [(AuditKind.BAD_CHECKSUM, positions[77])]
    assert found(paths, is_checked=False)[0] == []


def test_one_replica_alone_is_checked_by_its_own_checksums(replicas):
    paths, positions = replicas
    flip(paths[0], positions[500] + 48 + 120)
    _, audit = found(paths[:1])

    assert [(each.kind, each.begin) for each in audit.findings] == [(AuditKind.BAD_CHECKSUM, positions[500])]


def test_a_change_that_checksums_do_not_detect_is_reported_for_the_replica_that_differs(replicas):
    paths, positions = replicas
    # As Java writes it: no checksums of the entry; and a field of the record without one.
    for path in paths:
        for at in (positions[321], positions[322]):
            change(path, at + 36, bytes(8))
    change(paths[1], positions[321] + 48 + 16, struct.pack(">i", 5))
    findings, _ = found(paths)

    assert findings == [(AuditKind.DIFFERENT, paths[1], 321)]


def test_a_divergence_is_one_finding_at_its_first_entry(tmp_path):
    paths = [str(tmp_path / name) for name in ("a", "b", "c")]
    positions = write(paths[0], [1] * 20 + [3] * 20, committed=None, body="other")
    write(paths[1], [1] * 20 + [2] * 25, body="this")
    shutil.copytree(paths[0], paths[2])
    findings, audit = found(paths)

    assert (AuditKind.DIVERGENCE, paths[1], 20 * BATCH) in findings
    (divergence,) = [each for each in audit.findings if each.kind is AuditKind.DIVERGENCE]
    assert divergence.begin == positions[20 * BATCH]
    assert divergence.term == 2
    assert "term 3" in divergence.expected
    # The additional entries of the longer one are not committed.
    assert {kind for kind, *_ in findings} == {AuditKind.DIVERGENCE, AuditKind.UNCOMMITTED_TAIL}


def test_a_difference_in_uncommitted_entries_is_no_error(tmp_path):
    paths = [str(tmp_path / name) for name in ("a", "b", "c")]
    write(paths[0], [1] * 20 + [3] * 3, committed=20 * BATCH - 1, body="other")
    write(paths[1], [1] * 20 + [2] * 2, committed=20 * BATCH - 1, body="this")
    write(paths[2], [1] * 20, committed=20 * BATCH - 1)
    findings, audit = found(paths)

    assert {kind for kind, *_ in findings} == {AuditKind.UNCOMMITTED_TAIL}
    assert {replica for _, replica, _ in findings} >= {paths[2]}
    assert audit.errors == 0


def test_a_missing_tail_and_a_missing_file_are_errors(replicas, tmp_path):
    paths, positions = replicas
    short = str(tmp_path / "short")
    write(short, [1] * 30)
    file_of(paths[1], CONFIG.data_file_size_bytes)[0].unlink()
    findings, audit = found([paths[0], paths[1], short])

    assert (AuditKind.MISSING_TAIL, short, -1) in findings
    assert (AuditKind.MISSING_RANGE, paths[1], -1) in findings
    ranges = {each.kind: (each.begin, each.end) for each in audit.findings}
    assert ranges[AuditKind.MISSING_TAIL][0] == positions[30 * BATCH]
    size = CONFIG.data_file_size_bytes
    assert ranges[AuditKind.MISSING_RANGE] == (size, 2 * size)
    assert len(findings) == 2


def test_files_that_one_replica_has_deleted_are_no_error(replicas):
    paths, _ = replicas
    size = CONFIG.data_file_size_bytes
    file_of(paths[2], 0)[0].unlink()
    findings, audit = found(paths)

    assert [kind for kind, *_ in findings] == [AuditKind.BEGINS_LATER]
    assert audit.errors == 0
    assert audit.findings[0].end == size


def test_ranges_end_at_the_end_of_each_file_and_of_each_replica(replicas):
    paths, _ = replicas
    opened = open_replicas(paths)
    shorter = [opened[0], opened[1]._replace(end=300_000)]
    parts = log_ranges(shorter, 100_000)

    assert parts[0].begin == opened[0].begin
    assert all(one.end == other.begin for one, other in itertools.pairwise(parts))
    assert {300_000, CONFIG.data_file_size_bytes} <= {part.end for part in parts}


def test_a_directory_that_is_no_replica_is_refused(replicas, tmp_path):
    paths, _ = replicas
    with pytest.raises(BadOption, match="twice"):
        open_replicas([paths[0], paths[0]])
    with pytest.raises(NoStore):
        open_replicas([paths[0], str(tmp_path / "nowhere")])
