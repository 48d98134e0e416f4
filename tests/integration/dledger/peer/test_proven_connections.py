"""Connections that were greeted before the group's id was known prove it later, or are closed."""

import dledger.peer.transport
from tests.integration.dledger.peer.test_hostile_peers import UnknownProcess


def connections_of(cluster):
    return [
        connection
        for node in cluster.nodes.values()
        for link in node._transport._links.values()
        for connection in link.connections()
    ]


def are_proven(cluster):
    """Return whether three nodes have all their connections, and each is verified by its dialler."""
    connections = connections_of(cluster)
    return len(connections) == 24 and all(each.is_proven for each in connections if not each.is_dialled)


def test_connections_of_a_new_group_prove_its_id_soon_after_the_commit(cluster, run):
    async def main() -> None:
        await cluster.start()
        await cluster.append(b"a")
        await cluster.in_contact()
        term = (await cluster.leader()).term

        await cluster.eventually(lambda: are_proven(cluster))
        assert (await cluster.leader()).term == term
        await cluster.stop()

    run(main())


def test_false_member_replaces_no_connection_of_a_proven_one(cluster, run):
    async def main() -> None:
        await cluster.start()
        await cluster.append(b"a")
        await cluster.in_contact()
        await cluster.eventually(lambda: are_proven(cluster))
        target = cluster.nodes["n0"]
        held = target._transport._links["n2"].connections()

        for is_bulk in (False, True):
            impostor = await UnknownProcess.dial(target.config)
            await impostor.greet(cluster.configs["n2"], "n0", is_bulk=is_bulk)
            assert await impostor.ended() == b""

        assert target._transport._links["n2"].connections() == held
        await cluster.stop()

    run(main())


def test_false_member_that_came_before_the_id_was_known_is_cut_off(cluster, run, monkeypatch):
    monkeypatch.setattr(dledger.peer.transport, "_PROOF_S", 0.05)

    async def main() -> None:
        await cluster.start("n0")
        target = cluster.nodes["n0"]
        impostor = await UnknownProcess.dial(target.config)
        await impostor.greet(cluster.configs["n2"], "n0", is_bulk=False)
        await cluster.eventually(lambda: connections_of(cluster))

        target._files.peer_directories.group_id = 5
        target._transport.set_members({peer.id: peer.address for peer in target.config.peers})

        assert await impostor.ended() == b""
        assert connections_of(cluster) == []
        await cluster.stop()

    run(main())


def test_member_that_named_another_group_before_the_id_was_known_is_cut_off_at_once(cluster, run):
    """It runs on a directory of that group; no node waits for it to prove ours."""

    async def main() -> None:
        await cluster.start("n0")
        target = cluster.nodes["n0"]
        foreign, late = [await UnknownProcess.dial(target.config) for _ in range(2)]
        await foreign.greet(cluster.configs["n2"], "n0", is_bulk=False, group_id=7)
        await late.greet(cluster.configs["n1"], "n0", is_bulk=False)
        await cluster.eventually(lambda: len(connections_of(cluster)) == 2)

        target._files.peer_directories.group_id = 5
        target._transport.set_members({peer.id: peer.address for peer in target.config.peers})

        assert await foreign.ended() == b""
        assert [each.peer_id for each in connections_of(cluster)] == ["n1"], "it may prove the id yet"
        late.close()
        await cluster.stop()

    run(main())
