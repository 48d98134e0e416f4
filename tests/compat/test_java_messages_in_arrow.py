"""Every message that Java wrote, decoded to Arrow columns, is what its manifest says."""

import base64
from ipaddress import ip_address

import numpy as np

from commitlog.record_rows import good_rows
from commitlog.record_scan import walk
from pipeline.decoder import decode_rows
from pipeline.schema import ALL_NAMES, arrow_schema


def expected(message):
    def host(text):
        address, _, port = text.rpartition("|")
        ip = ip_address(address)
        return f"{ip}:{port}" if ip.version == 4 else f"[{ip}]:{port}"

    return {
        "topic": message["topic"],
        "queueId": message["queueId"],
        "queueOffset": message["queueOffset"],
        "body": base64.b64decode(message["body"]),
        "tags": message["tag"],
        "keys": message["keys"],
        "uniqKey": message["uniqKey"],
        "properties": message["properties"],
        "bornTimestamp": message["bornTimestamp"] * 1000,
        "storeTimestamp": message["storeTimestamp"] * 1000,
        "physicalOffset": message["physicalOffset"],
        "sysFlag": message["sysFlag"],
        "flag": message["flag"],
        "reconsumeTimes": message["reconsumeTimes"],
        "bornHost": host(message["bornHost"]),
        "storeHost": host(message["storeHost"]),
        "preparedTransactionOffset": message["preparedTransactionOffset"],
        "bodyCrc": message["bodyCRC"],
        "bodySize": len(base64.b64decode(message["body"])),
        "storeSize": message["size"],
        "magic": message["magic"],
        "propertiesRaw": base64.b64decode(message["propertiesRaw"]),
    }


def decoded(file):
    view, position = memoryview(file.content), 0
    walked = walk(view, position, len(view), header_size=file.header_size)
    starts, sizes = np.array(walked.starts, np.int64), np.array(walked.sizes, np.int64)
    rows = good_rows(np.frombuffer(view, np.uint8), starts, starts + sizes, file.base)
    return decode_rows(view, rows, ALL_NAMES, header_size=file.header_size)


def test_columns_are_what_the_manifest_says(java_store):
    found = {}
    for file in java_store.files:
        batch = decoded(file)
        assert batch.schema == arrow_schema(ALL_NAMES)
        batch.validate(full=True)
        for name in ("bornTimestamp", "storeTimestamp"):
            place = batch.schema.get_field_index(name)
            batch = batch.set_column(place, name, batch.column(place).cast("int64"))
        for row in batch.to_pylist():
            row["properties"] = dict(row["properties"])
            is_entry = file.header_size > 0
            assert (row.pop("index") is not None, row.pop("term") is not None) == (is_entry, is_entry)
            found[row["physicalOffset"]] = row

    assert found == {offset: expected(message) for offset, message in java_store.messages.items()}
