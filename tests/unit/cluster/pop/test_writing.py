"""Calls that share an entry of pop operations: what one of them does with its results is no matter of the others."""

import asyncio

from cluster.pop.clock import LogClock
from cluster.pop.outage import Outage
from cluster.pop.writing import PopWriter
from cluster.protocol.errors import Reason
from cluster.replica.port import ReplicaStatus
from cluster.state.broker_state import BrokerState
from cluster.state.pop.ops import Done, Taken
from cluster.state.verdicts import Applied, CommandVerdict
from store.errors import Certainty
from tests.support.waiting import in_a_loop

OP = Done("g", "t", 0, 0, 1, (1,))


class Replica:
    """A leader that notes the number of operations of each entry, and raises what the test has set."""

    def __init__(self):
        self.state = BrokerState()
        self.entries = []
        self.failures = []

    def status(self):
        return ReplicaStatus("LEADER", 2, "n0", "", is_serving_puts=True)

    def when_status_changes(self, listener):
        pass

    async def change(self, command):
        self.entries.append(len(command.ops))
        if self.failures:
            raise self.failures.pop()
        return Applied(CommandVerdict.CHANGED, pops=(Taken(),) * len(command.ops))


def writer_of(replica):
    clock = LogClock(lambda: 5_000, lambda: 100.0, lambda: 0)
    return PopWriter(replica, clock, Outage(replica, lambda: 100.0))


def broken(_results):
    raise ZeroDivisionError("a bug")


async def submitted(writer, *callbacks):
    return await asyncio.gather(*(writer.submit([OP], each) for each in callbacks), return_exceptions=True)


@in_a_loop
async def test_a_call_whose_callback_raises_fails_and_the_others_of_the_entry_get_their_results(caplog):
    replica = Replica()
    writer = writer_of(replica)
    seen = []
    before, failed, after = await submitted(writer, seen.append, broken, seen.append)
    assert replica.entries == [3]
    assert [list(each) for each in (before, after)] == [[Taken()], [Taken()]] == [list(each) for each in seen]
    assert (failed.reason, failed.certainty) == (Reason.INTERNAL_ERROR, Certainty.UNKNOWN)
    assert "ZeroDivisionError" in failed.message
    assert [record.exc_info[0] for record in caplog.records] == [ZeroDivisionError]


@in_a_loop
async def test_an_unexpected_error_of_an_entry_fails_its_calls_and_later_ones_are_served(caplog):
    replica = Replica()
    writer = writer_of(replica)
    replica.failures = [ZeroDivisionError("a bug")]
    seen = []
    for failed in await submitted(writer, seen.append, seen.append):
        assert (failed.reason, failed.certainty) == (Reason.INTERNAL_ERROR, Certainty.UNKNOWN)
    assert seen == [None, None]
    assert [record.exc_info[0] for record in caplog.records] == [ZeroDivisionError]
    assert list(await writer.submit([OP], seen.append)) == [Taken()]
