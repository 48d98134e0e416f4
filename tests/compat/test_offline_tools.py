"""The offline commands on directories that Java wrote: every message shown as its manifest has it, nothing changed."""

import base64
import gzip
import hashlib
import json
import re
import shutil

import pytest
import zstandard
from typer.testing import CliRunner

from cluster.cli.app import app

CLEAN = ("plain-clean", "plain-propcrc", "dledger", "mixed")
UNFINISHED = ("plain-killed", "plain-livecopy", "plain-torn", "dledger-killed")


def dledger(*arguments):
    return CliRunner().invoke(app, [*map(str, arguments)])


def rows(result):
    return [json.loads(line) for line in result.stdout.splitlines()]


def shown(message):
    """Return a message of a manifest as `inspect messages` prints it."""
    return {name: value for name, value in message.items() if name not in {"propertiesRaw", "batch"}}


def digest(folder):
    """Return everything that a command could change: names, contents, sizes, times, modes."""
    return {
        str(path.relative_to(folder)): (
            path.stat().st_mtime_ns,
            path.stat().st_mode,
            hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() and path.stat().st_size < 1 << 20 else "",
        )
        for path in [folder, *sorted(folder.rglob("*"))]
    }


@pytest.fixture(params=CLEAN)
def clean_store(request, unpack):
    """Return the folder of a store that Java closed cleanly."""
    return unpack(request.param)


def test_every_message_is_printed_as_in_its_manifest(java_store):
    result = dledger("inspect", "messages", java_store.folder, "--format", "jsonl")

    assert result.exit_code == 0, result.stderr
    expected = [shown(message) for message in java_store.messages.values()]
    assert rows(result) == expected
    assert [list(row) for row in rows(result)] == [list(message) for message in expected]


@pytest.mark.parametrize("folder", ["commitlog", "dledger-n0", "dledger-n0/data"])
def test_the_folder_of_the_log_is_accepted_like_that_of_the_store(unpack, folder):
    store = unpack("mixed")

    result = dledger("inspect", "messages", store / folder, "--format", "jsonl")

    assert result.stdout == dledger("inspect", "messages", store, "--format", "jsonl").stdout
    assert len(rows(result)) == 154


def test_log_alone_is_read_without_queues_and_index(unpack, manifest, tmp_path):
    alone = tmp_path / "elsewhere"
    shutil.copytree(unpack("plain-clean") / "commitlog", alone)

    found = rows(dledger("inspect", "messages", alone, "--format", "jsonl"))
    verified = dledger("verify", alone)

    assert [row["physicalOffset"] for row in found] == [row["physicalOffset"] for row in manifest("plain-clean")]
    assert not any(row["inConsumeQueue"] for row in found)
    assert verified.exit_code == 0, verified.stderr
    assert "150 messages" in verified.stdout


READ_ONLY_COMMANDS = (
    ("inspect", "messages"),
    ("inspect", "queue"),
    ("inspect", "index"),
    ("inspect", "index", "--items"),
    ("inspect", "checkpoint"),
    ("inspect", "messages", "--key", "k7-1"),
    ("verify",),
    ("export",),
)


def test_read_only_commands_change_nothing_and_need_no_write_permission(java_store):
    folder = java_store.folder
    for path in [*folder.rglob("*"), folder]:
        path.chmod(0o555 if path.is_dir() else 0o444)
    before = digest(folder)

    for command in READ_ONLY_COMMANDS:
        result = dledger(*command, folder)
        assert result.exit_code in (0, 1), result.output
        assert "Traceback" not in result.output

    assert digest(folder) == before
    for path in [folder, *folder.rglob("*")]:
        path.chmod(0o755 if path.is_dir() else 0o644)


# ------------------------------------------------------------------------------------------------------- filters


def expected_offsets(messages, predicate):
    return [offset for offset, message in messages.items() if predicate(message)]


def found_offsets(folder, *options):
    result = dledger("inspect", "messages", folder, "--format", "jsonl", *options)
    assert result.exit_code == 0, result.output
    return [row["physicalOffset"] for row in rows(result)]


def test_messages_are_chosen_by_topic_queue_and_queue_offset(java_store):
    folder, messages = java_store.folder, java_store.messages

    assert found_offsets(folder, "--topic", "TopicTest") == expected_offsets(
        messages, lambda message: message["topic"] == "TopicTest"
    )
    assert found_offsets(folder, "--topic", "TopicTest", "--queue", 1, "--from", 2, "--to", 5) == expected_offsets(
        messages,
        lambda message: (message["topic"], message["queueId"]) == ("TopicTest", 1) and 2 <= message["queueOffset"] < 5,
    )
    assert found_offsets(folder, "--topic", "absent") == []
    assert found_offsets(folder, "--limit", 3) == list(messages)[:3]


def test_messages_are_chosen_by_store_time_from_included_to_excluded(java_store):
    times = sorted({message["storeTimestamp"] for message in java_store.messages.values()})
    begin, end = times[len(times) // 3], times[2 * len(times) // 3]

    found = found_offsets(java_store.folder, "--from", f"@{begin}", "--to", f"@{end}")

    assert found == expected_offsets(java_store.messages, lambda message: begin <= message["storeTimestamp"] < end)
    assert found_offsets(java_store.folder, "--from", "2026-01-01T00:00:00+01:00") == list(java_store.messages)
    assert found_offsets(java_store.folder, "--to", "2026-01-01") == []


def keys_of(message):
    return {message["uniqKey"], *(message["keys"] or "").split(" ")} - {None, ""}


def test_messages_are_found_by_every_key_through_the_index_and_without_it(java_store):
    folder, messages = java_store.folder, java_store.messages
    keys = sorted({key for message in messages.values() for key in keys_of(message)})[::23]

    for key in keys:
        # The index does not know messages that were rolled back.
        expected = expected_offsets(messages, lambda message, key=key: key in keys_of(message))
        indexed = [offset for offset in expected if messages[offset]["indexed"]]
        assert found_offsets(folder, "--key", key, "--no-index") == expected
        assert found_offsets(folder, "--key", key) in (indexed, expected), key


def test_key_is_looked_for_in_all_messages_when_the_index_has_a_loop(unpack, manifest):
    folder = unpack("plain-clean")
    key = manifest("plain-clean")[3]["uniqKey"]
    (index,) = (folder / "index").iterdir()
    content = bytearray(index.read_bytes())
    for item in range(1, 315):  # every item leads to itself
        content[40 + 400 + item * 20 + 16 : 40 + 400 + item * 20 + 20] = item.to_bytes(4, "big")
    index.write_bytes(content)

    result = dledger("inspect", "messages", folder, "--key", key, "--format", "jsonl")

    assert [row["uniqKey"] for row in rows(result)] == [key]
    assert "the index is unusable or missing" in result.stderr


# --------------------------------------------------------------------------------------------------- other views


def test_queues_are_listed_and_their_units_are_those_of_the_manifest(clean_store, manifest):
    messages = [message for message in manifest(clean_store.name) if message["inConsumeQueue"]]
    queues = rows(dledger("inspect", "queue", clean_store, "--format", "jsonl"))

    assert {(row["topic"], row["queueId"]) for row in queues} == {(m["topic"], m["queueId"]) for m in messages}
    assert sum(row["maxOffset"] - row["minOffset"] for row in queues) == len(messages)
    units = rows(dledger("inspect", "queue", clean_store, "--topic", "TopicTest", "--queue", 2, "--format", "jsonl"))
    assert [(unit["queueOffset"], unit["physicalOffset"], unit["size"], unit["tagsCode"]) for unit in units] == [
        (message["queueOffset"], message["physicalOffset"], message["size"], message["tagsCode"])
        for message in messages
        if (message["topic"], message["queueId"]) == ("TopicTest", 2)
    ]
    assert dledger("inspect", "queue", clean_store, "--topic", "absent").exit_code == 1


def test_key_index_and_checkpoint_are_shown(clean_store):
    (file,) = rows(dledger("inspect", "index", clean_store, "--format", "jsonl"))
    items = rows(dledger("inspect", "index", clean_store, "--items", "--format", "jsonl"))
    checkpoint = rows(dledger("inspect", "checkpoint", clean_store, "--format", "jsonl"))

    assert (file["slots"], file["itemsMax"], file["items"]) == (100, 399, len(items))
    assert items[-1]["physicalOffset"] == file["endPhyOffset"]
    assert {"physicMsgTimestamp", "logicsMsgTimestamp"} <= {row["field"] for row in checkpoint}
    assert checkpoint[0]["time"].startswith("2026-11-21T")


@pytest.mark.parametrize("name", ["dledger", "mixed"])
def test_entries_of_a_store_of_messages_are_shown_too(unpack, name):
    entries = rows(dledger("inspect", "entries", unpack(name), "--format", "jsonl"))

    assert [entry["index"] for entry in entries] == list(range(len(entries)))
    assert len(entries) > 70


def test_plain_store_has_no_entries_and_a_raw_log_no_messages_and_errors_name_the_right_command(unpack):
    plain = dledger("inspect", "entries", unpack("plain-clean"))
    raw = dledger("inspect", "messages", unpack("raw-dledger"))

    assert (plain.exit_code, raw.exit_code) == (2, 2)
    assert "dledger inspect messages" in plain.stderr
    assert "dledger inspect entries" in raw.stderr


def test_raw_log_is_verified_entry_by_entry(unpack):
    result = dledger("verify", unpack("raw-dledger"))

    assert result.exit_code == 0, result.output
    assert "150 entries, 150 index units" in result.stdout
    nodes = dledger("verify", unpack("raw-dledger-3nodes"))
    assert nodes.exit_code == 2
    assert "found n0, n1, n2" in nodes.stderr


def test_table_fits_and_shows_no_control_characters(java_store):
    lines = dledger("inspect", "messages", java_store.folder).stdout.splitlines()

    assert len(lines) == 1 + len(java_store.messages)
    assert all(char.isprintable() for line in lines for char in line)


# -------------------------------------------------------------------------------------------------------- export


def test_export_writes_objects_lines_or_frames_and_compresses_by_name(unpack, manifest, tmp_path):
    store, bodies = unpack("mixed"), [base64.b64decode(message["body"]) for message in manifest("mixed")]
    objects, frames, packed = tmp_path / "all.jsonl", tmp_path / "all.frames", tmp_path / "all.gz"

    assert dledger("export", store, "-o", objects).exit_code == 0
    assert dledger("export", store, "-o", frames, "--format", "frames").exit_code == 0
    assert dledger("export", store, "-o", packed, "--format", "lines", "--topic", "TopicTest").exit_code == 0

    assert objects.read_text("utf-8") == dledger("inspect", "messages", store, "--format", "jsonl").stdout
    assert frames.read_bytes() == b"".join(len(body).to_bytes(4, "big") + body for body in bodies)
    wanted = [base64.b64decode(m["body"]) for m in manifest("mixed") if m["topic"] == "TopicTest"]
    assert gzip.decompress(packed.read_bytes()) == b"".join(body + b"\n" for body in wanted)
    assert dledger("export", store, "-o", objects).exit_code == 2
    assert dledger("export", store, "-o", tmp_path / "all.zst", "--format", "lines").exit_code == 0
    with zstandard.open(tmp_path / "all.zst") as stream:
        assert stream.read() == b"".join(body + b"\n" for body in bodies)
    assert dledger("export", store, "--format", "frames", "--uncompress").stdout_bytes == frames.read_bytes()
    assert dledger("export", store, "--format", "lines", "--topic", "TopicTest").stdout_bytes == b"".join(
        body + b"\n" for body in wanted
    )


# -------------------------------------------------------------------------------------------- verify and rebuild


def test_store_that_java_closed_cleanly_has_no_findings(clean_store):
    result = dledger("verify", clean_store)

    assert (result.exit_code, re.findall(r"^dledger: /.*", result.stderr, re.MULTILINE)) == (0, []), result.output


@pytest.mark.parametrize("name", UNFINISHED)
def test_store_that_was_not_closed_cleanly_has_only_findings_that_a_start_repairs(unpack, manifest, name):
    store = unpack(name)

    result = dledger("verify", store, "--limit", 0)

    assert result.exit_code == 1
    findings = [line for line in result.stderr.splitlines() if f"{store}/" in line]
    assert all("The next start of the store" in line for line in findings)
    assert f"0 places of damage, {len(findings)} unfinished" in result.stderr
    if name == "plain-torn":
        assert f"{store}/commitlog/{65536:020d}: at byte 13560: expected a properties length" in findings[0]
        assert "a torn tail" in findings[0]
    if name == "plain-livecopy":
        assert sum("they point past the log's end" in line for line in findings) == 3
        assert sum("they refer to messages that do not exist" in line for line in findings) == 1
    else:
        missing = sum(int(count) for count in re.findall(r"consumers do not get (\d+) message", result.stderr))
        in_queues = sum(row["maxOffset"] for row in rows(dledger("inspect", "queue", store, "--format", "jsonl")))
        assert missing == sum(message["inConsumeQueue"] for message in manifest(name)) - in_queues


def test_rebuilt_queues_and_index_agree_with_the_log(java_store):
    folder = java_store.folder
    log_before = {file.path: file.content for file in java_store.files}

    result = dledger("rebuild", folder)

    assert result.exit_code == 0, result.output
    assert f"{len(java_store.messages)} messages" in result.stdout
    assert {path: path.read_bytes() for path in log_before} == log_before
    verified = dledger("verify", folder)
    torn = 1 if java_store.name == "plain-torn" else 0  # the log itself is left to the next start
    assert verified.exit_code == torn, verified.output
    assert verified.stderr.count("The next start of the store") == torn
    messages = rows(dledger("inspect", "messages", folder, "--format", "jsonl"))
    assert messages == [shown(message) for message in java_store.messages.values()]
    assert not list(folder.glob("rebuild.*"))


def test_rebuilt_queues_and_index_are_javas_byte_for_byte(clean_store, tmp_path):
    def images(folder):
        queues = {str(p.relative_to(folder)): p.read_bytes() for p in (folder / "consumequeue").rglob("*/*/*")}
        return queues, [path.read_bytes() for path in sorted((folder / "index").iterdir())]

    before = images(clean_store)

    assert dledger("rebuild", clean_store).exit_code == 0

    assert images(clean_store) == before


def test_index_that_rolls_over_files_is_checked_and_queried_file_by_file(unpack, manifest):
    store = unpack("plain-clean")

    assert dledger("rebuild", store, "--index-slots", 7, "--index-items", 30).exit_code == 0

    files = rows(dledger("inspect", "index", store, "--format", "jsonl"))
    assert [file["items"] for file in files] == [29] * 10 + [24]
    assert dledger("verify", store).exit_code == 0
    for message in manifest("plain-clean")[::20]:
        if message["uniqKey"] and message["indexed"]:
            found = rows(dledger("inspect", "messages", store, "--key", message["uniqKey"], "--format", "jsonl"))
            assert found == [shown(message)]
