"""Statements of nodes about the base log: a whole manifest, or a digest of one that is too long for a Hello."""

import asyncio
import json
from dataclasses import replace

import pytest
from crc32c import crc32c
from hypothesis import example, given, settings
from hypothesis import strategies as st

from commitlog.conversion.base_log_files import (
    UNKNOWN_DIVIDE,
    BaseLogFile,
    BaseLogManifest,
    manifest_from_json,
    manifest_to_json,
)
from commitlog.conversion.bootstrap_rule import NOTHING, Claim, Statement, statement_from
from commitlog.conversion.origin import BaseLogOrigin, abridge, difference_of, state_message
from commitlog.conversion.saved_manifest import load_manifest, save_manifest
from dledger.peer.wire.frames import ORIGIN_SIZE_BYTES_MAX, PAYLOAD_SIZE_BYTES_MAX
from store.errors import CorruptData
from store.fs.linux.files import OsFiles

SIZE = 1 << 30
SENT_MAX = 2048


def manifest_of(count, first=0):
    files = (BaseLogFile(f"{n * SIZE:020d}", SIZE, crc32c(b"%d" % n)) for n in range(first, count))
    return BaseLogManifest(count * SIZE, tuple(files))


def changed(manifest, number):
    files = list(manifest.files)
    files[number] = replace(files[number], checksum=files[number].checksum ^ 1)
    return replace(manifest, files=tuple(files))


@pytest.mark.parametrize("count", [0, 1, SENT_MAX - 1, SENT_MAX, SENT_MAX + 1, 5000, 100_000])
def test_long_manifest_fits_into_a_hello_and_matches_only_the_same_files(count):
    manifest = manifest_of(count)
    assert len(abridge(manifest)) <= ORIGIN_SIZE_BYTES_MAX
    assert difference_of(manifest, abridge(manifest)) is None


@pytest.mark.parametrize("number", [SENT_MAX - 1, -SENT_MAX, -1])
def test_changed_file_among_the_newest_two_thousand_is_named(number):
    manifest = manifest_of(5000)
    number %= len(manifest.files)
    difference = difference_of(manifest, abridge(changed(manifest, number)))
    older = number < len(manifest.files) - SENT_MAX
    name = manifest.files[len(manifest.files) - SENT_MAX].name if older else manifest.files[number].name
    assert difference is not None
    assert name in difference
    assert ("some of the files before" in difference) == older


def test_changed_file_before_them_is_found_when_both_manifests_are_as_long():
    manifest = manifest_of(5000)
    assert "some of the files before" in difference_of(manifest, abridge(changed(manifest, 0)))


def test_older_files_are_not_compared_with_a_node_that_came_when_some_had_expired():
    manifest, later = manifest_of(5000), manifest_of(5000, first=100)
    assert difference_of(manifest, abridge(later)) is None
    assert difference_of(later, abridge(manifest)) is None
    assert difference_of(later, abridge(changed(manifest, 4000))) is not None


@pytest.mark.parametrize("count", [0, 1, 5000])
def test_another_divide_is_reported(count):
    assert f"end at {count * SIZE} here" in difference_of(manifest_of(count), abridge(manifest_of(count + 1)))


def test_log_of_plain_bytes_is_no_log_of_messages():
    assert "a log of raw entries" in difference_of(manifest_of(0), b"")


@settings(max_examples=300, deadline=None)
@given(statement=st.binary(min_size=1, max_size=80), count=st.integers(0, 3))
@example(statement=abridge(manifest_of(3))[:-1], count=3)
@example(statement=abridge(manifest_of(3)) + b"\0\0\0\0", count=3)
@example(statement=abridge(replace(manifest_of(3), divide=UNKNOWN_DIVIDE)), count=3)
@example(statement=abridge(replace(manifest_of(3), divide=-(1 << 62))), count=3)
def test_every_statement_is_checked_and_only_the_same_files_pass(statement, count):
    manifest = manifest_of(count)
    difference = difference_of(manifest, statement)
    assert difference is not None or statement == abridge(manifest)


def test_long_manifest_is_saved_and_loaded_and_a_changed_byte_of_it_is_found(tmp_path):
    files, manifest = OsFiles(), manifest_of(5000)
    for is_agreed in (False, True):
        save_manifest(files, str(tmp_path), manifest, is_agreed=is_agreed)
        saved = load_manifest(files, str(tmp_path))
        assert (saved.manifest, saved.is_agreed) == (manifest, is_agreed)
    path = tmp_path / "oldfiles"
    content = bytearray(path.read_bytes())
    assert len(content) > 100_000
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(CorruptData):
        load_manifest(files, str(tmp_path))


def test_long_manifest_is_sent_in_one_answer(tmp_path):
    manifest = manifest_of(10_000)
    assert manifest_from_json(manifest_to_json(manifest)) == manifest
    origin = BaseLogOrigin(OsFiles(), f"{tmp_path}/commitlog", f"{tmp_path}/dledger-n0", manifest)

    answer = asyncio.run(origin.answer("n1", state_message(NOTHING, is_question=True)))

    # Ten times as many are allowed.
    assert len(answer.payload) * 10 < PAYLOAD_SIZE_BYTES_MAX
    expected = Statement(Claim.AGREED, manifest, manifest.divide)
    assert statement_from(json.loads(answer.body)["statement"], answer.payload) == expected
