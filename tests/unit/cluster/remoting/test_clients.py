"""The table of registered clients."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.remoting import clients
from cluster.remoting.clients import ClientHeartbeat, ClientTable, ConsumerData, Subscription
from cluster.remoting.command import Language, Rejected


class Connection:
    address = "127.0.0.1:1"


def consumer(client_id, *subscriptions, group="g", **fields):
    data = ConsumerData(group, subscriptions={each.topic: each for each in subscriptions})
    return ClientHeartbeat(client_id, consumers=(data,), **fields)


def beat(table, heartbeat, connection=None, now_ms=0):
    return table.beat(heartbeat, connection or Connection(), Language.JAVA, 479, now_ms)


def test_only_a_new_member_or_other_topics_change_a_group():
    table = ClientTable()
    first = consumer("a", Subscription("t", "x", version=1))
    assert beat(table, first).changed_groups == ("g",)
    assert beat(table, first).changed_groups == ()
    assert beat(table, consumer("a", Subscription("t", "y", version=2))).changed_groups == ()
    assert table.consumers_of("g").subscriptions["t"].expression == "y"
    assert beat(table, consumer("a", Subscription("u", version=3))).changed_groups == ("g",)
    assert beat(table, consumer("b", Subscription("u", version=1))).changed_groups == ("g",)
    assert sorted(table.consumers_of("g").members) == ["a", "b"]


def test_members_with_different_subscriptions_do_not_replace_one_another_s():
    table = ClientTable()
    one, two = consumer("a", Subscription("t", version=1)), consumer("b", Subscription("u", version=1))
    beat(table, one), beat(table, two)
    assert not beat(table, one).changed_groups
    assert not beat(table, two).changed_groups
    assert sorted(table.consumers_of("g").subscriptions) == ["t", "u"]


def test_a_closed_connection_removes_its_clients_unless_they_have_a_newer_one():
    table, old, new = ClientTable(), Connection(), Connection()
    beat(table, consumer("a"), old), beat(table, consumer("b"), old), beat(table, ClientHeartbeat("a", ("p",)), old)
    beat(table, consumer("a"), new)
    assert table.closed(old) == ["g"]
    assert list(table.consumers_of("g").members) == ["a"]
    assert table.producers_of("p") == []
    assert table.client("a") is new
    assert table.client("b") is None
    assert table.closed(new) == ["g"]
    assert table.consumers_of("g") is None
    assert len(table) == 0
    assert table.client("a") is None
    assert table.consumer_groups() == []


def test_a_client_without_heartbeats_for_two_minutes_is_removed():
    table = ClientTable()
    beat(table, consumer("a"), now_ms=0), beat(table, consumer("b"), now_ms=1)
    beat(table, ClientHeartbeat("a", ("p",)), now_ms=0)
    assert table.expire(119_999) == []
    assert table.producer_groups() == ["p"]
    assert table.expire(120_000) == ["g"]
    assert table.producer_groups() == []
    assert list(table.consumers_of("g").members) == ["b"]


def test_unregistering_removes_one_group_only():
    table, link = ClientTable(), Connection()
    beat(table, ClientHeartbeat("a", ("p",), (ConsumerData("g"), ConsumerData("h"))), link)
    assert table.unregister("a", link, consumer_group="g") == ["g"]
    assert table.unregister("a", link, consumer_group="g") == [] == table.unregister("x", link, producer_group="p")
    assert table.unregister("a", link, producer_group="p") == []
    assert table.consumer_groups() == ["h"]
    assert len(table) == 1


def test_a_heartbeat_without_subscriptions_keeps_the_known_ones_and_asks_for_them_if_it_means_others():
    table = ClientTable()
    short = consumer("a", fingerprint=7, is_without_subscriptions=True)
    assert beat(table, short).is_full_wanted
    assert beat(table, short).is_full_wanted
    assert not beat(table, consumer("a", Subscription("t"), fingerprint=7)).is_full_wanted
    assert not beat(table, short).is_full_wanted
    assert list(table.consumers_of("g").subscriptions) == ["t"]
    assert beat(table, consumer("a", fingerprint=8, is_without_subscriptions=True)).is_full_wanted
    assert list(table.consumers_of("g").subscriptions) == ["t"]


def test_the_table_is_bounded_and_a_refused_heartbeat_changes_nothing(monkeypatch):
    monkeypatch.setattr(clients, "MEMBERS_MAX", 2)
    monkeypatch.setattr(clients, "SUBSCRIPTIONS_MAX", 2)
    table = ClientTable()
    with pytest.raises(Rejected):
        beat(table, consumer("a", *(Subscription(f"t{each}") for each in range(3))))
    with pytest.raises(Rejected):
        beat(table, ClientHeartbeat("a", ("p", "q", "r")))
    assert len(table) == 0
    assert table.consumer_groups() == table.producer_groups() == []
    beat(table, consumer("a", Subscription("t"), Subscription("u")))
    beat(table, consumer("a", Subscription("t"), Subscription("v")))
    assert len(table) == 1


def test_a_stranger_with_the_id_of_a_client_cannot_unregister_it():
    table = ClientTable()
    beat(table, consumer("a"), Connection())
    assert table.unregister("a", Connection(), consumer_group="g") == []
    assert list(table.consumers_of("g").members) == ["a"]


@pytest.mark.parametrize("bound", ["GROUP_MEMBERS_MAX", "GROUP_SUBSCRIPTIONS_MAX"])
def test_one_group_has_a_bound_of_its_own_and_others_still_get_members(monkeypatch, bound):
    monkeypatch.setattr(clients, bound, 2)
    table = ClientTable()
    beat(table, consumer("a", Subscription("t"))), beat(table, consumer("b", Subscription("t")))
    with pytest.raises(Rejected, match="near its limit"):
        beat(table, consumer("c", Subscription("t")))
    beat(table, consumer("c", Subscription("t"), group="h"))
    assert sorted(table.consumers_of("g").members) == ["a", "b"]


def test_ends_of_connections_look_at_their_own_members_and_not_at_all_subscriptions_of_a_group(monkeypatch):
    merged = []
    merge = clients._merge
    monkeypatch.setattr(clients, "_merge", lambda group: merged.append(group) or merge(group))
    table, links = ClientTable(), [Connection() for _ in range(50)]
    for number, link in enumerate(links):
        beat(table, consumer(f"c{number}", *(Subscription(f"t{each}", version=1) for each in range(20))), link)
    for link in links[1:]:
        assert table.closed(link) == ["g"]
    assert merged == []
    assert sorted(table.consumers_of("g").members) == ["c0"]


SUBSCRIBED = st.dictionaries(st.sampled_from("tuv"), st.integers(0, 3), max_size=3)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("beat"), st.sampled_from("abc"), st.sampled_from("gh"), SUBSCRIBED, st.integers(0, 2)),
        st.tuples(st.just("close"), st.integers(0, 2)),
        st.tuples(st.just("leave"), st.sampled_from("abc"), st.sampled_from("gh"), st.integers(0, 2)),
        st.tuples(st.just("expire"), st.integers(0, 200_000)),
    ),
    max_size=20,
)


@given(steps=STEPS)
def test_the_subscriptions_of_a_group_are_the_newest_of_its_members_after_any_history(steps):
    table, links = ClientTable(), [Connection() for _ in range(3)]
    model, now_ms = {}, 0
    for step in steps:
        if step[0] == "beat":
            _, name, group, topics, link = step
            table.beat(
                consumer(name, *(Subscription(topic, version=at) for topic, at in topics.items()), group=group),
                *(links[link], Language.JAVA, 479, now_ms),
            )
            model[name, group] = (topics, link, now_ms)
        elif step[0] == "close":
            table.closed(links[step[1]])
            model = {key: row for key, row in model.items() if row[1] != step[1]}
        elif step[0] == "leave":
            _, name, group, link = step
            table.unregister(name, links[link], consumer_group=group)
            if model.get((name, group), (None, None))[1] == link:
                del model[name, group]
        else:
            now_ms += step[1]
            table.expire(now_ms)
            model = {key: row for key, row in model.items() if now_ms - row[2] < clients.SILENCE_MS_MAX}
        assert len(table) == len(model)
        assert table._subscriptions == sum(len(topics) for topics, _, _ in model.values())
        for group in "gh":
            members = {name: row[0] for (name, of), row in model.items() if of == group}
            found = table.consumers_of(group)
            assert (found is None) == (not members)
            if found is not None:
                newest = {
                    topic: max(topics[topic] for topics in members.values() if topic in topics)
                    for topic in set().union(*members.values())
                }
                assert {topic: each.version for topic, each in found.subscriptions.items()} == newest
                assert sorted(found.members) == sorted(members)
                assert found.subscribed == sum(map(len, members.values()))
