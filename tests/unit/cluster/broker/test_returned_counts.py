"""The counters of returned messages: dead letters by group, with a bounded number of series."""

from prometheus_client import CollectorRegistry

from cluster.broker.metrics import BrokerMetrics


def test_dead_letters_have_at_most_a_hundred_groups_and_the_rest_together():
    registry = CollectorRegistry()
    metrics = BrokerMetrics(registry, "b", "n0")
    for number in range(150):
        for _ in range(2):
            metrics.count_returned(f"g{number}", is_dead=True)
    metrics.count_returned("g149", is_dead=False)
    metrics.count_returned("g3", is_dead=True)

    def value(name, **labels):
        return registry.get_sample_value(f"dledger_broker_{name}_total", {"broker": "b", "self_id": "n0", **labels})

    assert len(metrics.counts.dead_letters) == 101
    found = [value("dead_letters", group=group) for group in ("g3", "g99", "g149", "(other)")]
    assert found == [3, 2, None, 100]
    found = [value("returned_messages", destination=each) for each in ("retry", "dead_letter")]
    assert found == [1, 301]
