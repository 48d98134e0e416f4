"""Text of one option to its value: addresses, peers, ids, names, hours. Each says what it expected and what it found.

Not here: which options there are (`cluster.config.options`).
"""

from __future__ import annotations

import re

from dledger.config import Address, Peer, check_id

# Checked against what is allowed, not what is not.
_GROUP = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.%-]{0,127}")
_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?")


def parse_address(value: object) -> Address:
    """Return the address that `host:port` names.

    Raises:
        ValueError: it names none; the message shows it.
    """
    if isinstance(value, Address):
        return value
    host, _, port = _text(value, "host:port").rpartition(":")
    if not _HOST.fullmatch(host) or not (port.isascii() and port.isdigit() and 0 < int(port) < 1 << 16):
        raise ValueError(f"expected host:port with a port of 1 to 65535, found {value!r}")
    if host == "0.0.0.0":  # noqa: S104 - refused here
        raise ValueError(f"expected a host that others can reach, found {value!r}: name one interface of this machine")
    return Address(host, int(port))


def parse_peers(value: object) -> tuple[Peer, ...]:
    """Return the peers that `n0-host:port;n1-host:port` names, in DLedger's notation.

    Raises:
        ValueError: with everything that is wrong in it.
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
    """Return the peer that `id-host:port` names.

    Raises:
        ValueError: it names none.
    """
    peer_id, dash, address = text.partition("-")
    if not dash:
        raise ValueError("expected an id, a dash and an address")
    return Peer(parse_id(peer_id), parse_address(address))


def _text(value: object, expected: str) -> str:
    if isinstance(value, str):
        return value.strip()
    # What pydantic reports as a fault of the option, which a TypeError is not.
    raise ValueError(f"expected {expected} as text, found {value!r}")


def parse_id(value: object) -> str:
    """Return a node's id.

    Raises:
        ValueError: it is not made of 1 to 32 letters, digits, "_" and ".".
    """
    return check_id(_text(value, "an id"))


def parse_group(value: object) -> str:
    """Return a group's name.

    Raises:
        ValueError: it is not made of 1 to 128 letters, digits, "_", ".", "%" and "-".
    """
    if not isinstance(value, str) or not _GROUP.fullmatch(value):
        raise ValueError(f"expected a name of 1 to 128 letters, digits, '_', '.', '%' or '-', found {value!r}")
    return value


def parse_broker(value: object) -> str:
    """Return a broker's name; empty for none.

    Raises:
        ValueError: as `parse_group`.
    """
    return "" if value == "" else parse_group(value)


def parse_addresses(value: object) -> str:
    """Return the addresses that `host:port,host:port` names, as such a text; empty for none.

    Raises:
        ValueError: one of them is none.
    """
    parts = [part.strip() for part in _text(value, "host:port,host:port,...").split(",") if part.strip()]
    return ",".join(str(parse_address(part)) for part in parts)


def parse_ids(value: object) -> tuple[str, ...]:
    """Return the ids that `n0;n1` names; none for an empty text.

    Raises:
        ValueError: one of them is not a valid id, or is listed twice.
    """
    ids = tuple(parse_id(part.strip()) for part in _text(value, "id;id;...").split(";") if part.strip())
    if len(set(ids)) < len(ids):
        raise ValueError(f"expected each id once, found {value!r}")
    return ids


def parse_hours(value: object) -> tuple[int, ...]:
    """Return the hours of the day that `04;16` names.

    Raises:
        ValueError: one of them is not 0 to 23, or there is none.
    """
    parts = [part.strip() for part in _text(value, "hours of the day, hour;hour;...,").split(";") if part.strip()]
    if not parts or not all(part.isascii() and part.isdigit() and int(part) < 24 for part in parts):
        raise ValueError(f"expected hours of the day from 00 to 23, separated by semicolons, found {value!r}")
    return tuple(sorted({int(part) for part in parts}))
