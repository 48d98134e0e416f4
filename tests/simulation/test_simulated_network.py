"""The simulated network loses, duplicates, delays, reorders and repeats messages only if its options say so."""

from dataclasses import replace
from random import Random

import pytest

from dledger.core.messages import Heartbeat
from dledger.testing.faults import Fault, FaultCounts, Violation
from dledger.testing.network import network as simulated
from dledger.testing.network.network import REPLAY_DELAY_MAX_US, NetworkOptions, SimNetwork
from dledger.testing.scheduler import Scheduler

COUNT = 500


class Wire:
    def __init__(self, **options) -> None:
        self.scheduler = Scheduler()
        self.counts = FaultCounts()
        self.arrived: list[int] = []
        self.network = SimNetwork(self.scheduler, Random(1), self.counts, NetworkOptions(**options), self._deliver)

    def _deliver(self, target, sender, message) -> None:
        assert (target, sender) == ("b", "a")
        self.arrived.append(message.round)

    def send_many(self) -> None:
        for number in range(COUNT):
            self.network.send("a", "b", Heartbeat(term=1, commit_index=0, round=number))
            self.scheduler.run_until(self.scheduler.now_us + 50)
        self.scheduler.run_until(self.scheduler.now_us + 10_000_000)


def test_calm_ordered_network_delivers_everything_in_order():
    wire = Wire(is_ordered=True)
    wire.send_many()

    assert wire.arrived == list(range(COUNT))
    assert not any(wire.counts.as_dict().values())


def test_unordered_network_lets_messages_overtake():
    wire = Wire()
    wire.send_many()

    assert sorted(wire.arrived) == list(range(COUNT))
    assert wire.arrived != list(range(COUNT))
    assert wire.counts[Fault.REORDERED] > 0


@pytest.mark.parametrize(
    ("option", "fault"),
    [("drop_rate", Fault.DROPPED), ("duplicate_rate", Fault.DUPLICATED), ("replay_rate", Fault.REPLAYED)],
)
def test_rates_take_effect_and_are_counted(option, fault):
    wire = Wire(**{option: 0.2})
    wire.send_many()

    bitten = wire.counts[fault]
    assert COUNT * 0.1 < bitten < COUNT * 0.3
    change = -bitten if fault is Fault.DROPPED else bitten
    assert len(wire.arrived) == COUNT + change


def test_blocked_link_loses_messages_until_every_block_is_undone():
    wire = Wire(is_ordered=True)
    wire.network.block("a", "b")
    wire.network.block("a", "b")
    wire.network.unblock("a", "b")
    wire.send_many()
    assert wire.arrived == []
    assert wire.counts[Fault.PARTITIONED] == COUNT

    wire.network.unblock("a", "b")
    wire.send_many()

    assert len(wire.arrived) == COUNT


def test_cut_link_loses_messages_in_flight():
    wire = Wire(is_ordered=True)
    wire.network.send("a", "b", Heartbeat(term=1, commit_index=0, round=0))
    wire.network.block("a", "b")
    wire.scheduler.run_until(1_000_000)

    assert wire.arrived == []


def test_one_way_cut_leaves_the_other_way_open():
    wire = Wire()
    wire.network.block("b", "a")
    wire.send_many()

    assert len(wire.arrived) == COUNT


def test_healed_network_is_calm():
    wire = Wire(is_ordered=True, drop_rate=1.0)
    wire.network.block("a", "b")
    wire.network.heal()
    wire.send_many()

    assert wire.arrived == list(range(COUNT))


def test_clogged_link_lets_everything_out_at_once():
    wire = Wire(is_ordered=True)
    wire.network.clog("a", "b")
    wire.network.clog("a", "b")
    wire.send_many()
    wire.network.unclog("a", "b")
    assert wire.arrived == []
    assert wire.counts[Fault.CLOGGED] == COUNT

    wire.network.unclog("a", "b")
    wire.scheduler.run_until(wire.scheduler.now_us)

    assert wire.arrived == list(range(COUNT))


def test_messages_of_an_earlier_process_are_replayed():
    wire = Wire(replay_rate=0.2)
    wire.send_many()
    assert wire.counts[Fault.REPLAYED_AFTER_RESTART] == 0
    wire.network.started("b")
    wire.send_many()

    assert 0 < wire.counts[Fault.REPLAYED_AFTER_RESTART] < wire.counts[Fault.REPLAYED]


def test_message_of_a_founding_is_not_replayed_to_a_disk_that_was_put_in_since():
    def replayed(message):
        wire = Wire(replay_rate=0.2)
        for _ in range(COUNT):
            wire.network.send("a", "b", message)
        wire.network.wiped("b")
        wire.scheduler.run_until(wire.scheduler.now_us + REPLAY_DELAY_MAX_US)
        return len(wire.arrived) - COUNT

    founding = Heartbeat(term=1, commit_index=-1, round=1, is_founding=True)
    assert replayed(founding) == 0
    assert replayed(replace(founding, is_founding=False)) > 0


def test_nodes_that_answer_one_another_without_end_are_a_violation(monkeypatch):
    monkeypatch.setattr(simulated, "STORM_MESSAGES", 1_000)
    scheduler = Scheduler()

    def answer(source, target, message):
        network.send(target, source, message)

    calm = NetworkOptions(min_latency_us=10, max_latency_us=10, is_ordered=True, duplicate_rate=0.5)
    network = SimNetwork(scheduler, Random(1), FaultCounts(), calm, answer)
    network.send("a", "b", Heartbeat(1, 1, 1))

    with pytest.raises(Violation, match=r"1000 messages in 50000 us, now a Heartbeat"):
        scheduler.run_until(1_000_000)
