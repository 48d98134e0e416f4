"""Scans of one file of a replicated log."""

from commitlog.plain.file_scan import scan_file
from dledger.entries.format.entry import encode_blank
from store.fs.linux.files import OsFiles
from store.fs.mapped.mapped_file import MappedFile

FILE_SIZE = 4096


def scanned(tmp_path, position, size):
    """Return the position at which a scan continues after a blank, and the number of reports of damage."""
    content = bytearray(FILE_SIZE)
    content[position : position + 8] = encode_blank(size)[:8]
    path = tmp_path / "file"
    path.write_bytes(content)
    file = MappedFile(OsFiles().open(str(path)), 10 * FILE_SIZE, is_allocated=True)
    batch = scan_file(file, 10 * FILE_SIZE + position, 11 * FILE_SIZE, FILE_SIZE, header_size=48)
    file.file.close()
    return batch.next_offset - 10 * FILE_SIZE, len(batch.skipped)


def test_blank_at_the_end_of_a_file_ends_it_whatever_size_it_says(tmp_path):
    """One flipped bit of the size would otherwise be reported as lost entries."""
    assert scanned(tmp_path, 1000, FILE_SIZE - 1000) == (FILE_SIZE, 0)
    assert scanned(tmp_path, 1000, 100) == (FILE_SIZE, 0)


def test_blank_at_the_start_of_a_file_has_the_size_that_it_says(tmp_path):
    """DLedger writes one over the deleted entries of its first file."""
    assert scanned(tmp_path, 0, FILE_SIZE) == (FILE_SIZE, 0)
    assert scanned(tmp_path, 0, 200) == (200, 0)
