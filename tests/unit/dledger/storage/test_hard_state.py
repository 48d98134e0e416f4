"""Term and vote on disk."""

from pathlib import Path

import pytest
from crc32c import crc32c

from dledger.storage.hard_state import HardStateFile, HardStateUnreadable
from dledger.storage.properties import parse_properties
from dledger.types import HardState
from store.errors import DiskFull
from store.fs.linux.files import OsFiles


@pytest.fixture
def state_file(tmp_path):
    return HardStateFile.open(OsFiles(), f"{tmp_path}/n0")


def checked(lines: bytes) -> bytes:
    """The text around the lines: comments for Java, a checksum for us."""
    content = b"#checked\n" + lines
    return content + b"#crc32c=%08x\n" % crc32c(content)


def path_in(tmp_path):
    return tmp_path / "n0" / "currterm"


def test_nothing_saved_is_term_zero_without_a_vote(state_file):
    assert state_file.load() == HardState(0, None)


@pytest.mark.parametrize(
    "state",
    [
        HardState(7, "n1"),
        HardState(1 << 60, "n-2.example"),
        HardState(3, None),
        HardState(1, "n1", False, 5, (1 << 63) - 1),
    ],
)
def test_saved_state_comes_back(tmp_path, state_file, state):
    state_file.save(HardState(1, "n0"))

    state_file.save(state)

    assert HardStateFile.open(OsFiles(), f"{tmp_path}/n0").load() == state


def test_text_equals_that_of_the_java_program(tmp_path, state_file):
    state_file.save(HardState(7, "n1"))
    assert path_in(tmp_path).read_bytes() == checked(b"currTerm=7\nvoteLeader=n1\n")
    state_file.save(HardState(12, None))
    assert path_in(tmp_path).read_bytes() == checked(b"currTerm=12\nvoteLeader=\n")


@pytest.mark.parametrize("bit", range(8))
def test_flipped_bit_anywhere_gives_no_other_term_or_vote(tmp_path, state_file, bit):
    """Found by simulation with flipped bits (seed 28): term and vote were read with other values."""
    state_file.save(HardState(7, "n1"))
    content = path_in(tmp_path).read_bytes()
    for position in range(len(content)):
        damaged = bytearray(content)
        damaged[position] ^= 1 << bit
        path_in(tmp_path).write_bytes(damaged)

        with pytest.raises(HardStateUnreadable):
            state_file.load()


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"voteLeader=n0\ncurrTerm=10\n", HardState(10, "n0")),
        (b"voteLeader=\ncurrTerm=3\n", HardState(3, None)),
        (b"#a comment\n\n currTerm = 4 \nvoteLeader=n2\nother=1\n", HardState(4, "n2")),
        (b"currTerm=5", HardState(5, None)),
    ],
)
def test_files_written_by_java_can_be_read(tmp_path, state_file, content, expected):
    path_in(tmp_path).write_bytes(content)

    assert state_file.load() == expected


@pytest.mark.parametrize(
    "content",
    [b"", b"\0" * 25, b"currTerm=\nvoteLeader=n0\n", b"voteLeader=n0\n", b"currTerm=x\n", b"currTerm=-1\n", b"\xff\xfe",
     b"currTerm=1\ncurrTerm=2\n", b"currTerm 7\n"],
)  # fmt: skip
def test_unreadable_file_refuses_the_start(tmp_path, state_file, content):
    path_in(tmp_path).write_bytes(content)

    with pytest.raises(HardStateUnreadable, match=r"currterm: expected .*, found .*must not start"):
        state_file.load()
    assert path_in(tmp_path).read_bytes() == content


@pytest.mark.parametrize("ending", [".tmp", ".bak"])
def test_file_that_java_lost_between_delete_and_rename_refuses_the_start(tmp_path, state_file, ending):
    Path(f"{path_in(tmp_path)}{ending}").write_bytes(b"currTerm=9\nvoteLeader=n1\n")

    with pytest.raises(HardStateUnreadable, match=f"currterm{ending}"):
        state_file.load()


def test_saving_a_vote_needs_only_reserved_space(tmp_path, state_file):
    """So a vote can be saved on a full disk: the same two files are exchanged, with their allocated blocks."""
    directory = path_in(tmp_path).parent

    def inodes():
        return {(path.stat().st_ino, path.stat().st_blocks) for path in directory.iterdir()}

    before = inodes()
    assert len(before) == 2
    assert all(blocks > 0 for _, blocks in before)

    for term in range(1, 6):
        state_file.save(HardState(term, "n0"))

        assert inodes() == before
        assert state_file.load() == HardState(term, "n0")


def test_node_without_space_for_its_vote_does_not_start(tmp_path, faulty_files):
    def refuse(path):
        raise DiskFull(path, 4096)

    faulty_files.prepare_replace = refuse

    with pytest.raises(DiskFull):
        HardStateFile.open(faulty_files, f"{tmp_path}/n0")


def test_error_about_a_line_of_garbage_shows_its_beginning_only():
    with pytest.raises(ValueError, match="is not a new key=value") as fault:
        parse_properties(b"x" * 1_000_000)
    assert len(str(fault.value)) < 200
