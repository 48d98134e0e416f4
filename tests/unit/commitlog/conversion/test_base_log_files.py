"""The base log of a group: the same on all nodes, or the nodes refuse each other; fetched whole despite failures."""

from random import Random

import pytest
from crc32c import crc32c

from commitlog.conversion.base_log_files import (
    BaseLogDamaged,
    BaseLogFetch,
    BaseLogFile,
    BaseLogIncomplete,
    BaseLogManifest,
    BaseLogsDiffer,
    ChunkRequest,
    check_same,
    end_fetch,
    first_difference,
    is_fetching,
    make_manifest,
    manifest_from_json,
    manifest_to_json,
    read_chunk,
)
from commitlog.conversion.divide import OpeningCase
from dledger.testing.disk.disk import SimDisk
from dledger.testing.faults import FaultCounts
from store.fs.linux.files import OsFiles
from tests.crashpoints.images import crash_images, killed
from tests.crashpoints.workload import files_on
from tests.unit.commitlog.conftest import FILE_SIZE
from tests.unit.commitlog.conversion.test_divide import write_plain

A, B, C = (BaseLogFile(f"{number * 64:020d}", 64, 1000 + number) for number in range(3))


def test_equal_manifests_do_not_differ():
    assert first_difference(BaseLogManifest(192, (A, B, C)), BaseLogManifest(192, (A, B, C))) is None


def test_files_that_expired_on_one_node_are_no_difference():
    assert first_difference(BaseLogManifest(192, (B, C)), BaseLogManifest(192, (A, B, C))) is None
    assert first_difference(BaseLogManifest(192, (A, B, C)), BaseLogManifest(192, ())) is None


@pytest.mark.parametrize(
    ("theirs", "named"),
    [
        (BaseLogManifest(128, (A, B)), "end at 192 here and at 128"),
        (
            BaseLogManifest(192, (A, BaseLogFile(B.name, 64, 7), C)),
            f"file {B.name} has 64 bytes, CRC-32C 0x000003e9 here",
        ),
        (BaseLogManifest(192, (BaseLogFile(A.name, 65, A.checksum), BaseLogFile(B.name, 64, 7), C)), f"file {A.name}"),
        (BaseLogManifest(192, (A, B)), f"the last one is {C.name} here and {B.name} there"),
    ],
)
def test_first_difference_is_named(theirs, named):
    assert named in first_difference(BaseLogManifest(192, (A, B, C)), theirs)
    with pytest.raises(BaseLogsDiffer, match="cannot form a group"):
        check_same("n1", BaseLogManifest(192, (A, B, C)), theirs)


def test_manifest_is_encoded_as_text():
    manifest = BaseLogManifest(192, (A, B, C))

    assert manifest_from_json(manifest_to_json(manifest)) == manifest


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"divide":-2,"files":[]}',
        '{"divide":true,"files":[]}',
        '{"divide":1,"files":[["../../../../etc/passwd",1,1]]}',
        '{"divide":1,"files":[["00000000000000000000",0,1]]}',
        '{"divide":1,"files":[["00000000000000000000",1,-1]]}',
        '{"divide":1,"files":[[1,2,3]]}',
        '{"divide":1,"files":[7]}',
    ],
)
def test_invalid_manifest_is_refused(text):
    with pytest.raises(ValueError):
        manifest_from_json(text)


class Source:
    """A node that has the base log, in memory of the test's own."""

    def __init__(self, *contents):
        self.contents = {f"{number * FILE_SIZE:020d}": content for number, content in enumerate(contents)}
        files = (BaseLogFile(name, len(content), crc32c(content)) for name, content in self.contents.items())
        self.manifest = BaseLogManifest(len(contents) * FILE_SIZE, tuple(files))

    def answer(self, request):
        return self.contents[request.name][request.position : request.position + request.size]


def fetch_all(fetch, source):
    while (request := fetch.next_request()) is not None:
        payload = source.answer(request)
        fetch.take(request, payload, crc32c(payload))


@pytest.fixture
def source():
    random = Random(3)
    return Source(*(random.randbytes(FILE_SIZE) for _ in range(3)))


def test_fetched_files_are_those_of_the_source(source, tmp_path):
    files, old, node = OsFiles(), str(tmp_path / "commitlog"), str(tmp_path / "dledger-n0")
    fetch = BaseLogFetch(files, old, node, source.manifest)
    assert is_fetching(files, node)
    assert fetch.missing_bytes == 3 * FILE_SIZE

    fetch_all(fetch, source)
    end_fetch(files, node)

    assert not is_fetching(files, node)
    assert make_manifest(files, old, source.manifest.divide) == source.manifest
    for name, content in source.contents.items():
        assert (
            b"".join(
                read_chunk(files, old, source.manifest, ChunkRequest(name, position, 1000))
                for position in range(0, FILE_SIZE, 1000)
            )
            == content
        )


def test_files_outside_the_manifest_are_not_sent(source, tmp_path):
    (tmp_path / "secret").write_bytes(b"secret")
    for request in (
        ChunkRequest("secret", 0, 6),
        ChunkRequest(f"{0:020d}", -1, 5),
        ChunkRequest(f"{0:020d}", 1 << 40, 5),
    ):
        assert read_chunk(OsFiles(), str(tmp_path), source.manifest, request) == b""


def test_damaged_and_unrequested_chunks_are_refused(source, tmp_path):
    fetch = BaseLogFetch(OsFiles(), str(tmp_path / "commitlog"), str(tmp_path / "n"), source.manifest)
    request = fetch.next_request()
    payload = source.answer(request)

    assert not fetch.take(request, payload[:-1] + b"\0", crc32c(payload))
    assert not fetch.take(ChunkRequest(request.name, 7, 9), b"123456789", crc32c(b"123456789"))
    assert not fetch.take(request, b"", 0)
    assert fetch.next_request() == request
    assert fetch.take(request, payload, crc32c(payload))


def test_file_that_is_always_wrong_ends_the_fetch(source, tmp_path):
    wrong = Source(*(bytes(FILE_SIZE) for _ in range(3)))
    fetch = BaseLogFetch(OsFiles(), str(tmp_path / "commitlog"), str(tmp_path / "n"), source.manifest)

    with pytest.raises(BaseLogDamaged, match="3 times"):
        fetch_all(fetch, wrong)


def test_files_that_expired_at_the_source_meanwhile_are_left_out(source, tmp_path):
    files, old, node = OsFiles(), str(tmp_path / "commitlog"), str(tmp_path / "dledger-n0")
    fetch = BaseLogFetch(files, old, node, source.manifest)
    while len(fetch._wanted) > 1:
        request = fetch.next_request()
        fetch.take(request, source.answer(request), crc32c(source.answer(request)))
    fetch.close()
    later = BaseLogManifest(source.manifest.divide, source.manifest.files[2:])

    again = BaseLogFetch(files, old, node, later)

    assert again.next_request() is None
    end_fetch(files, node)
    assert make_manifest(files, old, later.divide) == later


def test_log_is_not_opened_while_the_base_log_is_being_fetched(source, open_log, tmp_path):
    BaseLogFetch(OsFiles(), str(tmp_path / "commitlog"), str(tmp_path / "dledger-n0"), source.manifest)

    with pytest.raises(BaseLogIncomplete):
        open_log()


def test_node_that_fetched_begins_at_the_same_divide(open_log, tmp_path, clock):
    write_plain(tmp_path / "n0", clock, *[900] * 9)
    first = open_log(tmp_path / "n0")
    files = OsFiles()
    manifest = make_manifest(files, str(tmp_path / "n0" / "commitlog"), first.divided.divide)
    fetch = BaseLogFetch(files, str(tmp_path / "n1" / "commitlog"), str(tmp_path / "n1" / "dledger-n0"), manifest)
    while (request := fetch.next_request()) is not None:
        payload = read_chunk(files, str(tmp_path / "n0" / "commitlog"), manifest, request)
        assert fetch.take(request, payload, crc32c(payload))
    end_fetch(files, str(tmp_path / "n1" / "dledger-n0"))

    second = open_log(tmp_path / "n1")

    assert second.divided.case is OpeningCase.BASE_LOG
    assert second.divided.divide == first.divided.divide
    assert second.scanned() == first.scanned()
    ours = make_manifest(files, str(tmp_path / "n1" / "commitlog"), second.divided.divide)
    assert first_difference(ours, manifest) is None


@pytest.mark.slow
def test_fetch_that_is_interrupted_anywhere_is_resumed():
    source = Source(*(Random(number).randbytes(FILE_SIZE) for number in range(2)))
    disk, counts = SimDisk(Random(1), FaultCounts()), {"images": 0}

    def check(image):
        counts["images"] += 1
        files = files_on(image.disk)
        if is_fetching(files, "/n") or not files.is_directory("/old") or len(files.list_directory("/old")) < 2:
            fetch_all(BaseLogFetch(files, "/old", "/n", source.manifest), source)
            end_fetch(files, "/n")
        assert make_manifest(files, "/old", source.manifest.divide) == source.manifest, image.label
        assert not is_fetching(files, "/n")

    def see(_number):
        for image in crash_images(disk):
            check(image)
        check(killed(disk))

    fetch_all(BaseLogFetch(files_on(disk, see), "/old", "/n", source.manifest), source)
    end_fetch(files_on(disk, see), "/n")
    see(0)

    assert counts["images"] > 50
