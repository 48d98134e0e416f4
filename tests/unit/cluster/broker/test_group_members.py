"""The members of a group: two processes with one client id are never members together."""

import pytest

from cluster.broker.group_members import SILENCE_MS_MAX, GroupMembers, JoinedMember
from cluster.protocol.errors import Reason, RequestFailed


def member(client_id="a", instance=1, last_message_ms=0, notified=None):
    return JoinedMember(
        client_id,
        instance,
        {},
        last_message_ms,
        (lambda: None) if notified is None else lambda: notified.append(client_id),
    )


def test_all_members_are_notified_of_each_change():
    members, notified = GroupMembers(), []
    first, second = member("a", notified=notified), member("b", notified=notified)
    members.join("g", first)
    members.join("g", second)
    members.leave("g", first)
    assert notified == ["a", "a", "b", "b"]
    assert (members.client_ids("g"), members.version("g"), len(members)) == (["b"], 3, 1)


def test_a_silent_member_is_replaced_by_a_new_one_of_its_id_and_its_end_changes_nothing():
    members = GroupMembers()
    old, new = member(instance=1), member(instance=2, last_message_ms=SILENCE_MS_MAX)
    members.join("g", old)
    members.join("g", new)
    members.leave("g", old)
    assert members.members("g")["a"] is new


def test_an_active_member_keeps_its_id():
    members = GroupMembers()
    members.join("g", member(instance=1))
    with pytest.raises(RequestFailed, match="another consumer") as raised:
        members.join("g", member(instance=2, last_message_ms=SILENCE_MS_MAX - 1))
    assert raised.value.reason is Reason.CLIENT_ID_IN_USE
    members.join("other", member(instance=2))
    members.join("g", member(instance=1, last_message_ms=5))
    assert len(members) == 2


@pytest.mark.parametrize("client_id", ["", "a b", "x" * 256, "ä"])
def test_a_client_id_is_a_name(client_id):
    with pytest.raises(RequestFailed, match="client_id"):
        GroupMembers().join("g", member(client_id))


def test_members_are_bounded(monkeypatch):
    monkeypatch.setattr("cluster.broker.group_members.MEMBERS_MAX", 1)
    members = GroupMembers()
    members.join("g", member("a"))
    with pytest.raises(RequestFailed, match="1 consumers, which is the limit"):
        members.join("g", member("b"))


def test_groups_without_members_use_no_memory():
    members = GroupMembers()
    for number in range(1_000):
        one = member(f"c{number}")
        members.join(f"g{number}", one)
        members.leave(f"g{number}", one)
        with pytest.raises(RequestFailed):
            members.join(f"h{number}", member("no name"))

    assert (len(members), members._groups, members._versions) == (0, {}, {})


def test_group_that_was_empty_meanwhile_has_a_new_version():
    members = GroupMembers()
    one = member("a")
    members.join("g", one)
    seen = members.version("g")
    members.leave("g", one)

    members.join("g", one)

    assert members.version("g") > seen
