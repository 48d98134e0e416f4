"""The known nodes and the presumed leader. It does no I/O.

The blocking and the asyncio client send the requests; `pick_leader` evaluates the answers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dledger.client.outcomes import Refused, name_of
from dledger.errors import ResponseCode

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from random import Random

    from dledger.v1.log_pb2 import StatusResponse

# Addresses learned from hints are kept beside the given ones; a cluster has at most a handful of nodes.
_ADDRESSES_MAX = 32
# Codes that do not contradict the leadership of the node that answers.
_STAYS_LEADER = frozenset(
    {
        ResponseCode.SUCCESS,
        ResponseCode.LEADER_PENDING_FULL,
        ResponseCode.LEADER_NOT_READY,
        ResponseCode.DISK_FULL,
        ResponseCode.UNEXPECTED_ARGUMENT,
        ResponseCode.REQUEST_WITH_EMPTY_BODYS,
        ResponseCode.INDEX_OUT_OF_RANGE,
        ResponseCode.INDEX_LESS_THAN_LOCAL_BEGIN,
    }
)


def parse_endpoints(endpoints: str | Iterable[str]) -> tuple[str, ...]:
    """Return the distinct `host:port` of a comma-separated text or of several texts, in order.

    Raises:
        ValueError: no endpoint at all, or one that is not `host:port`; the message shows it.
    """
    texts = endpoints.split(",") if isinstance(endpoints, str) else list(endpoints)
    found = dict.fromkeys(text.strip() for text in texts if text.strip())
    if not found:
        raise ValueError("no endpoint given: expected host:port of each node's LogService, comma separated")
    for text in found:
        host, colon, port = text.rpartition(":")
        if not (colon and host and port.isascii() and port.isdigit() and 0 < int(port) < 1 << 16):
            raise ValueError(f"bad endpoint {text!r}: expected host:port with a port of 1 to 65535")
    return tuple(found)


class LeaderTracker:
    """Remembers the endpoints and the presumed leader. Wrong guesses cost a round trip, never an append.

    Safe to share between threads: every change is one assignment, and a lost one is only a lost hint.
    """

    def __init__(self, endpoints: str | Iterable[str]) -> None:
        self.addresses = parse_endpoints(endpoints)
        self.leader: str | None = None
        self._answering: frozenset[str] = frozenset()

    def has_answered(self, address: str) -> bool:
        """Return whether the last call to `address` was answered."""
        return address in self._answering

    def answered(self, address: str) -> None:
        """Record that a node answers at `address`."""
        if address not in self._answering:
            self._answering |= {address}

    def failed(self, address: str) -> None:
        """Record that a call to `address` failed: it is no longer the presumed leader."""
        self.forget(address)
        self._answering -= {address}

    def follow(self, address: str) -> str:
        """Make `address` the presumed leader, as a node reported; return it."""
        if address not in self.addresses and len(self.addresses) < _ADDRESSES_MAX:
            self.addresses = (*self.addresses, address)
        self.leader = address
        return address

    def forget(self, address: str) -> None:
        """Stop presuming that `address` is the leader: it reported that it is not."""
        if self.leader == address:
            self.leader = None

    def observe(self, address: str, code: int, hint: str = "") -> None:
        """Update the presumed leader from an answer of `address`.

        Args:
            address: of the node that answered.
            code: its response code.
            hint: the address that it named as the leader's; empty for none.
        """
        self.answered(address)
        if code in _STAYS_LEADER:
            return
        self.forget(address)
        if code == ResponseCode.NOT_LEADER and hint not in ("", address):
            self.follow(hint)


def pick_leader(answers: Mapping[str, StatusResponse | str]) -> str | None:
    """Return the address of the leader with the highest term in the answers; None when no node knows one.

    Args:
        answers: by address, a node's answer, or the reason why there is none.

    The highest term wins because a partitioned leader still considers itself the leader of an older term.
    """
    best: tuple[int, bool] | None = None
    leader: str | None = None
    for address, answer in answers.items():
        if isinstance(answer, str) or answer.code != ResponseCode.SUCCESS:
            continue
        is_itself = answer.role == "LEADER"
        claimed = address if is_itself else answer.leader.address
        # Within a term the leader's own answer is preferred: its address is known to be reachable.
        if claimed and (best is None or (answer.term, is_itself) > best):
            best, leader = (answer.term, is_itself), claimed
    return leader


def pick_follower(answers: Mapping[str, StatusResponse | str], random: Random) -> str | None:
    """Return the address of a follower of the leader with the highest term; None when there is none."""
    alive = {address: answer for address, answer in answers.items() if not isinstance(answer, str)}
    term = max((answer.term for answer in alive.values()), default=0)
    followers = [
        address
        for address, answer in alive.items()
        if answer.code == ResponseCode.SUCCESS
        and answer.role == "FOLLOWER"
        and answer.leader.id
        and answer.term == term
    ]
    return random.choice(followers) if followers else None


def is_enough(answers: Mapping[str, StatusResponse | str], asked: int) -> bool:
    """Return whether a majority of the nodes asked has answered, and one of them named a leader."""
    answered = sum(1 for answer in answers.values() if not isinstance(answer, str))
    return answered > asked // 2 and pick_leader(answers) is not None


def refusal_without_leader(answers: Mapping[str, StatusResponse | str]) -> Refused:
    """Return the error for an unknown leader: every node's answer, and a code that allows a retry or not."""
    refusals = [answer for answer in answers.values() if not isinstance(answer, str)]
    for code in (ResponseCode.UNKNOWN_GROUP, ResponseCode.ACCESS_DENIED, ResponseCode.NOT_AUTHENTICATED):
        if refusals and all(answer.code == code for answer in refusals):
            return Refused(code, refusals[0].message or "the nodes serve another group")
    said = "; ".join(_described_answer(address, answer) for address, answer in answers.items())
    return Refused(ResponseCode.NETWORK_ERROR, f"no leader found: {said}")


def _described_answer(address: str, answer: StatusResponse | str) -> str:
    if isinstance(answer, str):
        return answer
    if answer.code != ResponseCode.SUCCESS:
        return f"{address} answered {answer.message or name_of(answer.code)}"
    return f"{address} is {answer.role} of term {answer.term} and knows no leader"
