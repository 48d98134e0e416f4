"""Parsers of option values: addresses, peers, ids, names, hours. Errors have expected and found.

Not here: the table of options (`cluster.config.options`).
"""

from __future__ import annotations

import re
from urllib.parse import urlsplit

from dledger.config import Address, Peer, check_id

# An allowlist of characters.
_GROUP = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.%-]{0,127}")
_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?")


def parse_address(value: object) -> Address:
    """Parse an address `host:port`.

    Raises:
        ValueError: it is not an address.
    """
    if isinstance(value, Address):
        return value
    host, _, port = _text(value, "host:port").rpartition(":")
    if not _HOST.fullmatch(host) or not (port.isascii() and port.isdigit() and 0 < int(port) < 1 << 16):
        raise ValueError(f"expected host:port with a port of 1 to 65535, found {value!r}")
    if host == "0.0.0.0":  # noqa: S104 - refused here
        raise ValueError(f"expected a host that others can reach, found {value!r}: use the address of one interface")
    return Address(host, int(port))


def parse_address_or_off(value: object) -> Address | None:
    """Parse an address, or `off`: None.

    Raises:
        ValueError: it is neither.
    """
    return None if value in (None, "off") else parse_address(value)


def parse_peers(value: object) -> tuple[Peer, ...]:
    """Parse peers in DLedger's notation, `n0-host:port;n1-host:port`.

    Raises:
        ValueError: one or more peers are invalid; the text has all faults.
    """
    peers: list[Peer] = []
    faults: list[str] = []
    for text in filter(None, (part.strip() for part in _text(value, "id-host:port;id-host:port;...").split(";"))):
        try:
            peers.append(parse_peer(text))
        except ValueError as error:
            faults.append(f"{text!r}: {error}")
    if not peers and not faults:
        faults.append("expected at least one peer, found none")
    if faults:
        raise ValueError("; ".join(faults))
    return tuple(peers)


def parse_peer(text: str) -> Peer:
    """Parse a peer `id-host:port`.

    Raises:
        ValueError: it is not a peer.
    """
    peer_id, dash, address = text.partition("-")
    if not dash:
        raise ValueError("expected an id, a dash and an address")
    return Peer(parse_id(peer_id), parse_address(address))


def _text(value: object, expected: str) -> str:
    if isinstance(value, str):
        return value.strip()
    # A ValueError, which pydantic reports as a fault of the option; a TypeError would propagate.
    raise ValueError(f"expected {expected} as text, found {value!r}")


def parse_id(value: object) -> str:
    """Check a node's id.

    Raises:
        ValueError: it is not made of 1 to 32 letters, digits, "_" and ".".
    """
    return check_id(_text(value, "an id"))


def parse_group(value: object) -> str:
    """Check a group's name.

    Raises:
        ValueError: it is not made of 1 to 128 letters, digits, "_", ".", "%" and "-".
    """
    if not isinstance(value, str) or not _GROUP.fullmatch(value):
        raise ValueError(f"expected a name of 1 to 128 letters, digits, '_', '.', '%' or '-', found {value!r}")
    return value


def parse_broker(value: object) -> str:
    """Check a broker's name; empty: none.

    Raises:
        ValueError: see `parse_group`.
    """
    return "" if value == "" else parse_group(value)


def parse_peers_if_any(value: object) -> tuple[Peer, ...]:
    """Parse peers as `parse_peers`; an empty text has none.

    Raises:
        ValueError: one or more peers are invalid.
    """
    return () if value == "" else parse_peers(value)


def parse_addresses(value: object) -> str:
    """Check addresses `host:port,host:port`; return them in the same form; empty: none.

    Raises:
        ValueError: one of them is not an address.
    """
    parts = [part.strip() for part in _text(value, "host:port,host:port,...").split(",") if part.strip()]
    return ",".join(str(parse_address(part)) for part in parts)


def parse_ids(value: object) -> tuple[str, ...]:
    """Parse ids `n0;n1`; an empty text has none.

    Raises:
        ValueError: one of them is not a valid id, or is listed twice.
    """
    ids = tuple(parse_id(part.strip()) for part in _text(value, "id;id;...").split(";") if part.strip())
    if len(set(ids)) < len(ids):
        raise ValueError(f"expected each id once, found {value!r}")
    return ids


def parse_hours(value: object) -> tuple[int, ...]:
    """Parse hours of the day, `04;16`.

    Raises:
        ValueError: one of them is not 0 to 23, or there is none.
    """
    parts = [part.strip() for part in _text(value, "hours of the day, hour;hour;...,").split(";") if part.strip()]
    if not parts or not all(part.isascii() and part.isdigit() and int(part) < 24 for part in parts):
        raise ValueError(f"expected hours of the day from 00 to 23, separated by semicolons, found {value!r}")
    return tuple(sorted({int(part) for part in parts}))


def parse_collector(value: object) -> str:
    """Parse the URL of a collector, `http://host:port` or https, perhaps with a path; or nothing.

    Raises:
        ValueError: it is no such URL, or has a password, which belongs into OTEL_EXPORTER_OTLP_HEADERS.
    """
    text = _text(value, "http://host:port")
    if not text:
        return ""
    # The URL itself is not in the message: it may have a password.
    expected = "expected http://host:port or https://host:port, without user, query or fragment"
    try:
        url = urlsplit(text)
        is_plain = url.username is None and url.password is None and not url.query and not url.fragment
        is_valid = url.scheme in ("http", "https") and bool(url.hostname) and url.port != 0
    except ValueError:
        is_plain = is_valid = False
    if not (is_plain and is_valid and text.isprintable() and " " not in text):
        raise ValueError(expected)
    return text
