"""Tasks that may choose a replica: first that of their host, and another one for damaged or missing data."""

import json
import logging
import shutil
import socket
from pathlib import Path

import pytest

from pipeline.common.errors import BrokerUnreachable, CorruptRecord, DataLost
from pipeline.log.marks import Mark, is_same_log
from pipeline.log.selection import EVERYTHING, Selection
from pipeline.log.stores import open_store
from pipeline.reading.corrupt_policy import FAIL, SKIP, CorruptPolicy
from pipeline.source.broker_range import BrokerRange
from pipeline.source.fallback_reading import FallbackReading
from pipeline.source.options import parse_source_options
from pipeline.source.parts import ReadSettings
from pipeline.source.path_view import PathView
from pipeline.source.plan import Source, batch_selection
from pipeline.source.replica_fallback import NO_CHOICE, Replicas, candidates
from tests.support.brokers.thread import running_broker
from tests.support.pipeline_stores import MAKERS, TOPICS, append_uncommitted, make_replicated
from tests.unit.pipeline.conftest import described
from tests.unit.pipeline.reading.test_damaged_slices import log_files
from tests.unit.pipeline.source.test_stream_plan import put

NAMES = ("physicalOffset", "body")
ONE_TOPIC = Selection(topics=(TOPICS[5],))


def test_a_silent_broker_is_waited_for_only_once():
    """Its nodes are asked in turn for a minute; then it is an error."""
    asked = []

    def read(place, _is_other):
        asked.append(place)
        raise BrokerUnreachable(place.endpoints, "connection refused")

    planned = BrokerRange("a:1,b:1", 0, 10)
    reading = FallbackReading(
        candidates(planned, (), NO_CHOICE), planned, 0, 10, read, lambda it: read(it, False), SKIP
    )

    with pytest.raises(BrokerUnreachable):
        list(reading.batches())
    assert asked == [planned]


@pytest.fixture(scope="module", params=MAKERS)
def original(request, tmp_path_factory):
    folder = MAKERS[request.param](tmp_path_factory.mktemp("store") / request.param, 400)
    return folder, described(folder)


@pytest.fixture
def replicas(original, tmp_path):
    """Return three replicas of one log, and its messages."""
    folder, messages = original
    paths = [str(tmp_path / name) for name in "abc"]
    for path in paths:
        shutil.copytree(folder, path)
    return paths, messages


def damage(path, messages, at=95):
    """Change a byte of each of these messages in one replica."""
    for message in messages:
        for file in log_files(path):
            begin = int(file.name)
            if begin <= message.offset < begin + file.stat().st_size:
                content = bytearray(file.read_bytes())
                content[message.offset + at - begin] ^= 0x55
                file.write_bytes(content)


def parts_of(paths, selection=EVERYTHING, *, local=(), partitions_min=3):
    view = PathView(paths, is_marked=bool(local))
    try:
        return view.parts(selection, partitions_min, None, fail_on_data_loss=True)
    finally:
        view.close()


def read(parts, paths=(), *, local=(), **options):
    how = ReadSettings(NAMES, **{"verify_crc": True, "replicas": Replicas(tuple(paths), tuple(local))} | options)
    return [row["physicalOffset"] for part in parts for batch in how.read(part) for row in batch.to_pylist()]


def offsets(messages, selection=EVERYTHING):
    if selection is EVERYTHING:
        return [message.offset for message in messages]
    return [message.offset for message in messages if message.topic in selection.topics and message.is_queued]


@pytest.mark.parametrize("selection", [EVERYTHING, ONE_TOPIC], ids=["log", "queue"])
@pytest.mark.parametrize("at", [0, 4, 30, 95], ids=["size", "magic", "place", "body"])
def test_ranges_damaged_in_each_replica_are_read_from_the_others(replicas, caplog, selection, at):
    paths, messages = replicas
    own = [message for message in messages if selection is EVERYTHING or message.offset in offsets(messages, selection)]
    parts = parts_of(paths, selection)
    hit = [own[3], own[len(own) // 2], own[-2]], [own[4], own[len(own) // 2]], [own[5], own[-3]]
    for path, some in zip(paths, hit, strict=True):
        damage(Path(path), some, at)

    with caplog.at_level(logging.WARNING):
        found = read(parts, paths)

    assert sorted(found) == offsets(messages, selection)
    assert {record.getMessage().partition(" were read from ")[2].split(" ")[0] for record in caplog.records} <= set(
        paths
    )
    # Only the data lost by the replica that is read; of a queue, several consecutive messages at once.
    assert {paths[0]} == {record.getMessage()[: len(paths[0])] for record in caplog.records}
    assert 0 < len(caplog.records) <= 3
    assert selection is not EVERYTHING or len(caplog.records) == 3
    with pytest.raises(CorruptRecord):
        read(parts, on_corrupt=FAIL)


@pytest.mark.parametrize("selection", [EVERYTHING, ONE_TOPIC], ids=["log", "queue"])
def test_the_policy_applies_only_to_ranges_that_no_replica_has_intact(replicas, tmp_path, selection):
    paths, messages = replicas
    own = [message for message in messages if message.offset in offsets(messages, selection)]
    parts = parts_of(paths, selection)
    lost = own[7]
    for path, also in zip(paths, (own[9], own[11], own[13]), strict=True):
        damage(Path(path), [lost, also])

    with pytest.raises(CorruptRecord) as caught:
        read(parts, paths)
    assert lost.entry_offset <= caught.value.offset <= lost.offset
    assert sorted(read(parts, paths, on_corrupt=SKIP)) == [
        offset for offset in offsets(messages, selection) if offset != lost.offset
    ]
    kept = tmp_path / "kept"
    read(parts, paths, on_corrupt=CorruptPolicy.parse("quarantine", str(kept)))
    reported = [json.loads(path.read_text()) for path in sorted(kept.glob("*.json"))]
    assert [each.get("read_from") for each in reported] == [None, paths[1]]


@pytest.mark.parametrize("into", [0, 30, 100])
def test_a_hole_in_one_replica_is_filled_from_another(replicas, into):
    paths, messages = replicas
    parts = parts_of(paths, partitions_min=7)
    first, last = messages[100].entry_offset + into, messages[140].entry_offset + into
    for file in log_files(Path(paths[0])):
        content, begin = bytearray(file.read_bytes()), int(file.name)
        low, high = max(first - begin, 0), min(last - begin, len(content))
        if low < high:
            content[low:high] = bytes(high - low)
            file.write_bytes(content)

    assert read(parts, paths, verify_crc=False) == offsets(messages)


@pytest.mark.parametrize("selection", [EVERYTHING, ONE_TOPIC], ids=["log", "queue"])
def test_a_file_that_is_deleted_in_one_replica_is_read_from_another(replicas, selection):
    paths, messages = replicas
    parts = parts_of(paths, selection)
    log_files(Path(paths[0]))[1].unlink()

    assert sorted(read(parts, paths)) == offsets(messages, selection)
    for path in paths[1:]:
        log_files(Path(path))[1].unlink()
    with pytest.raises(DataLost, match=rf"{paths[0]}|lost"):
        read(parts, paths)
    left = read(parts, paths, fail_on_data_loss=False)
    assert 0 < len(left) < len(offsets(messages, selection))


@pytest.mark.parametrize("selection", [EVERYTHING, ONE_TOPIC], ids=["log", "queue"])
def test_a_task_reads_the_replica_on_its_own_host(replicas, caplog, selection):
    """The directory in the plan is of another host: it does not exist here."""
    paths, messages = replicas
    local = f"{socket.gethostname()}:{paths[1]}"
    parts = parts_of(paths[:1], selection, local=(local,))
    shutil.rmtree(paths[0])

    assert sorted(read(parts, local=(local,))) == offsets(messages, selection)
    assert sorted(read(parts, local=(paths[1],))) == offsets(messages, selection)
    with pytest.raises(Exception, match=paths[0]):
        read(parts, local=(f"elsewhere:{paths[1]}",))
    # It is the one that is read, not the one that was planned.
    shutil.copytree(paths[2], paths[0])
    own = [message for message in messages if message.offset in offsets(messages, selection)]
    damage(Path(paths[1]), [own[5]])
    (alone,) = parts_of(paths[:1], local=(paths[1],), partitions_min=1)[:1]
    assert candidates(alone.place, alone.marks, Replicas((), (paths[1],)))[0].find() is not None
    assert sorted(read(parts, local=(paths[1],))) == offsets(messages, selection)
    assert [record.getMessage().startswith(paths[1]) for record in caplog.records] == [True]


def test_a_host_is_identified_by_the_names_that_spark_gives_it(replicas, monkeypatch):
    paths, _ = replicas
    (part, *_) = parts_of(paths[:1], local=("n1:/x",))
    replicas = Replicas((), ("n1:/data/n1", "n2:/data/n2", "/data/all"))

    monkeypatch.setenv("SPARK_LOCAL_HOSTNAME", "n2")
    found = [candidate.name for candidate in candidates(part.place, part.marks, replicas)]

    assert found == ["/data/n2", "/data/all", part.place.path]


def test_a_replica_that_lags_is_not_read(tmp_path):
    planned = make_replicated(tmp_path / "a", 300)
    lagging = tmp_path / "b"
    shutil.copytree(planned, lagging)
    last = append_uncommitted(planned, 50, 7, committed=353)
    uncommitted = tmp_path / "c"
    shutil.copytree(planned, uncommitted)
    shutil.copy(lagging / "dledger-n0/checkpoint", uncommitted / "dledger-n0/checkpoint")
    shutil.rmtree(uncommitted / "consumequeue", ignore_errors=True)
    shutil.copytree(lagging / "consumequeue", uncommitted / "consumequeue", dirs_exist_ok=True)
    parts = parts_of([str(planned)], local=("/x",), partitions_min=40)

    assert 353 == last
    for other in (lagging, uncommitted):
        used = [
            part
            for part in parts
            if candidates(part.place, part.marks, Replicas((), (str(other),)))[0].find() is not None
        ]
        ends = [part.place.end_index for part in used]
        assert max(ends) <= 304
        assert len(used) > 20
        assert 350 == len(read(parts, local=(str(other),)))


def test_the_replica_of_another_log_is_not_read(tmp_path):
    planned = make_replicated(tmp_path / "a", 300)
    foreign = make_replicated(tmp_path / "b", 310)
    for file in log_files(foreign):
        content = bytearray(file.read_bytes())
        content[40:44] = b"\1\2\3\4"
        file.write_bytes(content)
    parts = parts_of([str(planned)], local=(str(foreign),))

    (first, *_) = candidates(parts[0].place, parts[0].marks, Replicas((), (str(foreign),)))
    assert first.find() is None
    assert 300 == len(read(parts, local=(str(foreign),)))
    with open_store(str(foreign)) as store:
        assert not is_same_log(store, ())
        assert not is_same_log(store, [Mark(store.end_offset, b"x" * 88)])


# ------------------------------------------------------------------------------------------------------- a broker


@pytest.fixture
def brokers(tmp_path):
    """Two brokers with copies of one store, as two nodes of one broker are."""
    with running_broker(tmp_path / "one", "a", "b") as one:
        put(one, "a", 0, 150)
        put(one, "b", 1, 20)
        put(one, "a", 1, 100)
        one.stop()
        shutil.copytree(tmp_path / "one", tmp_path / "two")
        one.start()
        with running_broker(tmp_path / "two") as two:
            yield one, two


def options_of(brokers, **more):
    return {"endpoints": ",".join(each.endpoints for each in brokers), "verifyCrc": "true"} | more


def read_of(options, **fields):
    """Return (queue, offset) of all messages, and the parts that were read."""
    from pipeline.spark.part import read_settings_of

    parsed = parse_source_options(options)
    view = Source(parsed).view()
    parts = view.parts(batch_selection(parsed, view), None, None, fail_on_data_loss=True)
    view.close()

    how = read_settings_of(parsed, ("topic", "queueId", "queueOffset"))
    return [tuple(row.values()) for part in parts for batch in how.read(part) for row in batch.to_pylist()]


@pytest.mark.parametrize("topic", [None, "b"], ids=["log", "queue"])
def test_a_range_damaged_at_one_node_is_read_from_another(brokers, caplog, topic):
    expected = [("b", 1, n) for n in range(20)]
    if topic is None:
        expected += [("a", 0, n) for n in range(150)] + [("a", 1, n) for n in range(100)]
    for broker, number in zip(brokers, (3, 5), strict=True):
        message = broker.messages("b")[1][number]
        (file,) = [path for path in (broker.path / "commitlog").iterdir() if int(path.name) == 0]
        with file.open("r+b") as out:
            out.seek(message.physical_offset + 120)
            out.write(b"?!?!?")

    with caplog.at_level(logging.WARNING):
        found = read_of(options_of(brokers) | ({} if topic is None else {"subscribe": topic}))

    assert sorted(found) == sorted(expected)
    # The brokers run here, too, and report the true state of their disk.
    reported = [record.getMessage() for record in caplog.records if record.name.startswith("pipeline.")]
    assert [f"node {brokers[1].endpoints}"] == [
        message.partition(" were read from ")[2].partition(" instead")[0] for message in reported
    ]


@pytest.mark.parametrize("topic", [None, "b"], ids=["log", "queue"])
def test_a_task_reads_the_files_of_its_own_hosts_node_and_asks_the_broker_for_the_rest(brokers, monkeypatch, topic):
    one, two = brokers
    put(one, "a", 0, 30)
    options = options_of([one], localPath=str(two.path)) | ({} if topic is None else {"subscribe": topic})
    asked = []
    real = ReadSettings._of_broker
    monkeypatch.setattr(ReadSettings, "_of_broker", lambda how, *given: asked.append(given) or real(how, *given))

    later = read_of(options)
    is_asked = bool(asked)
    asked.clear()
    whole = read_of(options | {"localPath": str(one.path)})

    assert sorted(later) == sorted(whole)
    assert len(whole) == (20 if topic else 300)
    assert not asked
    assert is_asked == (topic is None)


def test_the_node_on_a_tasks_own_host_is_asked_first(brokers):
    from pipeline.source.broker_range import BrokerRange

    place = BrokerRange("10.0.0.1:1,[::1]:2,localhost:3,10.0.0.2:4", 0, 10)

    (first, *rest) = candidates(place, (), Replicas(is_nearest_first=True))

    assert first.name == "broker localhost:3,10.0.0.1:1,[::1]:2,10.0.0.2:4"
    assert all(each.is_spare for each in rest)
    assert candidates(place, (), NO_CHOICE)[0].name == f"broker {place.endpoints}"
    assert 270 == len(read_of(options_of(brokers, readMode="nearest")))
