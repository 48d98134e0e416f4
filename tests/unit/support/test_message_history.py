"""The judgement of histories can fail: each guarantee that is broken on purpose is found, by its name."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.message_history import (
    Broken,
    ClientOutcome,
    History,
    Place,
    Seen,
    Sent,
    check_history,
    everything_is_delivered,
)
from tests.support.stored_files import Stored, StoredFiles

RECORD_SIZE = 100


class RecordedRun:
    """Six messages in two queues, three replicas, and a history that fits them; tests spoil one thing."""

    def __init__(self):
        keys = ("a", "b", "c", "d", "e", "f")
        self.log = [
            Stored(
                "T", at % 2, at // 2, at * RECORD_SIZE, RECORD_SIZE, 1_000 + at, key, f"ID{at}", f"{key}: body".encode()
            )
            for at, key in enumerate(keys)
        ]
        self.replicas = [StoredFiles(None, list(self.log), {}, []) for _ in range(3)]
        for number, replica in enumerate(self.replicas):
            replica.root = type("Root", (), {"name": f"n{number}"})
        self.history = History(orderly={"w"})
        for at in range(4):
            self.history.sent.append(Sent("w", "T", (keys[at],), ClientOutcome.APPENDED, (self.place(at),)))
        self.history.sent.append(Sent("w", "T", ("e", "x"), ClientOutcome.UNKNOWN))
        self.history.sent.append(Sent("w", "T", ("f",), ClientOutcome.UNKNOWN))
        self.history.sent.append(Sent("w", "T", ("y",), ClientOutcome.NOT_APPENDED))
        self.history.read += [self.seen("r", at) for at in (0, 2, 4, 1)]
        self.history.delivered += [self.seen("c", at) for at in (0, 1, 2, 2, 3, 4, 5)]
        self.history.retried.append(((self.place(0),), (self.place(0),)))

    def place(self, at):
        return Place(*self.log[at].place)

    def seen(self, reader, at):
        message = self.log[at]
        return Seen(reader, "T", message.queue_id, message.queue_offset, message.unique_key)

    def change(self, at, *replicas, **fields):
        """Change a message on some replicas; on all without names."""
        for number in replicas or range(3):
            self.replicas[number].messages[at] = self.log[at]._replace(**fields)

    def everywhere(self, change):
        for replica in self.replicas:
            change(replica.messages)

    def check(self):
        check_history(self.history, self.replicas)
        everything_is_delivered(self.history, self.replicas[0], {"T"})


def sent(case, at, **fields):
    case.history.sent[at] = replace(case.history.sent[at], **fields)


def body_of_another(case):
    case.change(5, body=b"e: body")


def batch_torn_apart(case):
    sent(case, 0, keys=("a", "b"), places=(case.place(0), case.place(1)))
    del case.history.sent[1]


def order_turned_round(case):
    case.history.sent[0], case.history.sent[1] = case.history.sent[1], case.history.sent[0]


SPOILED = {
    "replicas are equal": [
        lambda case: case.change(3, 1, body=b"d: other"),
        lambda case: case.replicas[2].messages.pop(),
    ],
    "queue offsets have no gap and are given once": [
        lambda case: case.everywhere(lambda messages: messages.pop(2)),
        lambda case: case.change(4, queue_offset=1),
        lambda case: case.change(4, queue_offset=3),
    ],
    "times ascend": [lambda case: case.change(3, store_timestamp=999)],
    "no message is stored twice": [lambda case: case.change(5, unique_key="e", body=b"e: body")],
    "every stored message was sent": [lambda case: case.history.sent.pop(5)],
    "a message is what was sent": [body_of_another],
    "acknowledged messages are at their places": [
        lambda case: case.everywhere(lambda messages: messages.__delitem__(slice(3, 6))),
        lambda case: sent(case, 1, places=(Place(1, 0, 101, "ID1"),)),
        lambda case: sent(case, 1, places=(Place(1, 1, 100, "ID1"),)),
        lambda case: sent(case, 1, places=(Place(0, 0, 100, "ID1"),)),
        lambda case: sent(case, 1, places=(Place(1, 0, 100, "ID2"),)),
        lambda case: sent(case, 1, topic="U"),
    ],
    "refused messages are nowhere": [lambda case: sent(case, 5, outcome=ClientOutcome.NOT_APPENDED)],
    "a batch has no holes": [lambda case: sent(case, 4, keys=("x", "e"))],
    "messages of a batch are consecutive": [batch_torn_apart],
    "a sender's order stays": [order_turned_round],
    "retries get the first answer": [lambda case: case.history.retried.append(((case.place(0),), (case.place(2),)))],
    "messages that were read are stored": [
        lambda case: case.history.read.append(Seen("r", "T", 1, 1, "b")),
        lambda case: case.history.delivered.append(Seen("c", "T", 0, 3, "g")),
    ],
    "readers skip nothing": [
        lambda case: case.history.read.append(case.seen("r", 5)),
        lambda case: case.history.read.append(case.seen("r", 0)),
    ],
    "acknowledged messages are found by reads": [lambda case: case.history.missing.append(("a", "nothing"))],
    "every message is delivered": [lambda case: case.history.delivered.pop()],
}


def test_correct_history_passes():
    RecordedRun().check()


@pytest.mark.parametrize(
    ("guarantee", "spoil"), [(guarantee, spoil) for guarantee, spoils in SPOILED.items() for spoil in spoils]
)
def test_broken_guarantee_is_found(guarantee, spoil):
    case = RecordedRun()
    spoil(case)

    with pytest.raises(Broken) as broken:
        case.check()

    assert broken.value.guarantee == guarantee


def test_every_guarantee_has_a_history_that_breaks_it():
    text = (Path(__file__).parents[2] / "support" / "message_history.py").read_text("utf-8")
    guarantees = {part.split('"')[1] for part in text.split("raise Broken(")[1:] if part.startswith('"')}

    assert guarantees == set(SPOILED)
