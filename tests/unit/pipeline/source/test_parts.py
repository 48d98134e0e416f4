"""Data of a broker in arbitrary chunks is joined correctly; missing ranges are reported or skipped."""

import base64
import itertools
import random
import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from commitlog.record.scan import walk
from pipeline.columns.schema import DEFAULT_NAMES
from pipeline.common.errors import CorruptRecord, DataLost
from pipeline.log.selection import EVERYTHING
from pipeline.reading.corrupt_policy import SKIP
from pipeline.source.broker_range import BrokerRange, Chunk
from pipeline.source.chunk_client import BrokerLog
from pipeline.source.options import parse_source_options
from pipeline.source.parts import Part, ReadSettings
from pipeline.source.plan import batch_parts
from scripts.sample_store import SampleConfig, make_sample_store
from tests.compat.conftest import java_store, manifest, unpack
from tests.support.brokers.thread import running_broker
from tests.unit.pipeline.source.test_stream_plan import put

__all__ = ["java_store", "manifest", "unpack"]


def cut(files, sizes, begins_of=lambda _begin, _end: ()):
    """Yield the bytes of files in chunks of such sizes; none spans two files; `begins_of` gives where records begin."""
    for file in files:
        position = 0
        while position < len(file.content):
            size = next(sizes)
            data = file.content[position : position + size]
            begin, end = file.base + position, file.base + position + len(data)
            begins = np.array([each - begin for each in begins_of(begin, end)], "<i4").tobytes()
            yield Chunk(data, file.header_size, begin, end, begins=begins)
            position += len(data)


def begins_function(store, kind, draw):
    """Return a function that lists the begins of records in a range: all of them, some, or wrong ones."""
    header_size = {file.base: file.header_size for file in store.files}
    begins = [at - header_size[max(base for base in header_size if base <= at)] for at in sorted(store.messages)]

    def in_range(begin, end):
        true = [at for at in begins if begin <= at < end]
        if kind == "some" and draw.random() < 0.5:
            true = [at for at in true if draw.random() < 0.7]
        return [begin, *(at + draw.randrange(3) for at in true)] if kind == "wrong" else true

    return in_range if kind else lambda *_: ()


@pytest.mark.parametrize(
    "kind", ["", "all", "some", "wrong"], ids=["not given", "given", "given in part", "given wrong"]
)
@pytest.mark.parametrize("block", [1, 3000, 1 << 20])
def test_chunks_split_at_any_byte_give_every_message_once(java_store, monkeypatch, block, kind):
    if java_store.name == "plain-torn":
        pytest.skip("a broker sends nothing of a torn record")
    draw = random.Random(block)
    end = max(offset + message["size"] for offset, message in java_store.messages.items())
    files = [file for file in java_store.files if file.base < end]
    files[-1].content = files[-1].content[: end - files[-1].base]
    begins_of = begins_function(java_store, kind, draw)
    monkeypatch.setattr("pipeline.source.broker_reading._BLOCK_BYTES", block)
    monkeypatch.setattr(
        BrokerLog, "read", lambda *_: cut(files, iter(lambda: draw.randrange(1, 4000), None), begins_of)
    )

    part = Part(BrokerRange("127.0.0.1:1", 0, end), EVERYTHING)
    found = [row for batch in ReadSettings(("physicalOffset", "body")).read(part) for row in batch.to_pylist()]

    expected = {offset: base64.b64decode(message["body"]) for offset, message in java_store.messages.items()}
    assert expected == {row["physicalOffset"]: row["body"] for row in found}
    assert len(expected) == len(found)


def test_entries_are_not_searched_for_when_their_begins_are_given(tmp_path, monkeypatch):
    make_sample_store(str(tmp_path), SampleConfig(size=1 << 20, file_size=4 << 20, has_queues=False))
    data = (tmp_path / "dledger-n0/data/00000000000000000000").read_bytes()
    found = walk(memoryview(data), 0, len(data), header_size=48)
    file = SimpleNamespace(base=0, header_size=48, content=data[: found.position])
    begins = [start - 48 for start in found.starts]
    chunks = list(cut([file], itertools.repeat(50_000), lambda *within: [at for at in begins if at in range(*within)]))
    monkeypatch.setattr(BrokerLog, "read", lambda *_: iter(chunks))
    monkeypatch.setattr("pipeline.source.broker_reading._BLOCK_BYTES", 200_000)
    for module in ("pipeline.source.broker_reading", "pipeline.reading.log_reading"):
        monkeypatch.setattr(f"{module}.walk", None)

    batches = list(
        ReadSettings(("physicalOffset",)).read(Part(BrokerRange("127.0.0.1:1", 0, found.position), EVERYTHING))
    )

    assert [row["physicalOffset"] for batch in batches for row in batch.to_pylist()] == found.starts


@pytest.fixture
def broker(tmp_path):
    with running_broker(tmp_path / "broker", "a") as running:
        put(running, "a", 0, 200)
        yield running


@pytest.fixture
def damage(monkeypatch):
    """Return a function that changes ten bytes at a place of every chunk."""

    def change(at):
        real = BrokerLog.read

        def damaged(log, broker_range):
            for chunk in real(log, broker_range):
                data = bytearray(chunk.data)
                data[at : at + 10] = b"\0" * 10
                yield chunk._replace(data=bytes(data))

        monkeypatch.setattr(BrokerLog, "read", damaged)

    return change


@pytest.mark.parametrize("topic", ["", "a"], ids=["log", "queue"])
@pytest.mark.parametrize(
    ("at", "options"), [(196 + 4, {}), (196 + 120, {"verify_crc": True})], ids=["not a record", "another body"]
)
def test_bytes_without_an_intact_message_are_reported_with_their_position(broker, damage, topic, at, options):
    end = 200 if topic else broker.replica.store.log.end_offset
    part = Part(BrokerRange(broker.endpoints, 0, end, topic, 0), EVERYTHING)
    damage(at)

    with pytest.raises(CorruptRecord, match=r"broker 127\.0\.0\.1:.*\(offset 196\)"):
        list(ReadSettings(DEFAULT_NAMES, **options).read(part))
    rest = ReadSettings(("queueOffset",), on_corrupt=SKIP, **options).read(part)

    assert [0, *range(2, 200)] == [row["queueOffset"] for batch in rest for row in batch.to_pylist()]


def test_a_queue_is_read_without_the_records_between_its_messages(broker):
    for _ in range(40):
        broker.set_topic("b", 1)
        put(broker, "b", 0, 1)
        put(broker, "a", 1, 3)
    broker_range = BrokerRange(broker.endpoints, 5, 35, "b", 0)

    found = ReadSettings(("topic", "queueOffset", "physicalOffset"), verify_crc=True).read(
        Part(broker_range, EVERYTHING)
    )

    expected = [("b", each.queue_offset, each.physical_offset) for each in broker.messages("b")[0][5:35]]
    assert expected == [tuple(row.values()) for batch in found for row in batch.to_pylist()]


@pytest.mark.parametrize(("topic", "begin", "end"), [("", 0, None), ("a", 0, 200)], ids=["log", "queue"])
def test_messages_deleted_meanwhile_are_an_error_or_left_out(broker, monkeypatch, topic, begin, end):
    store = broker.replica.store
    kept = broker.messages("a")[0][50:]
    monkeypatch.setattr(type(store.log), "begin_offset", property(lambda _: kept[0].physical_offset))
    monkeypatch.setattr(type(store), "min_offset", lambda *_: 50)
    store.derived.queues.get(("a", 0)).min_offset = 50
    part = Part(BrokerRange(broker.endpoints, begin, end or store.log.end_offset, topic, 0), EVERYTHING)

    with pytest.raises(DataLost, match=r"lost (log|topic a, queue 0) \[0, "):
        list(ReadSettings(DEFAULT_NAMES).read(part))
    found = ReadSettings(("queueOffset",), fail_on_data_loss=False).read(part)

    assert list(range(50, 200)) == [row["queueOffset"] for batch in found for row in batch.to_pylist()]


def test_the_node_on_a_tasks_own_host_is_asked_first(monkeypatch):
    place = BrokerRange("10.0.0.1:1,[::1]:2,localhost:3,10.0.0.2:4", 0, 10)

    assert place.nearest_first().endpoints == "localhost:3,10.0.0.1:1,[::1]:2,10.0.0.2:4"
    monkeypatch.setenv("SPARK_LOCAL_HOSTNAME", "10.0.0.2")
    assert place.nearest_first().endpoints == "localhost:3,10.0.0.2:4,10.0.0.1:1,[::1]:2"
    asked = []
    chunk = Chunk(b"", 0, 0, 10)
    monkeypatch.setattr(BrokerLog, "read", lambda _log, part: asked.append(part.endpoints) or iter([chunk]))
    for is_nearest_first in (False, True):
        list(ReadSettings(("queueOffset",), is_nearest_first=is_nearest_first).read(Part(place, EVERYTHING)))
    assert asked == [place.endpoints, place.nearest_first().endpoints]


def test_damage_in_one_of_several_replicas_is_not_read_from_another(tmp_path):
    """A query reads the replica that was planned; `dledger spark audit` compares replicas."""
    folder = tmp_path / "a"
    count = make_sample_store(str(folder), SampleConfig(size=1 << 20, file_size=4 << 20, has_queues=False))
    shutil.copytree(folder, tmp_path / "b")
    options = parse_source_options({"path": f"{folder},{tmp_path / 'b'}"})
    parts = batch_parts(options)
    path = Path(parts[0].place.path)
    with path.open("r+b") as file:
        file.seek(500_000)
        file.write(bytes(2_000))

    with pytest.raises(CorruptRecord, match=str(path)):
        list(ReadSettings(("physicalOffset",)).read(parts[0]))
    rows = sum(batch.num_rows for batch in ReadSettings(("physicalOffset",), on_corrupt=SKIP).read(parts[0]))
    assert count - 20 < rows < count
