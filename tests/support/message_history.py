"""The responses that clients of a broker received, and their comparison with the files of every replica.

Each message has a unique UNIQ_KEY, which is also the start of its body. Each guarantee is checked by one function,
which raises `Broken` with its name. The checks do not depend on the implementation of a broker.
"""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple


class ClientOutcome(StrEnum):
    """The outcome of a send at the client."""

    APPENDED = "appended"
    NOT_APPENDED = "not appended"
    UNKNOWN = "unknown"


class Place(NamedTuple):
    """The location of a message in a broker's response."""

    queue_id: int
    queue_offset: int
    physical_offset: int
    message_id: str


@dataclass
class Sent:
    """The messages of one send, including retries.

    Attributes:
        sender: waits for each response before the next send, if it is in `History.orderly`.
        topic: of all messages.
        keys: of each message.
        outcome: the outcome.
        places: of each message, if appended.
    """

    sender: str
    topic: str
    keys: tuple[str, ...]
    outcome: ClientOutcome
    places: tuple[Place, ...] = ()


class Seen(NamedTuple):
    """A message that was read or delivered."""

    reader: str
    topic: str
    queue_id: int
    queue_offset: int
    key: str


@dataclass
class History:
    """All responses that clients received.

    Attributes:
        sent: by all senders, in the order of the responses.
        read: by sequential readers, in their order.
        delivered: to consumers of groups.
        missing: acknowledged messages that a later read did not find: (key, response).
        topics: created
        topics: {name: outcome}.
        retried: sends with two responses: the first and the second.
        orderly: senders that wait for each response.
    """

    sent: list[Sent] = field(default_factory=list)
    read: list[Seen] = field(default_factory=list)
    delivered: list[Seen] = field(default_factory=list)
    missing: list[tuple[str, str]] = field(default_factory=list)
    topics: dict[str, ClientOutcome] = field(default_factory=dict)
    retried: list[tuple[tuple[Place, ...], tuple[Place, ...]]] = field(default_factory=list)
    orderly: set[str] = field(default_factory=set)

    @property
    def acknowledged(self):
        """Number of acknowledged messages."""
        return sum(len(sent.keys) for sent in self.sent if sent.outcome is ClientOutcome.APPENDED)

    def summary(self):
        """Return a summary of the history as one line."""
        counts = Counter()
        for sent in self.sent:
            counts[sent.outcome.value] += len(sent.keys)
        counts |= Counter(read=len(self.read), delivered=len(self.delivered), retried=len(self.retried))
        return ", ".join(f"{count} {what}" for what, count in counts.items() if count)


class Broken(AssertionError):
    """A guarantee was violated."""

    def __init__(self, guarantee, what):
        super().__init__(f"{guarantee}: {what}")
        self.guarantee = guarantee


def check_history(history: History, replicas: Sequence):
    """Compare a history with the files of all replicas (`tests.support.stored_files`).

    Raises: Broken: names the first violated guarantee.
    """
    replicas_are_equal(replicas)
    for replica in replicas:
        queues_have_no_gap_and_no_offset_twice(replica)
        times_and_places_ascend(replica)
    by_key = by_key_of(replicas[0])
    messages_are_stored_once(by_key)
    every_stored_message_was_sent(history, by_key)
    acknowledged_messages_are_at_their_positions(history, by_key)
    refused_messages_are_not_stored(history, by_key)
    unknown_sends_are_stored_as_prefixes(history, by_key)
    batches_are_consecutive(history)
    order_of_sequential_senders_is_kept(history)
    retries_get_the_first_answer(history)
    messages_that_were_read_are_stored(history, replicas[0])
    readers_skip_nothing(history)
    acknowledged_messages_are_found_by_reads(history)


def by_key_of(replica):
    """Return the messages of a log by their UNIQ_KEY: {key: [messages]}."""
    found = defaultdict(list)
    for message in replica.messages:
        found[message.unique_key].append(message)
    return dict(found)


# ------------------------------------------------------------------------------------------------------- the guarantees


def replicas_are_equal(replicas):
    """All logs have the same messages at the same positions; one may have further messages that no client saw."""
    first, *others = replicas
    for other in others:
        for here, there in zip(first.messages, other.messages, strict=False):
            if here != there:
                raise Broken("replicas are equal", f"{first} has {here}, {other} has {there}")
        if len(first.messages) != len(other.messages):
            raise Broken("replicas are equal", f"{first} and {other}")


def queues_have_no_gap_and_no_offset_twice(replica):
    """Offsets of each queue are 0, 1, 2 … in log order."""
    for queue, messages in replica.queues().items():
        for expected, message in enumerate(messages):
            if message.queue_offset != expected:
                what = f"{replica}: {queue}: expected offset {expected}, found {message}"
                raise Broken("queue offsets have no gap and are given once", what)


def times_and_places_ascend(replica):
    """Store timestamps never decrease along the log."""
    last = 0
    for message in replica.messages:
        if message.store_timestamp < last:
            raise Broken("times ascend", f"{replica}: {message} after one of {last}")
        last = message.store_timestamp


def messages_are_stored_once(by_key):
    """No message is stored twice, even after retries."""
    for key, found in by_key.items():
        if len(found) > 1:
            raise Broken("no message is stored twice", f"{key}: {found}")


def every_stored_message_was_sent(history, by_key):
    """Every stored message was sent by a client, with the same body."""
    sent = {key for each in history.sent for key in each.keys}
    for key, (message, *_) in by_key.items():
        if key not in sent:
            raise Broken("every stored message was sent", str(message))
        if not message.body.startswith(f"{key}:".encode()):
            raise Broken("a message is what was sent", str(message))


def acknowledged_messages_are_at_their_positions(history, by_key):
    """An acknowledged message is stored exactly once, at the queue, offsets and message id in the response."""
    for sent in history.sent:
        if sent.outcome is not ClientOutcome.APPENDED:
            continue
        for key, place in zip(sent.keys, sent.places, strict=True):
            found = by_key.get(key, [])
            if [(message.topic, *message.place) for message in found] != [(sent.topic, *place)]:
                what = f"{key} of {sent.sender}: answered {sent.topic} {place}, found {found}"
                raise Broken("acknowledged messages are at their places", what)


def refused_messages_are_not_stored(history, by_key):
    """Messages with the outcome "not appended" are in no log."""
    for sent in history.sent:
        if sent.outcome is ClientOutcome.NOT_APPENDED:
            found = [by_key[key] for key in sent.keys if key in by_key]
            if found:
                raise Broken("refused messages are nowhere", f"{sent}: {found}")


def unknown_sends_are_stored_as_prefixes(history, by_key):
    """The stored part of a batch with an unknown outcome is a prefix of it."""
    for sent in history.sent:
        presence = [key in by_key for key in sent.keys]
        if sent.outcome is ClientOutcome.UNKNOWN and sorted(presence, reverse=True) != presence:
            raise Broken("a batch has no holes", f"{sent}: {presence}")


def batches_are_consecutive(history):
    """The messages of one acknowledged batch have consecutive offsets of one queue."""
    for sent in history.sent:
        if sent.places:
            first = sent.places[0]
            expected = [(first.queue_id, first.queue_offset + number) for number in range(len(sent.places))]
            if [(place.queue_id, place.queue_offset) for place in sent.places] != expected:
                raise Broken("messages of a batch are consecutive", str(sent))


def order_of_sequential_senders_is_kept(history):
    """The messages of a sender that waits for each answer are in its order, in the log and in each queue."""
    last: dict[str, int] = {}
    for sent in history.sent:
        if sent.sender not in history.orderly:
            continue
        for place in sent.places:
            if place.physical_offset <= last.get(sent.sender, -1):
                raise Broken("a sender's order stays", str(sent))
            last[sent.sender] = place.physical_offset


def retries_get_the_first_answer(history):
    """A message that is sent again within the dedupe window gets the first location again."""
    for first, again in history.retried:
        if first != again:
            raise Broken("retries get the first answer", f"first {first}, then {again}")


def messages_that_were_read_are_stored(history, replica):
    """Every message that a client read or received is at its offset at the end."""
    there = {(*message.queue, message.queue_offset): message.unique_key for message in replica.messages}
    for seen in (*history.read, *history.delivered):
        found = there.get((seen.topic, seen.queue_id, seen.queue_offset))
        if found != seen.key:
            raise Broken("messages that were read are stored", f"{seen}, in the end {found}")


def readers_skip_nothing(history):
    """A sequential reader of a queue sees each offset once, from 0 on."""
    next_offsets: Counter = Counter()
    for seen in history.read:
        queue = seen.reader, seen.topic, seen.queue_id
        if seen.queue_offset != next_offsets[queue]:
            raise Broken("readers skip nothing", f"{seen}, expected {next_offsets[queue]}")
        next_offsets[queue] += 1


def acknowledged_messages_are_found_by_reads(history):
    """A linearizable read finds every message that was acknowledged before it began."""
    for key, answered in history.missing:
        raise Broken("acknowledged messages are found by reads", f"{key}: {answered}")


def everything_is_delivered(history, replica, topics):
    """Every message of some topics was delivered to the group at least once; called at the end of the log."""
    delivered = {(seen.topic, seen.queue_id, seen.queue_offset) for seen in history.delivered}
    for message in replica.messages:
        if message.topic in topics and (*message.queue, message.queue_offset) not in delivered:
            raise Broken("every message is delivered", str(message))
