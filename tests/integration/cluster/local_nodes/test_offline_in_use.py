"""Stores that a process has open: offline commands refuse them, or read them without a lock and report no damage."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner, Result

from cluster.cli.app import app

if TYPE_CHECKING:
    from collections.abc import Iterator

PUT_WITHOUT_END = """
import sys
from commitlog.plain.commit_log import CommitLogConfig
from commitlog.plain.store import PlainStoreConfig, open_plain_store
from store.model.message import Message
from store.fs.linux.files import OsFiles
from store.model.config import MessageStoreConfig

sizes = MessageStoreConfig(mapped_file_size_consume_queue=4000, max_hash_slot_num=100, max_index_num=400)
config = PlainStoreConfig(CommitLogConfig(mapped_file_size=1 << 20), sizes)
store = open_plain_store(OsFiles(), sys.argv[1], config)
number = 0
while number < int(sys.argv[2]):
    for _ in range(20):
        keys = {"KEYS": f"key-{number}", "TAGS": f"tag-{number % 5}", "UNIQ_KEY": f"{number:032X}"}
        store.messages.put(Message(f"topic-{number % 3}", b"x" * (number % 500), number % 4, keys))
        number += 1
    store.dispatch()
    if number % 200 == 0:
        store.flush()
    if number == int(sys.argv[3]):
        print("open", flush=True)
if number < 10_000_000:
    sys.stdin.read()
store.close()
"""


def dledger(*arguments: object) -> Result:
    return CliRunner().invoke(app, [*map(str, arguments)])


@pytest.fixture
def in_use(tmp_path: Path) -> Iterator[Path]:
    """Run another process that writes into a store during the test."""
    folder = tmp_path / "store"
    yield from _writing(folder, 10_000_000, 200)


@pytest.fixture
def at_rest(tmp_path: Path) -> Iterator[Path]:
    """Run another process that keeps a store open without writing."""
    yield from _writing(tmp_path / "store", 400, 400)


def _writing(folder: Path, count: int, reported_at: int) -> Iterator[Path]:
    """Run a process that puts `count` messages; yield after `reported_at` of them, then kill it."""
    command = [sys.executable, "-c", PUT_WITHOUT_END, str(folder), str(count), str(reported_at)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == b"open\n"
        yield folder
        writer.kill()


@pytest.mark.parametrize(
    "command",
    [("inspect", "messages"), ("inspect", "queue"), ("verify",), ("export",), ("rebuild",)],
)
def test_store_in_use_is_refused_with_advice(at_rest: Path, command: tuple[str, ...]) -> None:
    result = dledger(*command, at_rest)

    assert result.exit_code == 1
    assert "in use by process" in result.stderr or "locked by process" in result.stderr
    if command != ("rebuild",):
        assert "--force-read-only" in result.stderr


def test_store_in_use_is_read_with_the_option(at_rest: Path) -> None:
    shown = dledger("inspect", "messages", at_rest, "--force-read-only", "--format", "jsonl")

    assert shown.exit_code == 0, shown.output
    assert len(shown.stdout.splitlines()) == 400
    assert dledger("verify", at_rest, "--force-read-only").exit_code == 0


def test_files_being_created_are_not_findings_in_a_store_in_use(at_rest: Path) -> None:
    begun = [
        at_rest / "commitlog/00000000000001048576",
        at_rest / "consumequeue/topic-0/0/00000000000000004000",
        at_rest / "index/20991231235959999",
    ]
    for path in begun:
        assert path.parent.is_dir()
        path.touch()

    result = dledger("verify", at_rest, "--force-read-only")

    assert result.exit_code == 0, result.output


@pytest.mark.slow
def test_store_that_is_being_written_has_no_findings(in_use: Path) -> None:
    for _ in range(5):
        result = dledger("verify", in_use, "--force-read-only")

        assert result.exit_code == 0, result.output
    assert " 0 messages" not in result.stdout


def test_store_of_a_killed_process_has_only_findings_that_a_start_repairs(tmp_path: Path) -> None:
    folder = tmp_path / "store"
    for _ in _writing(folder, 1140, 1140):
        pass  # killed after the last flush, and before the next one

    result = dledger("verify", folder, "--limit", 0)
    assert result.exit_code == 1
    assert "0 places of damage" in result.stderr, result.output

    for _ in _writing(folder, 200, 200):
        pass
    shown = dledger("inspect", "messages", folder, "--format", "jsonl")
    assert shown.exit_code == 0, shown.output
    assert dledger("rebuild", folder).exit_code == 0
    assert dledger("verify", folder).exit_code == 0
