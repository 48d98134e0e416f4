"""Directories that the Java programs wrote, unpacked for each test, with their manifests."""

import base64
import json
import lzma
import tarfile
from pathlib import Path
from types import SimpleNamespace

import pytest

FIXTURES = Path(__file__).parent.parent / "fixtures"
DATA_FILE_SIZE = 65536
ENTRY_HEADER_SIZE = 48
# The directories that hold messages.
MESSAGE_STORES = (
    "plain-clean",
    "plain-killed",
    "plain-livecopy",
    "plain-torn",
    "plain-propcrc",
    "dledger",
    "dledger-killed",
    "mixed",
)


@pytest.fixture
def unpack(tmp_path):
    """Return a function that unpacks a fixture by name and returns its folder."""

    def unpack_one(name):
        with tarfile.open(FIXTURES / f"{name}.tar.xz") as archive:
            # Python before 3.11.4 has no filters, and no argument for them.
            archive.extraction_filter = getattr(tarfile, "data_filter", lambda member, _: member)
            archive.extractall(tmp_path)
        return tmp_path / name

    return unpack_one


@pytest.fixture
def manifest():
    """Return a function that reads the manifest of a fixture: one dict an entry or message, in order."""

    def read(name):
        with lzma.open(FIXTURES / f"{name}.manifest.jsonl.xz", "rt", encoding="utf-8") as lines:
            return [json.loads(line) for line in lines]

    return read


@pytest.fixture(params=MESSAGE_STORES)
def java_store(request, unpack, manifest):
    """Return a message store that Java wrote: name, folder, messages (its manifest, by physical offset) and files.

    The files are those of the log, ascending: path, base (the offset of their first byte), header_size and content.
    """
    folder = unpack(request.param)
    files = [
        SimpleNamespace(path=path, base=int(path.name), header_size=header_size, content=path.read_bytes())
        for pattern, header_size in (("commitlog/*", 0), ("dledger-n0/data/*", ENTRY_HEADER_SIZE))
        for path in sorted(folder.glob(pattern))
    ]
    messages = {message["physicalOffset"]: message for message in manifest(request.param)}
    return SimpleNamespace(name=request.param, folder=folder, messages=messages, files=files)


@pytest.fixture
def described():
    """Return a function that describes a `Record` with the keys of a manifest that it has itself."""

    def describe(record):
        return {
            "topic": record.topic,
            "queueId": record.queue_id,
            "queueOffset": record.queue_offset,
            "physicalOffset": record.physical_offset,
            "size": record.size,
            "tag": record.properties.get("TAGS"),
            "keys": record.properties.get("KEYS"),
            "uniqKey": record.properties.get("UNIQ_KEY"),
            "storeTimestamp": record.store_timestamp,
            "bornTimestamp": record.born_timestamp,
            "bornHost": host_text(record.born_host),
            "storeHost": host_text(record.store_host),
            "msgId": record.message_id,
            "magic": record.magic,
            "flag": record.flag,
            "sysFlag": record.sys_flag,
            "reconsumeTimes": record.reconsume_times,
            "preparedTransactionOffset": record.prepared_transaction_offset,
            "bodyCRC": record.body_crc,
            "body": base64.b64encode(record.body).decode(),
            "properties": dict(record.properties),
            "propertiesRaw": base64.b64encode(record.properties_raw).decode(),
        }

    return describe


def host_text(host):
    """Return a host as Java's manifests have it: IPv6 addresses as eight numbers, no "::"."""
    address = host.address
    if len(address) == 4:
        return f"{'.'.join(map(str, address))}|{host.port}"
    groups = (f"{int.from_bytes(address[at : at + 2], 'big'):x}" for at in range(0, 16, 2))
    return f"{':'.join(groups)}|{host.port}"
