"""A running group, and an unknown process at its peer port: foreign directories, invented members, idle connections."""

from __future__ import annotations

import asyncio
import logging
import shutil
import struct
from contextlib import suppress
from dataclasses import replace

import pytest

from dledger.core.messages import (
    Heartbeat,
    HeartbeatResponse,
    Push,
    PushAccepted,
    ReadIndexRequest,
    ResetLog,
    SnapshotChunk,
    TimeoutNow,
    VoteRequest,
    VoteResponse,
)
from dledger.peer.handshake import Handshake, StaleDirectory
from dledger.peer.origin import RawOrigin
from dledger.peer.unverified_peers import UNVERIFIED_PER_ADDRESS_MAX
from dledger.peer.wire.encoder import encode
from dledger.peer.wire.frames import FRAME_HEAD, Hello, decode_hello, encode_hello
from dledger.storage.hard_state import HardStateFile
from dledger.storage.identity import WrongDirectory
from dledger.types import TERM_JUMP_MAX, TERM_MAX, Member, Membership, MembershipEntry, SnapshotInfo, Span
from store.fs.linux.files import OsFiles
from tests.support.waiting import until

ONE_MEMBER = Membership((Member("n0"),))


class UnknownProcess:
    """One connection to a node's peer port."""

    def __init__(self, reader, writer):
        self._reader, self._writer = reader, writer

    @classmethod
    async def dial(cls, config):
        address = config.self_address
        return cls(*await asyncio.open_connection(address.host, address.port))

    async def greet(self, config, peer_id, *, is_bulk, **change) -> Hello:
        hello = Handshake(config, lambda _: True, RawOrigin()).hello(peer_id, is_bulk=is_bulk)
        self._writer.write(encode_hello(replace(hello, **change)))
        total, control = FRAME_HEAD.unpack(await self._reader.readexactly(FRAME_HEAD.size))
        assert total == control + 4
        return decode_hello(await self._reader.readexactly(control), b"")

    def send(self, message):
        head, payload = encode(message)
        self._writer.write(head + (payload or b""))

    async def ended(self) -> bytes:
        """Wait until the other side closes; return what it sent before."""
        try:
            return await self._reader.read()
        except ConnectionError:
            return b""
        finally:
            self._writer.close()

    def close(self):
        self._writer.close()


def made_up(term: int, group_id: int) -> list:
    """Return all messages that a false leader or candidate may send."""
    reset = ResetLog(term, 500, 1 << 20, 1, MembershipEntry(400, ONE_MEMBER), group_id=group_id)
    return [
        Heartbeat(term, 0, 1, group_id=group_id),
        TimeoutNow(term, group_id=group_id),
        VoteRequest(term, is_pre_vote=False, last_index=1 << 40, last_term=term, is_transfer=True, group_id=group_id),
        ReadIndexRequest(term, 1),
        Push(term, 0, 1, 0, Span(1, 1, term, 48, 7), b"garbage", group_id=group_id),
        SnapshotChunk(term, SnapshotInfo(9, 1, 10, 0), 0, 10, b"0123456789", group_id=group_id),
        reset,
    ]


@pytest.mark.parametrize("name", ["unknown", "n1"])
def test_unknown_process_at_the_port_neither_stops_a_node_nor_changes_it(cluster, run, name):
    """It has the group's name and settings, but not its id."""

    async def main() -> None:
        await cluster.start()
        await cluster.append(b"a", b"b")
        await cluster.in_contact()
        target = await cluster.follower() if name == "unknown" else cluster.nodes["n0"]
        terms = {node_id: node.term for node_id, node in cluster.nodes.items()}
        impostor = replace(cluster.configs["n1"], self_id=name, peers=(*cluster.configs["n1"].peers,))
        if name == "unknown":
            impostor = cluster.invite(name)
            del cluster.configs[name]
        for group_id in (0, 4711):
            for term in (target.term, target.term + 1, TERM_JUMP_MAX, TERM_MAX):
                for message in made_up(term, group_id):
                    # A refused or ended connection is dialled again for each: nothing may depend on its staying open.
                    unknown = await UnknownProcess.dial(target.config)
                    is_bulk = isinstance(message, (Push, SnapshotChunk, ResetLog))
                    # If the true member is connected, the false one may be disconnected before it has read its answer.
                    with suppress(asyncio.IncompleteReadError, ConnectionError):
                        answer = await unknown.greet(impostor, target.config.self_id, is_bulk=is_bulk)
                        assert (answer.group_id, answer.lives) == (0, ())
                        unknown.send(message)
                    unknown.close()
        # A false member takes the place of the true one's connections: they are dialled again, perhaps by a new leader.
        await cluster.in_contact()
        await cluster.append(b"c")
        await cluster.in_contact()

        assert all(node.is_running for node in cluster.nodes.values())
        if name == "unknown":
            assert {node_id: node.term for node_id, node in cluster.nodes.items()} == terms
        else:
            # Only elections raise a term, one at a time: no message of the false member did.
            assert max(node.term for node in cluster.nodes.values()) < min(terms.values()) + 1_000
        await until(lambda: cluster.bodies(target, target.commit_index) == [b"a", b"b", b"c"], "the target has it all")
        await cluster.stop()

    run(main())


@pytest.mark.parametrize(
    "answer",
    [PushAccepted(1, 1 << 40), HeartbeatResponse(1 << 20, 9), VoteResponse(1, is_pre_vote=False, is_granted=True)],
    ids=lambda answer: type(answer).__name__,
)
def test_answers_in_a_members_name_count_only_on_dialled_connections(cluster, run, answer):
    async def main() -> None:
        await cluster.start()
        await cluster.append(b"a")
        await cluster.in_contact()
        await cluster.stop("n2")
        # Once an append of its term is acknowledged, a leader has nothing left to commit.
        await cluster.append(b"b")
        leader = await cluster.leader()
        term, commit_index = leader.term, leader.commit_index
        impostor = await UnknownProcess.dial(leader.config)
        await impostor.greet(cluster.configs["n2"], leader.config.self_id, is_bulk=isinstance(answer, PushAccepted))
        impostor.send(answer)

        await impostor.ended()

        assert (leader.is_leader, leader.term, leader.commit_index) == (True, term, commit_index)
        await cluster.stop()

    run(main())


def test_silent_connections_do_not_block_peers(cluster, run):
    async def main() -> None:
        await cluster.start()
        await cluster.append(b"a")
        await cluster.in_contact()
        await cluster.stop("n2")
        idle = [await UnknownProcess.dial(cluster.configs["n0"]) for _ in range(3 * UNVERIFIED_PER_ADDRESS_MAX)]
        for unknown in idle[: 2 * UNVERIFIED_PER_ADDRESS_MAX]:
            await unknown.ended()

        await cluster.start("n2")
        await cluster.in_contact()

        for unknown in idle:
            unknown.close()
        await cluster.stop()

    run(main())


def lines_of(caplog, text):
    return [record.getMessage() for record in caplog.records if text in record.getMessage()]


def test_node_on_a_directory_of_another_group_changes_nothing_and_is_named(cluster, run, tmp_path, caplog):
    """The other group has the same name, the same nodes and a higher term (`s29`)."""
    caplog.set_level(logging.INFO)

    async def main() -> None:
        other = str(tmp_path / "other")
        await cluster.start(store_base_dir=other)
        for _ in range(2):
            await cluster.append(b"foo")
            leader = await cluster.leader()
            await cluster.stop(leader.config.self_id)
            await cluster.leader()
            await cluster.start(leader.config.self_id, store_base_dir=other)
        await cluster.in_contact()
        await cluster.stop()
        hard_state = HardStateFile.open(OsFiles(), f"{other}/dledger-n2")
        saved = hard_state.load()
        hard_state.save(replace(saved, term=saved.term + 100, voted_for=None))
        await cluster.start()
        await cluster.append(b"important")
        await cluster.in_contact()
        await cluster.stop("n2")
        cluster.wipe("n2")
        shutil.move(f"{other}/dledger-n2", f"{tmp_path}/dledger-n2")

        await cluster.start("n2")

        await cluster.eventually(lambda: len(lines_of(caplog, "to another of this name")) >= 2)
        own = {node_id: node for node_id, node in cluster.nodes.items() if node_id != "n2"}
        await cluster.eventually(lambda: any(node.is_leader for node in own.values()))
        leader = next(node for node in own.values() if node.is_leader)
        assert (await leader.append([b"more"])).code == 200
        assert cluster.bodies(leader, leader.commit_index) == [b"important", b"more"]
        assert cluster.nodes["n2"].term > leader.term
        assert not cluster.nodes["n2"].is_leader
        await cluster.stop()

    run(main())


def test_old_copy_of_a_directory_is_refused_and_its_node_stops(cluster, run, tmp_path):
    async def main() -> None:
        await cluster.start()
        await cluster.append(b"a")
        await cluster.in_contact()
        await cluster.stop("n2")
        directory, copy = tmp_path / "dledger-n2", tmp_path / "copy"
        shutil.copytree(directory, copy)
        await cluster.start("n2")
        await cluster.append(b"b")
        await cluster.in_contact()
        await cluster.linked()
        await cluster.stop("n2")
        shutil.rmtree(directory)
        shutil.copytree(copy, directory)

        await cluster.start("n2")

        failed = await cluster.nodes["n2"].failed
        assert isinstance(failed, StaleDirectory)
        assert "old copy" in str(failed)
        await cluster.stop("n2")
        # The remedy in the message.
        shutil.rmtree(directory)
        await cluster.start("n2")
        await cluster.append(b"c")
        await cluster.in_contact()
        await cluster.stop()

    run(main())


def test_directories_without_an_identity_are_adopted_once(cluster, run, tmp_path):
    async def main() -> None:
        await cluster.start()
        await cluster.append(b"a")
        await cluster.stop()
        for node_id in cluster.configs:
            (tmp_path / f"dledger-{node_id}" / "identity").unlink()
        with pytest.raises(WrongDirectory, match="--adopt"):
            await cluster.start("n0")

        await cluster.start(is_adopting=True)
        await cluster.append(b"b")
        leader = await cluster.in_contact()
        assert cluster.bodies(leader, leader.commit_index) == [b"a", b"b"]
        await cluster.stop()
        await cluster.start()
        await cluster.in_contact()
        await cluster.stop()

    run(main())


def test_exchanged_directories_are_refused_with_both_names(cluster, run, tmp_path):
    async def main() -> None:
        await cluster.start()
        await cluster.append(b"a")
        await cluster.stop("n1", "n2")
        shutil.move(tmp_path / "dledger-n1", tmp_path / "aside")
        shutil.move(tmp_path / "dledger-n2", tmp_path / "dledger-n1")

        with pytest.raises(WrongDirectory, match="node 'n1' of group 'test', found that of node 'n2'"):
            await cluster.start("n1")

        await cluster.stop()

    run(main())


def test_frame_that_is_no_greeting_gets_no_answer(cluster, run):
    async def main() -> None:
        await cluster.start("n0")
        unknown = await UnknownProcess.dial(cluster.configs["n0"])
        unknown._writer.write(struct.pack(">II", 8, 4) + b"\xff" * 4)

        assert await unknown.ended() == b""

        await cluster.stop()

    run(main())
