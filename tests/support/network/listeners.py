"""Every port on which a process accepts connections or datagrams, as the operating system lists them."""

from __future__ import annotations

import re
import socket
import struct
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path
from typing import Final, NamedTuple

_LISTENS: Final = "0A"
_ACCEPTS: Final = 0x10000
_SOCKET: Final = re.compile(r"socket:\[(\d+)\]")


class Listener(NamedTuple):
    """A port of a process: `tcp`, `udp` or `unix`; of the last one the host is its path."""

    kind: str
    host: str
    port: int

    @property
    def is_loopback(self) -> bool:
        """Whether no other machine can reach it."""
        return self.kind == "unix" or ip_address(self.host).is_loopback


def listeners_of(pid: int) -> set[Listener]:
    """Return the listeners of a process and of all its children."""
    found = {each for each in map(_listener_of, _sockets_of(pid)) if each is not None}
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in (task / "children").read_text().split():
            found |= listeners_of(int(child))
    return found


def _sockets_of(pid: int) -> set[tuple[str, tuple[str, ...]]]:
    """Return the lines of the sockets of a process, with their kind."""
    links = (str(path.readlink()) for path in Path(f"/proc/{pid}/fd").iterdir() if path.is_symlink())
    own = {match.group(1) for match in map(_SOCKET.fullmatch, links) if match is not None}
    lines = set()
    for kind, inode_column in (("tcp", 9), ("tcp6", 9), ("udp", 9), ("udp6", 9), ("unix", 6)):
        for line in Path(f"/proc/{pid}/net/{kind}").read_text().splitlines()[1:]:
            words = tuple(line.split())
            if words[inode_column] in own:
                lines.add((kind, words))
    return lines


def _listener_of(found: tuple[str, tuple[str, ...]]) -> Listener | None:
    kind, words = found
    if kind == "unix":
        path = words[7] if len(words) > 7 else ""
        return Listener("unix", path, 0) if int(words[3], 16) & _ACCEPTS else None
    if kind.startswith("tcp") and words[3] != _LISTENS:
        return None
    host, port = words[1].split(":")
    return Listener(kind.removesuffix("6"), str(_address(host)), int(port, 16))


def _address(text: str) -> IPv4Address | IPv6Address:
    """Return an address that the system prints as words in the order of the machine."""
    words = [int(text[begin : begin + 8], 16) for begin in range(0, len(text), 8)]
    packed = struct.pack(f"={len(words)}I", *words)
    address = ip_address(socket.inet_ntop(socket.AF_INET if len(words) == 1 else socket.AF_INET6, packed))
    return getattr(address, "ipv4_mapped", None) or address
