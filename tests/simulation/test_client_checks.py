"""The checks of clients detect violations of linearizable reads."""

import pytest

from dledger.testing.checks.clients import ClientChecks
from dledger.testing.faults import Violation


def test_read_sees_what_an_earlier_read_saw_even_if_it_was_not_acknowledged():
    checks = ClientChecks([])
    checks.begin_read(1)
    checks.end_read(1, 7)
    checks.begin_read(2)

    with pytest.raises(Violation, match="a read sees up to 6; 7 was acknowledged or read before it began"):
        checks.end_read(2, 6)


def test_reads_that_overlap_may_see_less_than_one_another():
    checks = ClientChecks([])
    checks.begin_read(1)
    checks.begin_read(2)

    checks.end_read(1, 7)
    checks.end_read(2, 6)

    assert checks.read_count == 2


def test_read_that_is_refused_leaves_no_waiter():
    checks = ClientChecks([])
    checks.begin_read(1)
    checks.refuse_read(1)
    checks.begin_read(2)

    checks.end_read(2, -1)

    assert checks.read_count == 1
