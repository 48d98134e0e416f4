"""Runs of terms give the same answers as a plain list of terms."""

from __future__ import annotations

import random

import pytest

from dledger.core.state.log_tail import LogTail
from dledger.core.state.quorum import majority_value, quorum_of
from dledger.types import NO_TERM, UNKNOWN_TERM, LogState, TermRun


def as_tail(begin: int, terms: list[int]) -> LogTail:
    runs = [TermRun(begin + at, term) for at, term in enumerate(terms) if at == 0 or terms[at - 1] != term]
    return LogTail(
        LogState(begin_index=begin, begin_prev_term=0, last_index=begin + len(terms) - 1, term_runs=tuple(runs))
    )


@pytest.mark.parametrize("seed", range(30))
def test_runs_answer_like_a_list_of_terms(seed):
    draw = random.Random(seed)
    begin = draw.choice([0, 5])
    terms: list[int] = []
    tail = as_tail(begin, terms)
    for _ in range(60):
        if terms and draw.random() < 0.25:
            cut = draw.randrange(len(terms))
            del terms[cut:]
            tail.truncate(begin + cut)
        else:
            term, count = (terms[-1] if terms else 1) + draw.choice([0, 0, 1, 3]), draw.randrange(1, 5)
            terms.extend([term] * count)
            tail.append(begin + len(terms) - 1, term)
        check_against(tail, begin, terms)


def check_against(tail: LogTail, begin: int, terms: list[int]) -> None:
    last = begin + len(terms) - 1
    assert tail.last_index == last
    assert tail.last_term == (terms[-1] if terms else 0)
    for index in range(begin, last + 1):
        term = terms[index - begin]
        assert tail.term_at(index) == term
        assert tail.first_index_of_run(index) == begin + terms.index(term)
        same = [at for at, t in enumerate(terms) if t == term and begin + at <= index]
        assert tail.last_index_of_term(term, index) == begin + same[-1]
        expected = next((begin + at for at, t in enumerate(terms) if begin + at >= index and t != term), -1)
        assert tail.first_conflict(index, last + 5, term) == expected
    assert tail.last_index_of_term(10**9, last) == -1


def test_tail_continues_after_all_of_its_entries_were_deleted():
    tail = as_tail(5, [1, 1, 2])

    tail.drop_head(8, 2)

    assert (tail.begin_index, tail.last_index, tail.last_term) == (8, 7, 2)
    tail.append(9, 3)
    check_against(tail, 8, [3, 3])


def test_only_a_whole_log_with_one_entry_in_each_term_holds_only_no_ops():
    assert as_tail(0, []).holds_only_no_ops
    assert as_tail(0, [1, 2, 4]).holds_only_no_ops
    assert not as_tail(0, [1, 2, 2]).holds_only_no_ops
    assert not as_tail(5, [1, 2, 2]).holds_only_no_ops


def test_majorities():
    assert [quorum_of(n) for n in (1, 2, 3, 4, 5)] == [1, 2, 2, 3, 3]
    assert majority_value([5]) == 5
    assert majority_value([5, 3, 9]) == 5
    assert majority_value([1, 9, 9, 1, 1]) == 1
    assert majority_value([4, 2]) == 2


def test_empty_log_whose_last_term_is_not_known_is_the_least_up_to_date():
    log = LogTail(LogState(begin_index=6, begin_prev_term=UNKNOWN_TERM, last_index=5))

    assert (log.term_at(5), log.last_term) == (UNKNOWN_TERM, NO_TERM)
    assert log.is_up_to_date(0, 0)
    assert not LogTail(LogState(0, NO_TERM, 0, (TermRun(0, 0),))).is_up_to_date(5, log.last_term)
