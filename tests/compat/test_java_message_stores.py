"""Plain stores that Java wrote open: every message of their manifests is found in every way, equal in every field."""

import shutil

import pytest

from tests.support.message_stores import SMALL, derived_files, open_small, rebuilt_files, with_log

PLAIN = ("plain-clean", "plain-killed", "plain-livecopy", "plain-torn", "plain-propcrc")
# Changes to a store before it is opened here.
FAULTS = {
    "as it is": lambda root: None,
    "killed": lambda root: (root / "abort").write_text("1"),
    "no queues": lambda root: shutil.rmtree(root / "consumequeue"),
    "no index": lambda root: shutil.rmtree(root / "index"),
    "neither": lambda root: (shutil.rmtree(root / "index"), shutil.rmtree(root / "consumequeue")),
    "no checkpoint": lambda root: ((root / "abort").write_text("1"), (root / "checkpoint").unlink()),
}


def config_of(name):
    return with_log(SMALL, has_property_crc=name == "plain-propcrc")


def facts(row):
    return {key: value for key, value in row.items() if key not in ("tagsCode", "inConsumeQueue", "indexed", "batch")}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("name", PLAIN)
def test_every_message_is_found_by_queue_key_id_and_time(name, fault, unpack, manifest, described):
    root, rows = unpack(name), manifest(name)
    FAULTS[fault](root)

    store = open_small(root, config_of(name))

    messages = store.messages
    queued = [row for row in rows if row["inConsumeQueue"]]
    indexed = [row for row in rows if row["indexed"]]
    assert len(queued) > 80
    for row in queued:
        result = messages.get(row["topic"], row["queueId"], row["queueOffset"], count_max=1)
        assert [described(message) for message in result.messages] == [facts(row)]
        queue = messages.derived.queues.get((row["topic"], row["queueId"]))
        assert int(queue.units(row["queueOffset"], 1).tags_codes[0]) == row["tagsCode"]
    for row in rows:
        assert described(messages.log.find(row["physicalOffset"])) == facts(row)
        assert described(messages.message_by_id(row["msgId"])) == facts(row)
    for row in indexed:
        for key in {row["uniqKey"], *(row["keys"] or "").split(" ")} - {None, ""}:
            found = messages.query_by_key(row["topic"], key, 64).messages
            assert facts(row) in [described(message) for message in found], key
    lengths = {}
    for row in queued:
        lengths[row["topic"], row["queueId"]] = max(
            lengths.get((row["topic"], row["queueId"]), 0), row["queueOffset"] + 1
        )
    assert {key: messages.max_offset(*key) for key in messages.derived.queues if messages.max_offset(*key)} == lengths
    assert messages.log.end_offset == max(row["physicalOffset"] + row["size"] for row in rows)
    store.close()


@pytest.mark.parametrize("name", PLAIN)
def test_queues_of_java_equal_those_that_are_built_from_the_log(name, unpack, tmp_path):
    root = unpack(name)
    open_small(root, config_of(name)).close()

    assert derived_files(root, ["consumequeue"]) == rebuilt_files(
        root, tmp_path / "again", config_of(name), ["consumequeue"]
    )


def test_store_that_java_closed_cleanly_is_left_as_it_is(unpack):
    root = unpack("plain-clean")
    before = derived_files(root)

    open_small(root).close()

    assert derived_files(root) == before
