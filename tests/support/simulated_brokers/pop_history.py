"""What pop consumers saw, and its check: leases, attempts and acknowledgements of each message of a group.

Time is that of the log: the serial of a handle is the time of its take, or a few milliseconds later if there were
several takes in one. A call whose answer was lost may have taken messages, or changed times; the checks allow for that.
"""

from collections import Counter, defaultdict
from typing import NamedTuple

from cluster.pop.handles import decode_handle
from cluster.v1 import broker_pb2 as pb
from dledger.testing.faults import Violation

# Takes of a queue in one millisecond of log time have serials that are ahead of it.
_AHEAD_MS = 100


class PopMessage(NamedTuple):
    """A message as a group consumes it.

    Attributes:
        group: name of the group.
        number: of the message.
        epoch: the number of resets of the group's offset in its queue.
    """

    group: str
    number: int
    epoch: int


class _Lease(NamedTuple):
    """One that a consumer has, by a take or by a change of its time.

    Attributes:
        serial: of the lease.
        until_ms: its end in log time, or earlier.
        attempt: of a delivery; 0: the time was changed.
        begun: when its call began.
    """

    serial: int
    until_ms: int
    attempt: int
    begun: int


class PopHistory:
    """The calls of all consumers.

    Attributes:
        delivered_count: messages, deliveries that were repeated included.
        acknowledged_count: messages whose acknowledgement was answered.
    """

    def __init__(self):
        self.delivered_count = self.acknowledged_count = 0
        self._now = 0
        # Receive calls whose outcome is not known, by group: calls of dead processes stay here.
        self._receiving = defaultdict(set)
        self._leases = defaultdict(list)
        # Shortest times that were asked for a lease, by message and serial.
        self._shortened = {}
        # Messages with such a change, with one that does not count; acknowledgements that were sent, of each message.
        self._changing, self._uncounted = set(), set()
        self._acknowledging = Counter()
        # By message: serials that were acknowledged, and when it was certain that it is done.
        self._acknowledged = defaultdict(list)
        self._done = {}
        self._stale = []

    def _next(self):
        self._now += 1
        return self._now

    def begin_receive(self, group):
        """Note that a call begins; return it."""
        call = group, self._next()
        self._receiving[group].add(call)
        return call

    def nothing_received(self, call):
        """Note that a call took nothing."""
        self._receiving[call[0]].discard(call)

    def received(self, call, invisible_ms, messages, handles, attempts):
        """Note the answer of a call."""
        group, begun = call
        self._receiving[group].discard(call)
        for message, handle, attempt in zip(messages, handles, attempts, strict=True):
            serial = decode_handle(handle).serial
            self._leases[message].append(_Lease(serial, serial + invisible_ms, attempt, begun))
            self.delivered_count += 1

    def begin_change(self, message, handle, invisible_ms, *, is_uncounted):
        """Note that a change of the time is sent, which may take effect whatever is answered."""
        key = message, decode_handle(handle).serial
        self._shortened[key] = min(self._shortened.get(key, invisible_ms), invisible_ms)
        self._changing.add(message)
        if is_uncounted:
            self._uncounted.add(message)

    def changed(self, message, handle, invisible_ms, response):
        """Note the answer to a change."""
        if response.outcome == pb.ACK_OUTCOME_ACKNOWLEDGED:
            serial = decode_handle(response.handle).serial
            self._leases[message].append(_Lease(serial, serial + invisible_ms, 0, self._next()))
        else:
            self._not_held(message, handle, response.outcome, others=self._acknowledging[message])

    def begin_acknowledge(self, message):
        """Note that an acknowledgement is sent."""
        self._acknowledging[message] += 1

    def acknowledged(self, message, handle, outcome):
        """Note the answer to an acknowledgement."""
        if outcome == pb.ACK_OUTCOME_ACKNOWLEDGED:
            self.acknowledged_count += 1
            self._acknowledged[message].append(decode_handle(handle).serial)
            self._done.setdefault(message, self._next())
        else:
            self._not_held(message, handle, outcome, others=self._acknowledging[message] - 1)

    def _not_held(self, message, handle, outcome, others):
        if outcome == pb.ACK_OUTCOME_ALREADY_DONE:
            if not others:
                raise Violation("nothing is forgotten", f"{message} is done, and no consumer said so")
            self._done.setdefault(message, self._next())
        else:
            self._stale.append((message, decode_handle(handle).serial))

    def summary(self):
        """Return counts, and what is done, for the comparison of two runs."""
        return self._now, self.delivered_count, self.acknowledged_count, sorted(self._done)

    # ------------------------------------------------------------------------------------------------------ the check

    def check(self, group, wanted, *, is_reset):
        """Check what the consumers of a group saw.

        Args:
            group: its name.
            wanted: the stored messages that its filter accepts, since the last reset of their queue.
            is_reset: whether its offsets were reset.

        Raises:
            Violation: see the module.
        """
        for message in wanted:
            if not self._acknowledging[message]:
                raise Violation("nothing is forgotten", f"{message} is done, and no consumer said so")
        numbers = {each.number for each in wanted}
        for message in [each for each in self._leases if each.group == group]:
            if message.number not in numbers:
                raise Violation("filters", f"{message} was delivered")
            self._check_leases(message, sorted(self._leases[message]))
            self._check_done(message)
        for message, serial in [] if is_reset else [each for each in self._stale if each[0].group == group]:
            is_explained = self._receiving[group] or message in self._changing
            if not is_explained and all(each.serial <= serial for each in self._leases[message]):
                raise Violation("handles stay valid", f"{message}: {serial} is stale: {self._leases[message]}")

    def _check_leases(self, message, leases):
        before, attempt, count = None, 0, 0
        for lease in leases:
            if before is not None and lease.serial == before.serial:
                raise Violation("one consumer at a time", f"{message}: two leases with one serial: {leases}")
            if lease.attempt:
                count += 1
                if before is not None and lease.serial + _AHEAD_MS < self._end_of(message, before):
                    raise Violation("one consumer at a time", f"{message}: {lease} begins in {before}")
                if lease.attempt < attempt or (lease.attempt == attempt and message not in self._uncounted):
                    raise Violation("attempts are exact", f"{message}: {leases}")
                attempt = lease.attempt
                if attempt > count + len(self._receiving[message.group]):
                    raise Violation("redelivery is bounded", f"{message}: attempt {attempt} of {count} deliveries")
            before = lease

    def _end_of(self, message, lease):
        shortest_ms = self._shortened.get((message, lease.serial))
        return lease.until_ms if shortest_ms is None else min(lease.until_ms, lease.serial + shortest_ms)

    def _check_done(self, message):
        serials, leases = self._acknowledged[message], self._leases[message]
        if len(serials) > 1:
            raise Violation("what is done stays done", f"{message} was acknowledged with {serials}")
        for serial in serials:
            if any(each.serial > serial for each in leases):
                raise Violation("what is done stays done", f"{message} was acknowledged with {serial}: {leases}")
        if any(each.attempt and each.begun > self._done.get(message, each.begun) for each in leases):
            raise Violation("what is done stays done", f"{message} came after its acknowledgement: {leases}")
