"""The differences between RocketMQ's answers and ours, and their explanations, which are data: `differences.toml`.

An explanation covers the differences of some calls in one part of their answers. A difference that none covers, and an
explanation, or one of its calls, that covers no difference, are faults: so the list is what is different, no more and
no less.
"""

import json
import tomllib
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple

FOLDER = Path(__file__).parent
DIFFERENCES = FOLDER / "differences.toml"
# What RocketMQ 5.3.3 answered: for each call, in order, the text of each part (`reduced`).
RECORDED = FOLDER / "recorded.json"
ABSENT = "absent"
ANY = "*"


class Difference(NamedTuple):
    """One part of the answers to one call."""

    call: str
    part: str
    rocketmq: str
    ours: str


class Explanation(NamedTuple):
    """Why some answers differ.

    Attributes:
        calls: names of calls, or patterns of them; each must have such a difference.
        part: of the answers, or a pattern.
        rocketmq, ours: what the part is; `*`: anything.
        why: for people.
        see: a row of docs/divergence.md, or empty.
    """

    calls: tuple[str, ...]
    part: str
    rocketmq: str
    ours: str
    why: str
    see: str

    def covers(self, difference):
        """Return the patterns of calls by which a difference is explained."""
        for expected, found in ((self.rocketmq, difference.rocketmq), (self.ours, difference.ours)):
            if expected not in (ANY, found):
                return []
        if not fnmatchcase(difference.part, self.part):
            return []
        return [call for call in self.calls if fnmatchcase(difference.call, call)]


def explanations(text=None):
    """Return all explanations, of the file or of a text."""
    table = tomllib.loads(DIFFERENCES.read_text() if text is None else text)
    return [
        Explanation(
            tuple(each["calls"]), each["part"], each["rocketmq"], each["ours"], each["why"], each.get("see", "")
        )
        for each in table["difference"]
    ]


def recorded():
    """Return RocketMQ's recorded answers, reduced, by the names of calls."""
    return json.loads(RECORDED.read_text())


def differences(rocketmq, ours):
    """Return the differences of the reduced answers to the same calls; of two codes, nothing but these."""
    assert list(rocketmq) == list(ours), "the calls are not the same: record RocketMQ's answers again"
    return [found for call in rocketmq for found in _of_call(call, rocketmq[call], ours[call])]


def _of_call(call, theirs, mine):
    parts = ["code"] if theirs["code"] != mine["code"] else sorted(theirs.keys() | mine.keys())
    found = [Difference(call, part, theirs.get(part, ABSENT), mine.get(part, ABSENT)) for part in parts]
    return [each for each in found if each.rocketmq != each.ours]


def faults(found, explained):
    """Return a line for each difference without an explanation, and for each explanation without a difference."""
    used, lines = set(), []
    for difference in found:
        covered = [(each, call) for each in explained for call in each.covers(difference)]
        used.update(covered)
        if not covered:
            lines.append(f"not explained: {difference.call}: {difference.part}: RocketMQ has {difference.rocketmq!r}, "
                         f"ours has {difference.ours!r}")  # fmt: skip
    for each in explained:
        lines += [
            f"explains nothing: {call}: {each.part} ({each.rocketmq!r}, ours {each.ours!r})"
            for call in each.calls
            if (each, call) not in used
        ]
    return lines
