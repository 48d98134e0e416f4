"""Messages of manifests and of Arrow batches in one form, to be compared."""

import base64
from ipaddress import ip_address


def host_of(text):
    """Return a host of a manifest as batches have it."""
    address, _, port = text.rpartition("|")
    ip = ip_address(address)
    return f"{ip}:{port}" if ip.version == 4 else f"[{ip}]:{port}"


def expected(message):
    """Return the row that a message of a manifest must give, but for index and term."""
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
        "bornHost": host_of(message["bornHost"]),
        "storeHost": host_of(message["storeHost"]),
        "preparedTransactionOffset": message["preparedTransactionOffset"],
        "bodyCrc": message["bodyCRC"],
        "bodySize": len(base64.b64decode(message["body"])),
        "storeSize": message["size"],
        "magic": message["magic"],
        "propertiesRaw": base64.b64decode(message["propertiesRaw"]),
        "bornTimestampMs": message["bornTimestamp"],
    }


def rows_of(batch, *, has_entries=None):
    """Return the rows of a batch or table: times in microseconds, properties as dicts, without index and term."""
    for name in ("bornTimestamp", "storeTimestamp"):
        place = batch.schema.get_field_index(name)
        if place >= 0:
            batch = batch.set_column(place, name, batch.column(place).cast("int64"))
    rows = batch.to_pylist()
    for row in rows:
        if "properties" in row:
            row["properties"] = dict(row["properties"])
        found = row.pop("index", None) is not None, row.pop("term", None) is not None
        assert has_entries is None or found == (has_entries, has_entries)
    return rows
