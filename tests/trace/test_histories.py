"""A history is enough: from the JSON lines of a run alone, Raft's guarantees can be checked (Raft figure 3).

The checker below knows the format in docs/testing.md and nothing of the code that wrote it.
"""

import json
from functools import partial

import pytest

from dledger.driver.trace import TracedRaft
from dledger.testing.__main__ import main
from dledger.testing.options import draw_options
from dledger.testing.runner import run_options
from dledger.testing.world import Parts

SEEDS = (1, 2, 4, 6, 9, 14)


class Broken(Exception):
    """The history shows what Raft excludes."""


class NodeLog:
    """Terms of one node's entries from `begin_index` on."""

    def __init__(self, begin_index, prev_term):
        self.begin_index = begin_index
        self.prev_term = prev_term
        self.terms = []

    @property
    def last_index(self):
        return self.begin_index + len(self.terms) - 1

    def term_at(self, index):
        return self.prev_term if index == self.begin_index - 1 else self.terms[index - self.begin_index]


class History:
    """Feeds on lines; raises `Broken` at the first that cannot be."""

    def __init__(self):
        self.logs = {}
        self.commits = {}
        self.terms = {}
        self.leaders = {}
        self.before = {}  # (index, term) of an entry -> term of the entry before it, on any node
        self.committed = {}  # index -> (term of the entry, term in which it was first known to be committed)
        self.counts = dict.fromkeys(("lines", "commits", "elections", "restarts", "cuts"), 0)

    def read(self, line):
        node, event = line["node"], line["event"]
        self.counts["lines"] += 1
        if event["kind"] == "Started":
            self.start(node, event["log_state"])
        elif event["kind"] == "HeadDeleted":
            self.delete_head(node, event["begin_index"])
        if "error" in line:
            raise Broken(f"error: {line['error']}")
        if event["kind"] != "Started" and line["term"] < self.terms[node]:
            raise Broken(f"term: {node} went back to {line['term']}")
        self.terms[node] = line["term"]
        for number, effect in enumerate(line["effects"]):
            self.apply(node, effect, line, line["effects"][number + 1 :])
        log = self.logs[node]
        if (log.begin_index, log.last_index) != (line["begin_index"], line["last_index"]):
            raise Broken(f"log: {node} says {line['begin_index'], line['last_index']}, its effects {log.last_index}")
        if not line["persisted_index"] <= line["last_index"]:
            raise Broken(f"persisted: {node} holds less than it says is durable")
        self.commit(node, line["commit_index"], line["term"])
        if line["role"] == "LEADER":
            self.lead(node, line["term"])

    def start(self, node, state):
        log = NodeLog(state["begin_index"], state["begin_prev_term"])
        self.counts["restarts"] += node in self.logs
        self.logs[node] = log
        self.commits[node] = state["begin_index"] - 1
        self.terms[node] = -1
        runs = state["term_runs"]
        for number, run in enumerate(runs):
            is_last = number + 1 == len(runs)
            last_index = state["last_index"] if is_last else runs[number + 1]["first_index"] - 1
            self.append(node, run["first_index"], last_index, run["term"])

    def delete_head(self, node, begin_index):
        log = self.logs[node]
        if begin_index > log.begin_index:
            log.prev_term = log.term_at(begin_index - 1)
            del log.terms[: begin_index - log.begin_index]
            log.begin_index = begin_index

    def apply(self, node, effect, line, later):
        kind = effect["kind"]
        if kind == "TruncateFrom":
            self.cut(node, effect["first_index"])
        elif kind == "AppendPushed":
            span = effect["push"]["span"]
            self.append(node, effect["first_index"], span["last_index"], span["term"])
        elif kind == "AppendMembership":
            self.append(node, effect["entry"]["index"], effect["entry"]["index"], effect["term"])
        elif kind == "AppendProposal":
            firsts = [other["entry"]["index"] for other in later if other["kind"] == "AppendMembership"]
            firsts += [other["first_index"] for other in later if other["kind"] == "AppendProposal"]
            self.append(node, effect["first_index"], min([line["last_index"] + 1, *firsts]) - 1, effect["term"])
        elif kind == "ResetStore":
            self.logs[node] = NodeLog(effect["begin_index"], effect["prev_term"])
            self.commits[node] = max(self.commits[node], effect["begin_index"] - 1)

    def append(self, node, first_index, last_index, term):
        """Add entries; the same index and term must have the same past on all nodes (log matching)."""
        log = self.logs[node]
        if first_index != log.last_index + 1 or last_index < first_index:
            raise Broken(f"log: {node} appends [{first_index}, {last_index}] after {log.last_index}")
        for index in range(first_index, last_index + 1):
            previous = log.term_at(index - 1)
            if term < previous:
                raise Broken(f"log: {node} appends term {term} after term {previous}")
            known = self.before.setdefault((index, term), previous)
            if min(known, previous) >= 0 and known != previous:
                raise Broken(f"log matching: {index} of term {term} follows term {known} and, on {node}, {previous}")
            log.terms.append(term)

    def cut(self, node, first_index):
        self.counts["cuts"] += 1
        if first_index <= self.commits[node]:
            raise Broken(f"truncation: {node} cuts {first_index}, which it knows to be committed")
        log = self.logs[node]
        del log.terms[first_index - log.begin_index :]

    def commit(self, node, commit_index, term):
        if commit_index < self.commits[node]:
            raise Broken(f"commit: {node} goes back to {commit_index}")
        log = self.logs[node]
        if commit_index > log.last_index:
            raise Broken(f"commit: {node} commits {commit_index}, holds {log.last_index}")
        for index in range(self.commits[node] + 1, commit_index + 1):
            entry_term, _ = self.committed.setdefault(index, (log.term_at(index), term))
            if entry_term != log.term_at(index):
                raise Broken(
                    f"state machine safety: {index} is committed as term {entry_term} and {log.term_at(index)}"
                )
            self.counts["commits"] += 1
        self.commits[node] = commit_index

    def lead(self, node, term):
        """A term has one leader (election safety), and it holds all that was committed before (completeness)."""
        leader = self.leaders.setdefault(term, node)
        if leader != node:
            raise Broken(f"election safety: {leader} and {node} lead in term {term}")
        if (node, term) in self.leaders:
            return
        self.leaders[node, term] = node
        self.counts["elections"] += 1
        log = self.logs[node]
        for index, (entry_term, known_in) in self.committed.items():
            if known_in < term and index >= log.begin_index:
                found = log.term_at(index) if index <= log.last_index else None
                if found != entry_term:
                    raise Broken(f"leader completeness: {node}, term {term}, holds {found} at {index}: {entry_term}")


def check(lines):
    history = History()
    for line in lines:
        history.read(json.loads(line))
    return history.counts


def traced(seed):
    lines = []
    summary, failure = run_options(draw_options(seed), Parts(make_raft=partial(TracedRaft, lines.append)))
    assert summary is not None, failure
    return lines, summary


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_history_of_a_run_satisfies_the_properties_of_raft(seed):
    lines, _ = traced(seed)

    counts = check(lines)

    print(f"seed {seed}: {counts}")
    assert counts["elections"] > 0
    assert counts["commits"] > 0


def test_printing_the_history_does_not_change_it():
    lines, summary = traced(SEEDS[0])

    assert summary == run_options(draw_options(SEEDS[0]))[0]
    assert lines == traced(SEEDS[0])[0]


def test_command_writes_the_history_of_a_seed(tmp_path, capsys):
    path = tmp_path / "history.jsonl"

    status = main(["--seed", str(SEEDS[0]), "--json-trace", str(path)])

    assert status == 0
    assert f"seed={SEEDS[0]} ok" in capsys.readouterr().out
    assert path.read_text("utf-8").splitlines() == traced(SEEDS[0])[0]


def test_every_line_has_the_same_keys_in_the_same_order():
    lines, _ = traced(SEEDS[0])

    keys = {tuple(json.loads(line)) for line in lines}

    assert keys == {
        (
            "node",
            "now_ms",
            "event",
            "role",
            "term",
            "voted_for",
            "leader_id",
            "begin_index",
            "last_index",
            "persisted_index",
            "commit_index",
            "effects",
        )
    }


def line_of(node, *, term=1, role="FOLLOWER", commit=-1, last=-1, effects=(), kind="Tick", persisted=-1, begin=0):
    event = {"kind": kind}
    if kind == "Started":
        event["log_state"] = {"begin_index": 0, "begin_prev_term": -1, "last_index": -1, "term_runs": []}
    state = {"role": role, "term": term, "begin_index": begin, "last_index": last, "persisted_index": persisted}
    return json.dumps({"node": node, "event": event, **state, "commit_index": commit, "effects": list(effects)})


def proposal(first, term):
    return {"kind": "AppendProposal", "proposal": True, "first_index": first, "term": term}


def pushed(first, last, term):
    return {"kind": "AppendPushed", "first_index": first, "push": {"span": {"last_index": last, "term": term}}}


STARTS = [line_of("a", kind="Started"), line_of("b", kind="Started")]
COMMITTED = line_of("a", term=1, role="LEADER", commit=0, last=0, effects=[proposal(0, 1)])


@pytest.mark.parametrize(
    ("lines", "broken"),
    [
        ([line_of("a", role="LEADER"), line_of("b", role="LEADER")], "election safety"),
        ([line_of("a", term=2), line_of("a", term=1)], "term"),
        ([COMMITTED, line_of("b", term=2, role="LEADER")], "leader completeness"),
        ([COMMITTED, line_of("a", commit=-1, last=0)], "commit"),
        ([COMMITTED, line_of("b", commit=0, last=0, term=2, effects=[pushed(0, 0, 2)])], "state machine safety"),
        ([COMMITTED, line_of("a", commit=0, effects=[{"kind": "TruncateFrom", "first_index": 0}])], "truncation"),
        (
            [
                line_of("a", last=1, term=2, effects=[pushed(0, 0, 1), pushed(1, 1, 2)]),
                line_of("b", last=1, term=2, effects=[pushed(0, 1, 2)]),
            ],
            "log matching",
        ),
        ([line_of("a", last=3)], "log"),
    ],
)
def test_checker_detects_violations(lines, broken):
    with pytest.raises(Broken, match=f"^{broken}:"):
        check([*STARTS, *lines])
