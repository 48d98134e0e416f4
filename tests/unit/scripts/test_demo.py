"""The demo's own judgement: it keeps every byte of its input, and sees what is missing, doubled or altered."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType

SCRIPTS = Path(__file__).resolve().parents[3] / "scripts" / "demo"


@pytest.fixture
def corpus_module(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(SCRIPTS))
    return importlib.import_module("demo_corpus")


@pytest.fixture
def check_module(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(SCRIPTS))
    return importlib.import_module("demo_check")


@pytest.fixture
def writer_module(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(SCRIPTS))
    return importlib.import_module("demo_writer")


LINES = [(0, b"a\n"), (1, b"b\n"), (3, b"c\n"), (4, b"d")]


@pytest.mark.parametrize(
    ("found", "counts"),
    [
        pytest.param(LINES, (4, 0, 0, 0), id="exact"),
        pytest.param([LINES[0], LINES[2], LINES[3]], (3, 1, 0, 0), id="one missing"),
        pytest.param(LINES[:2], (2, 2, 0, 0), id="the end missing"),
        pytest.param([], (0, 4, 0, 0), id="all missing"),
        pytest.param([*LINES[:2], (2, b"b\n"), *LINES[2:]], (5, 0, 1, 0), id="one doubled in between"),
        pytest.param([*LINES, (5, b"d")], (5, 0, 1, 0), id="one doubled at the end"),
        pytest.param([LINES[0], (1, b"B\n"), *LINES[2:]], (4, 0, 0, 1), id="one altered"),
        pytest.param([LINES[0], (2, b"b\n"), *LINES[2:]], (4, 1, 1, 0), id="one at another index"),
    ],
)
def test_check_counts_missing_duplicate_and_altered_entries(
    check_module: ModuleType, found: list[tuple[int, bytes]], counts: tuple[int, int, int, int]
) -> None:
    result = check_module.compare("n0", found, iter(LINES))

    assert counts == (result.read, result.missing, result.doubled, result.altered)
    assert (found == LINES) == result.is_exact


@pytest.mark.parametrize(
    "content",
    [
        b"\n",
        b"one",
        b"one\n",
        b"one\r\ntwo\r\n",
        b"\n\n\nx\n\n",
        b"\xff\xfe\x00\n\x80",
        b"\x00" * 70,
        b"x" * 200 + b"\ny",
    ],
)
def test_lines_of_a_file_contain_all_its_bytes(
    corpus_module: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes
) -> None:
    monkeypatch.setattr(corpus_module, "LINE_SIZE_BYTES_MAX", 64)
    path = tmp_path / "input"
    path.write_bytes(content)

    corpus = corpus_module.open_corpus(path)
    lines = list(corpus.lines())

    assert content == b"".join(lines)
    assert len(lines) == corpus.line_count
    assert max(map(len, lines)) <= 64


def test_lines_added_after_the_start_are_ignored(corpus_module: ModuleType, tmp_path: Path) -> None:
    path = tmp_path / "growing.log"
    path.write_bytes(b"one\ntw")
    corpus = corpus_module.open_corpus(path)
    path.write_bytes(b"one\ntwo\nthree\n")

    assert [b"one\n", b"tw"] == list(corpus.lines())


@pytest.mark.parametrize(
    ("name", "text"), [("absent", "cannot be read"), ("empty", "is empty"), ("folder", "not a file")]
)
def test_empty_input_is_reported_by_name(corpus_module: ModuleType, tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / "empty").touch()
    (tmp_path / "folder").mkdir()

    with pytest.raises(corpus_module.CorpusError, match=text):
        corpus_module.open_corpus(tmp_path / name)


def test_standard_library_is_a_corpus_of_bounded_size(corpus_module: ModuleType) -> None:
    corpus = corpus_module.open_corpus(None)

    assert 10_000 < corpus.line_count
    assert corpus.size_bytes <= corpus_module.LIBRARY_SIZE_BYTES_MAX


def test_batches_are_bounded_and_keep_order(writer_module: ModuleType) -> None:
    def lines() -> Iterator[bytes]:
        yield from (b"x" * size for size in (1, 2, 600_000, 3, 4, 5))

    batches = list(writer_module.batches(lines(), 2))

    assert [[1, 2], [600_000], [3, 4], [5]] == [[len(line) for line in batch] for batch in batches]


def test_expected_entries_follow_the_runs(writer_module: ModuleType) -> None:
    runs = [writer_module.Run(0, 1, 2), writer_module.Run(2, 5, 1)]

    expected = list(writer_module.expected_entries(runs, iter([b"a", b"b", b"c"])))

    assert [(1, b"a"), (2, b"b"), (5, b"c")] == expected


@pytest.mark.parametrize(
    ("found", "counts"),
    [
        pytest.param([(0, b"a"), (1, b"b")], (2, 0, 0, 0), id="exact"),
        pytest.param([(0, b"a")], (1, 1, 0, 0), id="one missing"),
        pytest.param([(0, b"a"), (1, b"b"), (2, b"b")], (3, 0, 1, 0), id="one twice"),
        pytest.param([(0, b"b"), (1, b"b")], (2, 0, 0, 1), id="one altered"),
    ],
)
def test_messages_of_a_queue_are_compared_by_position(
    monkeypatch: pytest.MonkeyPatch, found: list[tuple[int, bytes]], counts: tuple[int, int, int, int]
) -> None:
    monkeypatch.syspath_prepend(str(SCRIPTS))
    module = importlib.import_module("demo_store_check")
    result, expected = module.StoreResult("n0"), {(3, 0): b"a", (3, 1): b"b"}

    module.compare(result, 3, found, expected)

    assert counts == (result.read, len(expected), result.doubled, result.altered)
