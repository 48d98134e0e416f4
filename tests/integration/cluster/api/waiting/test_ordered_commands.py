"""`dledger group create --fifo`, `group alter --fifo` and `consume --pop` in order, against a broker process."""

import json

import pytest
from typer.testing import CliRunner

from cluster.cli.app import app


@pytest.fixture
def dledger(broker):
    """Return a function that runs a command against the broker, in this process."""

    def command(*arguments, text=""):
        done = CliRunner().invoke(app, [*arguments, "--broker", broker.address], input=text)
        assert done.exit_code == 0, done.stderr
        return done.stdout

    return command


def test_order_of_a_group_is_set_changed_and_shown_and_its_messages_are_taken_in_order(dledger):
    dledger("topic", "create", "orders", "--queues", "1")
    dledger("group", "create", "billing", "--fifo")
    assert json.loads(dledger("group", "list", "--json"))["is_orderly"] is True
    dledger("group", "alter", "billing", "--no-fifo")
    assert json.loads(dledger("group", "list", "--json"))["is_orderly"] is False
    dledger("group", "alter", "billing", "--fifo", "--retry-max", "3")
    assert json.loads(dledger("group", "list", "--json"))["is_orderly"] is True
    dledger("produce", "orders", text="1\n2\n3\n")
    found = dledger("consume", "orders", "--group", "billing", "--pop", "--json")
    assert [json.loads(each)["body"] for each in found.splitlines()] == ["1", "2", "3"]
