"""`dledger delay levels`: a table of delays in the form of RocketMQ's `messageDelayLevel`."""

import json

from tests.integration.cluster.api.test_commands import dledger  # noqa: F401  (a fixture)


def test_levels_get_the_delays_of_a_table_and_the_default_ones_again(dledger):  # noqa: F811
    dledger("topic", "create", "orders", "--queues", "1")
    dledger("produce", "orders", "--delay", "2h", text="later\n")

    def shown():
        return [
            (row["level"], row["delay"]) for row in map(json.loads, dledger("delay", "list", "--json").splitlines())
        ]

    assert shown() == [(18, "2h")]
    dledger("delay", "levels", " ".join(["90s"] * 17 + ["36h"]))
    assert shown() == [(18, "36h")]
    dledger("delay", "levels", "1s")
    # A message waits in a level that the table has no longer.
    assert shown() == [(18, "-")]
    assert "expected numbers with s, m, h or d" in dledger("delay", "levels", "1s 3", code=2)
    dledger("delay", "levels", "default")
    assert shown() == [(18, "2h")]
