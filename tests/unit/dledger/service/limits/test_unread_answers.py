"""Which connection is closed when clients do not read their answers."""

import pytest

from dledger.service.limits.open_connections import OtherEnd
from dledger.service.limits.unread_answers import UnreadAnswers


@pytest.fixture
def closed():
    return []


@pytest.fixture
def answers(closed):
    return UnreadAnswers(closed.append, size_bytes_max=100)


def test_heaviest_connection_of_the_heaviest_address_is_closed(answers, closed):
    answers.begin("ipv4:10.0.0.1:1", 40)
    for port in range(3):
        answers.begin(f"ipv4:10.0.0.2:{port}", 20 + port)
    assert closed == [OtherEnd("10.0.0.2", 2)]
    assert answers.size_bytes == 40 + 20 + 21


def test_addresses_of_one_ipv6_network_count_as_one_client(answers, closed):
    """A machine may use any address of its network, so a reader with one address would always be the heaviest."""
    answers.begin("ipv6:[fd00:0:0:1::5]:1", 40)
    for host in range(3):
        answers.begin(f"ipv6:[fd00:0:0:2::{host}]:7", 20 + host)

    assert closed == [OtherEnd("fd00:0:0:2::2", 7)]


def test_answers_that_were_sent_count_no_longer(answers, closed):
    for _ in range(10):
        answers.begin("ipv4:10.0.0.1:1", 100)
        answers.end("ipv4:10.0.0.1:1", 100)
    assert (closed, answers.size_bytes) == ([], 0)


def test_answers_of_a_closed_connection_are_subtracted_once(answers, closed):
    answers.begin("ipv4:10.0.0.1:1", 60)
    answers.begin("ipv4:10.0.0.1:1", 60)
    answers.begin("ipv4:10.0.0.2:1", 50)
    for _ in range(2):
        answers.end("ipv4:10.0.0.1:1", 60)
    assert (closed, answers.size_bytes) == ([OtherEnd("10.0.0.1", 1)], 50)


def test_answer_above_the_bound_closes_its_own_connection(answers, closed):
    answers.begin("ipv4:10.0.0.1:1", 101)
    assert (closed, answers.size_bytes) == ([OtherEnd("10.0.0.1", 1)], 0)
