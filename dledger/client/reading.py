"""One read from its first request to its end, over several streams; shared by the blocking and the asyncio client.

It does no I/O: it returns the requests to send, and receives the answers.

The client requests the raw form: the node sends the bytes as stored in its files, and the client verifies the checksums
that the leader computed when it wrote them, so damage on any disk or connection is detected.

A stream may break or be renewed at any entry; the next one begins after the last entry received, so no entry is skipped
or delivered twice. A read that follows is renewed every few seconds: a node that became silent (stopped, disconnected)
would otherwise block it indefinitely.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Literal

import grpc

from dledger.client.failures import code_of_failure, describe
from dledger.client.outcomes import ReadFailed, Refused, name_of
from dledger.client.retry import Backoff
from dledger.entries.format.codec import RAW_ENTRY_CODEC, EntryChecks
from dledger.entries.format.entry import ENTRY_NORMAL, HEADER, HEADER_SIZE, Entry, decode
from dledger.entries.format.walk import UNKNOWN, WalkState, describe_fault, walk
from dledger.errors import ResponseCode
from dledger.v1.log_pb2 import (
    READ_MODE_LEASE,
    READ_MODE_LINEARIZABLE,
    READ_MODE_LOCAL,
    ReadRequest,
    ReadResponse,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

ReadMode = Literal["linearizable", "lease", "local"]
_WIRE_MODES = {"linearizable": READ_MODE_LINEARIZABLE, "lease": READ_MODE_LEASE, "local": READ_MODE_LOCAL}

FOLLOW_RENEWAL_S = 5.0
# Codes of a stopping node. The outcome of an append is then unknown; a read is retried at another node.
_RETRIABLE_READ_CODES = frozenset({ResponseCode.INTERNAL_ERROR, ResponseCode.WAIT_QUORUM_ACK_TIMEOUT})


class ReadSession:
    """The rest of a read, and the time left for failures.

    Args:
        group: the replication group.
        begin: first index; `position`, when given, is used instead.
        position: byte position at which an entry begins.
        max_entries: the most entries to deliver; 0 = all.
        max_bytes: the most encoded bytes to deliver in total (at least one entry); 0 = no limit.
        is_follow: continue with entries that are committed later.
        mode: "linearizable" returns all entries acknowledged before the read; "lease" too, while clocks keep their
            bound; "local" the entries that one node knows to be committed.
        is_follower_preferred: read from a follower if one is available.
        is_internal_included: deliver the no-ops and memberships of leaders, too.
        patience_s: the time without any success after which the read fails.
        checks: which entries may be a leader's own; others count as damaged.
        now_s: a monotonic clock.
        random: draws the jitter of pauses.

    Raises:
        ValueError: a number is negative, or the mode is unknown.
    """

    def __init__(
        self,
        *,
        group: str,
        begin: int,
        position: int | None,
        max_entries: int,
        max_bytes: int,
        is_follow: bool,
        mode: ReadMode,
        is_internal_included: bool,
        patience_s: float,
        is_follower_preferred: bool = False,
        checks: EntryChecks = RAW_ENTRY_CODEC,
        now_s: Callable[[], float] = time.monotonic,
        random: Random | None = None,
    ) -> None:
        for name, value in (("begin", begin), ("position", position or 0), ("max_entries", max_entries)):
            if value < 0:
                raise ValueError(f"{name} must not be negative, found {value}")
        if max_bytes < 0:
            raise ValueError(f"max_bytes must not be negative, found {max_bytes}")
        if mode not in _WIRE_MODES:
            raise ValueError(f"mode must be 'linearizable', 'lease' or 'local', found {mode!r}")
        self.is_follow = is_follow
        self.is_local = mode == "local"
        self.is_follower_preferred = is_follower_preferred
        self._mode = _WIRE_MODES[mode]
        self.is_done = False
        self._group = group
        self._begin = begin
        self._position = position
        self._entries_left = max_entries or None
        self._bytes_left = max_bytes or None
        self._is_internal_included = is_internal_included
        self._checks = checks
        self._next_index: int | None = None
        self._walk = WalkState(index=UNKNOWN, term=0, chain_crc=UNKNOWN)
        self._end_position = 0
        self._end_index: int | None = None
        self._stream_begin: int | None = None
        self._is_renewal = False
        self._hidden = 0
        self._patience_s = patience_s
        self._now_s = now_s
        self._give_up_at = now_s() + patience_s
        self._backoff = Backoff(random)

    @property
    def next_index(self) -> int | None:
        """Index after the last entry received; None before the first."""
        return self._next_index

    def timeout_s(self) -> float:
        """Return the longest time that one stream is used before it is renewed."""
        return FOLLOW_RENEWAL_S if self.is_follow else self._patience_s

    def request(self) -> ReadRequest:
        """Return the request for the rest of the read."""
        self._hidden = 0
        self._stream_begin = self._next_index
        request = ReadRequest(
            group=self._group,
            max_entries=self._entries_to_ask(),
            max_bytes=self._bytes_left or 0,
            follow=self.is_follow,
            mode=self._mode,
            raw=True,
        )
        if self._next_index is not None:
            request.index = self._next_index
        elif self._position is not None:
            request.position = self._position
        else:
            request.index = self._begin
        return request

    def _entries_to_ask(self) -> int:
        """Return the entry limit of the next stream: the caller's, or less at the end of the read."""
        limits = [] if self._entries_left is None else [self._entries_left]
        # A read that continues on another node must not run beyond what was committed when it began.
        if self._next_index is not None and self._end_index is not None:
            limits.append(self._end_index - self._next_index + 1)
        return min(limits, default=0)

    def take(self, response: ReadResponse, address: str) -> list[Entry]:
        """Return the verified entries of one response, without a leader's own entries unless the caller wants them.

        Raises:
            Refused: the node ended the read; `pause_after` decides whether it continues.
            ReadFailed: the bytes are damaged.
        """
        if response.code != ResponseCode.SUCCESS:
            text = f"{address} answered: {response.message or name_of(response.code)}"
            raise Refused(response.code, text)
        if self._end_index is None and not self.is_follow:
            self._end_index = response.commit_index
        if not response.encoded:
            return []
        entries = self._decode(response.encoded, address)
        self._next_index = entries[-1].index + 1
        if self._bytes_left is not None:
            self._bytes_left -= len(response.encoded)
        if not self._is_internal_included:
            shown = [entry for entry in entries if entry.magic == ENTRY_NORMAL and not entry.channel]
            self._hidden += len(entries) - len(shown)
            entries = shown
        if self._entries_left is not None:
            self._entries_left -= len(entries)
        self._succeed()
        self._check_limits()
        return entries

    def _decode(self, encoded: bytes, address: str) -> list[Entry]:
        try:
            entries, self._walk = decode_chunk(encoded, self._walk, self._end_position, self._checks)
        except DamagedBytesError as error:
            raise ReadFailed(
                ResponseCode.DISK_ERROR,
                f"{address} sent damaged bytes: {error}; read from another node (mode='local' and endpoint=...), and "
                "check the files of the first one with `dledger inspect entries`",
                self._next_index,
            ) from error
        # Java's entries may have the position of another replica, which is no lower bound for the next entry.
        self._end_position = entries[-1].position + entries[-1].size if entries[-1].chain_crc else 0
        return entries

    def _check_limits(self) -> None:
        is_beyond = self._end_index is not None and (self._next_index or 0) > self._end_index
        is_full = self._entries_left == 0 or (self._bytes_left is not None and self._bytes_left <= 0)
        self.is_done = self.is_done or is_beyond or is_full

    def ended(self) -> None:
        """A stream ended without an error: the read is done, unless hidden entries used up the node's limit."""
        if not self.is_follow and (self._entries_left is None or not self._hidden):
            self.is_done = True
        self._check_limits()

    def broke(self, address: str, code: grpc.StatusCode, details: str) -> None:
        """A stream broke. One that reached its time limit is renewed without a pause.

        Raises:
            Refused: it broke earlier, or delivered nothing.
        """
        self._is_renewal = code is grpc.StatusCode.DEADLINE_EXCEEDED and self._is_stream_useful()
        if not self._is_renewal:
            raise Refused(code_of_failure(code, details), describe(address, code, details))

    def _is_stream_useful(self) -> bool:
        """Return whether a stream that reached its time limit delivered an entry, or follows the log."""
        return self.is_follow or self._next_index != self._stream_begin

    def node_found(self) -> None:
        """A live node to read from was found: for a read that follows an idle log this counts as success."""
        if self._is_renewal:
            self._is_renewal = False
            self._succeed()

    def pause_after(self, refusal: Refused) -> float:
        """Return the pause before the next stream, in seconds.

        Raises:
            ReadFailed: a retry cannot succeed, or the time limit has passed.
        """
        # Another node may know of fewer committed entries than the one on which the read began.
        is_behind = refusal.code == ResponseCode.INDEX_OUT_OF_RANGE and self.is_local and self._next_index is not None
        if not (refusal.is_retriable or refusal.code in _RETRIABLE_READ_CODES or is_behind):
            raise ReadFailed(refusal.code, refusal.message, self._next_index) from refusal
        pause_s = self._backoff.next_s()
        if self._now_s() + pause_s >= self._give_up_at:
            text = f"{refusal.message} (tried for {self._patience_s:g} s)"
            raise ReadFailed(refusal.code, text, self._next_index) from refusal
        return pause_s

    def _succeed(self) -> None:
        self._give_up_at = self._now_s() + self._patience_s
        self._backoff.reset()


class DamagedBytesError(Exception):
    """Bytes that differ from those the leader wrote; the message has expected and found values."""


def decode_chunk(
    encoded: bytes, state: WalkState, position_min: int = 0, checks: EntryChecks = RAW_ENTRY_CODEC
) -> tuple[list[Entry], WalkState]:
    """Check and decode entries of one data file that are stored back to back.

    Args:
        encoded: whole entries, at least one.
        state: the state of the walk before the first entry, with which it must agree.
        position_min: the lowest position at which the first entry may begin; in the next data file it is higher.
        checks: which entries may be a leader's own.

    Returns:
        The entries, and the state of the walk for the next chunk.

    Raises:
        DamagedBytesError: an entry is not whole, not the next one, or its checksums do not hold.
    """
    buffer, end = memoryview(encoded), len(encoded)
    position = HEADER.unpack_from(buffer, 0)[4] if end >= HEADER_SIZE else position_min
    found = walk(buffer, 0, end, max(position, position_min), state, end, checks)
    if found.offset != end:
        at = found.offset
        expected, wrong = describe_fault(buffer, at, end, max(position, position_min) + at, found.state, checks)
        raise DamagedBytesError(f"expected {expected}, found {wrong}")
    entries: list[Entry] = []
    offset = 0
    while offset < end:
        entry = decode(encoded, offset)
        entries.append(entry)
        offset += entry.size
    return entries, found.state
