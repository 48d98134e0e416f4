"""The tables of recovery: every combination of facts has exactly one row."""

from itertools import product

import pytest

from commitlog.plain.recovery import START_CASES, LastExit, StartRule
from commitlog.plain.tail import CASES, PlaceFacts, TailKind, classify


@pytest.mark.parametrize("facts", [PlaceFacts(*bits) for bits in product((False, True), repeat=6)])
def test_exactly_one_row_fits_the_bytes_at_the_end_of_a_scan(facts):
    rows = [case for case in CASES if case.fits(facts)]

    assert len(rows) == 1
    assert classify(facts) is rows[0].verdict


@pytest.mark.parametrize("last_exit", [LastExit(clean, at) for clean, at in product((False, True), (0, 1_700_000))])
def test_exactly_one_row_fits_how_the_process_before_ended(last_exit):
    assert len([case for case in START_CASES if case.fits(last_exit)]) == 1


def test_every_row_and_every_rule_is_used():
    bits = [PlaceFacts(*bits) for bits in product((False, True), repeat=6)]

    assert [case for case in CASES if not any(case.fits(facts) for facts in bits)] == []
    assert {case.verdict for case in CASES} == set(TailKind)
    assert {case.rule for case in START_CASES} == set(StartRule)


def test_synced_records_are_never_cut():
    facts = [PlaceFacts(*bits) for bits in product((False, True), repeat=6)]

    assert {classify(each) for each in facts if each.holds_data and each.was_synced} == {TailKind.CORRUPTION}
