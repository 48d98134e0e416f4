"""Ends transactions: one task on each node, of which only the leader's works, with one put pending at a time.

A put has the messages of up to 256 ends, then one op message. Each of these records carries what it changes
(`cluster.state.transactions`), so a change of leader separates no message from its end. A request is answered from the
applied state alone:

1. while the outcome of the last put is unknown, nothing is chosen: a later entry is committed first;
2. requests whose transactions have ended meanwhile are answered: done, or refused if they want another end. So an end
   is final, a repeated request is answered again, and of two at once the second waits for the first;
3. the next requests are put; they stay in the line until the state has their end.

Half messages that are put again, because the log will delete their records, are in the same puts: so none is put again
while its transaction ends.

Only the first part of a put may survive a change of leader: then the new leader writes the missing op message.

Source: RocketMQ `EndTransactionProcessor`, which writes an end again, or another one, if it is asked to.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple

from cluster.delivery.diversion import in_table
from cluster.delivery.leader_task import LeaderTask
from cluster.delivery.records import read_records
from cluster.delivery.transactions.records import (
    HalfMessage,
    committed_message,
    given_up_message,
    half_message,
    op_message,
    renewed_message,
    replaced_message,
)
from cluster.protocol.errors import Reason, RequestFailed, failure_of
from cluster.state.effects import ENDS_MAX, Ending
from cluster.state.transactions import name_hash
from store.errors import Certainty, IllegalMessage, StoreError
from store.model.topics import OP_HALF_TOPIC

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from cluster.replica.port import Replica
    from cluster.state.transactions import OpenTransaction
    from store.model.message import Message

# Requests that wait; a client that is refused sends again.
_WAITING_MAX: Final = 20_000
# Half messages that wait to be put again; the checks name the others later.
_EXPIRING_MAX: Final = 4_096
_BATCH_BYTES_MAX: Final = 1 << 20
# Of an op message: its fixed part; and one end in its body and its effect.
_OP_SIZE_BYTES: Final = 512
_END_SIZE_BYTES: Final = 64


class EndRequest(NamedTuple):
    """A request to end a transaction.

    Attributes:
        half: offset of the half message in its queue.
        ending: the wanted end.
        physical_offset: of the half message.
        topic: of the transaction; the caller may put to it.
        group: producer group.
        transaction_id: id of the transaction; empty: it is not compared.
        is_own: the broker itself asks: only the first two are compared.
    """

    half: int
    ending: Ending
    physical_offset: int = 0
    topic: str = ""
    group: str = ""
    transaction_id: str = ""
    is_own: bool = False


# Compared by identity: clients repeat requests.
@dataclass(slots=True, eq=False)
class _Waiting:
    request: EndRequest
    answer: asyncio.Future[bool]
    is_put: bool = False


@dataclass(slots=True)
class _Chosen:
    """A put.

    Attributes:
        open: the requests that it ends, and their open transactions, by offset of the half message.
        messages: without the op messages.
        ends: what the op message notes; also of earlier puts that lack theirs.
        replaced: offsets of the records of half messages that are put again.
        size_bytes: of the half messages whose copies are put.
    """

    open: dict[int, tuple[_Waiting, OpenTransaction]] = field(default_factory=dict)
    messages: list[Message] = field(default_factory=list)
    ends: dict[int, Ending] = field(default_factory=dict)
    replaced: list[int] = field(default_factory=list)
    size_bytes: int = 0

    @property
    def requests(self) -> list[_Waiting]:
        return [waiting for waiting, _ in self.open.values()]


class TransactionEnds:
    """The ends of transactions on one node. Must be created inside the running loop.

    Args:
        replica: the node's.
        clock_ms: the wall clock, milliseconds since 1970.
        on_ended: called with the end of each transaction that this node ended.

    Attributes:
        put_again_count: half messages that this process has put again for the log's retention.
    """

    def __init__(self, replica: Replica, clock_ms: Callable[[], int], on_ended: Callable[[Ending], None]) -> None:
        self._replica = replica
        self._clock_ms = clock_ms
        self._on_ended = on_ended
        self._task = LeaderTask(replica, clock_ms, OP_HALF_TOPIC)
        self._line: list[_Waiting] = []
        # Half messages to put again, in order.
        self._expiring: dict[int, None] = {}
        self.put_again_count = 0
        # 1 after a batch was refused: the message that cannot be stored is found by itself.
        limits = replica.put_limits
        self._messages_max = limits.messages_max
        self._size_bytes_max = min(limits.size_bytes_max, _BATCH_BYTES_MAX)
        ends_max = (self._size_bytes_max - _OP_SIZE_BYTES) // _END_SIZE_BYTES
        self._ends_max = max(min(ENDS_MAX, self._messages_max - 1, ends_max), 1)
        self._batch_max = self._ends_max

    def begin(self, request: EndRequest) -> asyncio.Future[bool]:
        """Begin to end a transaction; the future's result is whether this request ended it: False if it had ended so.

        A cancelled future takes the request back, unless it is being put.

        Raises:
            RequestFailed: NOT_LEADER, LEADER_PENDING_FULL: nothing was done. The exception of the future is
                NO_TRANSACTION, TRANSACTION_ENDED (otherwise), UNKNOWN_TOPIC; or it is not decided yet, and the
                certainty is whether it may be ended nevertheless: the same request may be repeated.
        """
        self._replica.serving_puts()
        if len(self._line) >= _WAITING_MAX:
            text = f"{len(self._line)} ends of transactions wait; retry later"
            raise RequestFailed(Reason.LEADER_PENDING_FULL, text)
        waiting = _Waiting(request, asyncio.get_running_loop().create_future())
        self._line.append(waiting)
        self._task.wake()
        return waiting.answer

    def put_again(self, halves: Iterable[int]) -> None:
        """Put half messages again whose transactions are open, soon; repeated, or after their ends, it does nothing."""
        for half in halves:
            if len(self._expiring) < _EXPIRING_MAX:
                self._expiring[half] = None
        self._task.wake()

    async def run(self) -> None:
        """Answer requests, and write missing op messages, until cancelled."""
        await self._task.run(self._end_all)

    async def _end_all(self) -> None:
        """Answer all requests, with one put after the other.

        Raises:
            RequestFailed, StoreError, DLedgerError: it continues later.
        """
        while self._replica.status().is_serving_puts:
            if await self._task.decided():
                continue
            chosen = self._choose()
            if chosen.messages or chosen.ends:
                await self._put(chosen)
            elif not self._line:
                return
        self._refuse_all()

    def _refuse_all(self) -> None:
        """Refuse all requests: another node leads, which answers them from its state."""
        line, self._line = self._line, []
        self._expiring.clear()
        for waiting in line:
            certainty = Certainty.UNKNOWN if waiting.is_put else Certainty.NOT_APPENDED
            text = "another node leads now; repeat the request"
            reason = Reason.ANSWER_LOST if waiting.is_put else Reason.NOT_LEADER
            _fail(waiting, RequestFailed(reason, text, certainty=certainty))

    # ------------------------------------------------------------------------------------------------------ choosing

    def _choose(self) -> _Chosen:
        """Answer the requests that are settled; return the next put."""
        chosen, kept, table = _Chosen(), list[_Waiting](), self._replica.state.transactions
        line, self._line = self._line, []
        for position, waiting in enumerate(line):
            request = waiting.request
            if waiting.answer.done() and not waiting.is_put:
                continue
            row = table.find(request.half)
            if row is None:
                self._settle(waiting)
            elif request.half in chosen.open:
                kept.append(waiting)
            elif self._is_full(chosen, request, row):
                kept += line[position:]
                break
            else:
                chosen.open[request.half] = waiting, row
                chosen.size_bytes += 0 if request.ending is Ending.ROLLED_BACK else row.size
        self._line = kept
        self._make_messages(chosen)
        for half, ending in islice(table.without_op.items(), self._ends_max):
            if len(chosen.ends) < self._ends_max:
                chosen.ends[half] = ending
        self._choose_expiring(chosen)
        return chosen

    def _choose_expiring(self, chosen: _Chosen) -> None:
        """Add half messages that are put again, as long as there is space in the put."""
        table = self._replica.state.transactions
        while self._expiring and len(chosen.messages) + 2 < self._messages_max:
            half = next(iter(self._expiring))
            row = table.find(half)
            found = None if row is None or half in chosen.ends else read_half(self._replica, half, row)
            if found is not None:
                size_bytes = _OP_SIZE_BYTES + len(chosen.ends) * _END_SIZE_BYTES + found.record.size + _OP_SIZE_BYTES
                if chosen.messages and chosen.size_bytes + size_bytes > self._size_bytes_max:
                    return
                chosen.messages.append(renewed_message(found))
                chosen.replaced.append(found.record.queue_offset)
                chosen.size_bytes += found.record.size
                # Its op message has one number for each.
                chosen.size_bytes += _END_SIZE_BYTES
            del self._expiring[half]

    def _is_full(self, chosen: _Chosen, request: EndRequest, row: OpenTransaction) -> bool:
        """Return whether the put has no space for a further end, or its message would be larger than accepted."""
        if len(chosen.open) >= self._batch_max:
            return True
        if not chosen.open or request.ending is Ending.ROLLED_BACK:
            return False
        op_size_bytes = _OP_SIZE_BYTES + (len(chosen.open) + 1) * _END_SIZE_BYTES
        return chosen.size_bytes + row.size + op_size_bytes > self._size_bytes_max

    def _settle(self, waiting: _Waiting) -> None:
        """Answer a request whose transaction is not open."""
        request, ended = waiting.request, self._replica.state.transactions.ended(waiting.request.half)
        if ended is None:
            _fail(waiting, _no_transaction(request, "it never began, or its end was forgotten"))
        elif not request.is_own and ended.physical_offset != request.physical_offset:
            _fail(waiting, _no_transaction(request, "its half message is another one"))
        elif ended.ending is not request.ending:
            text = f"the transaction of half message {request.half} has ended: {ended.ending.name.lower()}"
            _fail(waiting, RequestFailed(Reason.TRANSACTION_ENDED, text))
        else:
            if waiting.is_put:
                self._on_ended(ended.ending)
            if not waiting.answer.done():
                waiting.answer.set_result(waiting.is_put)

    def _make_messages(self, chosen: _Chosen) -> None:
        """Read the half messages of a put, and make its messages; refuse requests that do not fit theirs."""
        if not chosen.open:
            return
        state, now_ms = self._replica.state, self._clock_ms()
        halves = read_halves(self._replica, {half: row for half, (_, row) in chosen.open.items()})
        for (waiting, row), half in zip(list(chosen.open.values()), halves, strict=True):
            request = waiting.request
            try:
                _check(request, row, half)
                if half is not None and request.ending is Ending.COMMITTED:
                    delivery = in_table(half.level, state.delay_levels_ms, now_ms)
                    chosen.messages.append(committed_message(half, state.topics, delivery))
                elif half is not None and request.ending is Ending.GIVEN_UP:
                    chosen.messages.append(given_up_message(half))
            except (RequestFailed, StoreError) as error:
                _fail(waiting, error)
                del chosen.open[request.half]
            else:
                chosen.ends[request.half] = request.ending

    # ------------------------------------------------------------------------------------------------------- putting

    async def _put(self, chosen: _Chosen) -> None:
        """Put the messages of some ends; the next turn answers the requests.

        Raises:
            RequestFailed, StoreError, DLedgerError: they are not put, or it is not known.
        """
        requests = chosen.requests
        # In the line from now on: this task may be cancelled, or the put may raise.
        self._line = [*requests, *self._line]
        for waiting in requests:
            waiting.is_put = True
        try:
            await self._task.put(self._messages(chosen))
        except IllegalMessage as error:
            for waiting in requests:
                waiting.is_put = False
            if len(requests) <= 1:
                self._drop(requests, error)
            self._batch_max = 1
        except RequestFailed as failure:
            if failure.certainty is Certainty.NOT_APPENDED:
                self._drop(requests, failure)
            raise
        else:
            self._batch_max = self._ends_max
            self.put_again_count += len(chosen.replaced)

    def _messages(self, chosen: _Chosen) -> list[Message]:
        """Return the messages of a put: those of the ends, and their op message.

        If the node accepts too little for both, the op message follows with the next turn.
        """
        op_size_bytes = _OP_SIZE_BYTES + len(chosen.ends) * _END_SIZE_BYTES
        is_op_too_much = (
            len(chosen.messages) >= self._messages_max or chosen.size_bytes + op_size_bytes > self._size_bytes_max
        )
        if chosen.messages and is_op_too_much:
            return chosen.messages
        now_ms, renewed = self._clock_ms(), self._replica.state.transactions.renewed
        again = [replaced_message(chosen.replaced, now_ms)] if chosen.replaced else []
        if not chosen.ends:
            return [*chosen.messages, *again]
        places = [place.queue_offset for half in chosen.ends if (place := renewed(half)) is not None]
        return [*chosen.messages, *again, op_message(sorted(chosen.ends.items()), now_ms, places)]

    def _drop(self, requests: Sequence[_Waiting], error: RequestFailed | StoreError) -> None:
        dropped = frozenset(requests)
        self._line = [each for each in self._line if each not in dropped]
        for waiting in requests:
            _fail(waiting, error)


def read_halves(replica: Replica, rows: Mapping[int, OpenTransaction]) -> list[HalfMessage | None]:
    """Return the half messages of open transactions, by their offsets; None: it cannot be read, or is deleted."""
    renewed = replica.state.transactions.renewed
    places = [renewed(half) or row for half, row in rows.items()]
    records = read_records(replica.store.log, [(place.physical_offset, place.size) for place in places])
    halves = map(half_message, records, rows)
    return [
        half if half is not None and _is_of(half, row) else None
        for half, row in zip(halves, rows.values(), strict=True)
    ]


def read_half(replica: Replica, half: int, row: OpenTransaction) -> HalfMessage | None:
    """Return the half message of one open transaction; see `read_halves`."""
    return read_halves(replica, {half: row})[0]


def _is_of(half: HalfMessage, row: OpenTransaction) -> bool:
    return (name_hash(half.group), name_hash(half.transaction_id)) == (row.group_hash, row.key_hash)


def _check(request: EndRequest, row: OpenTransaction, half: HalfMessage | None) -> None:
    """Check that a request is about this half message; the broker itself rolls back lost ones.

    Raises:
        RequestFailed: NO_TRANSACTION.
    """
    if not request.is_own and request.physical_offset != row.physical_offset:
        raise _no_transaction(request, "its half message is another one")
    if half is None:
        if request.is_own and request.ending is Ending.ROLLED_BACK:
            return
        raise _no_transaction(request, "its half message is not readable")
    found = (half.topic, half.group, half.transaction_id)
    if not request.is_own and (request.topic, request.group, request.transaction_id or half.transaction_id) != found:
        raise _no_transaction(request, "its topic, producer group or id is another one")


def _no_transaction(request: EndRequest, why: str) -> RequestFailed:
    text = f"there is no open transaction of half message {request.half}: {why}"
    return RequestFailed(Reason.NO_TRANSACTION, text)


def _fail(waiting: _Waiting, error: RequestFailed | StoreError) -> None:
    if not waiting.answer.done():
        waiting.answer.set_exception(failure_of(error).copy())
