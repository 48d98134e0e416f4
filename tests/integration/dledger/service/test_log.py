"""The LogService of three real nodes over real gRPC: append, stream, read, follow, status, and invalid input."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc
import pytest

from dledger.entries.format.entry import HEADER_SIZE, MAX_BODY_BYTES
from dledger.errors import ResponseCode
from dledger.service.log import start_server
from dledger.service.pipelined_call import IN_FLIGHT_MAX
from dledger.v1 import log_pb2
from dledger.v1.log_pb2_grpc import LogServiceStub

if TYPE_CHECKING:
    from tests.integration.dledger.conftest import Cluster

Run = Callable[[Coroutine[Any, Any, None]], None]
ALL = {"index": 0}


class Service:
    """The cluster together with a client channel to every node."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.servers: dict[str, grpc.aio.Server] = {}
        self.stubs: dict[str, LogServiceStub] = {}
        self.channels: list[grpc.aio.Channel] = []

    async def start(self, **changes: Any) -> None:
        await self.cluster.start(**changes)
        await self.cluster.linked()
        for node_id, node in self.cluster.nodes.items():
            address = node.config.client_address
            self.servers[node_id] = await start_server(node, address)
            self.channels.append(grpc.aio.insecure_channel(str(address)))
            self.stubs[node_id] = LogServiceStub(self.channels[-1])

    async def stop(self) -> None:
        for channel in self.channels:
            await channel.close()
        for server in self.servers.values():
            await server.stop(None)
        await self.cluster.stop()

    async def leader(self) -> LogServiceStub:
        return self.stubs[(await self.cluster.leader()).config.self_id]

    async def follower(self) -> LogServiceStub:
        return self.stubs[(await self.cluster.follower()).config.self_id]

    async def append(self, *bodies: bytes) -> log_pb2.AppendResponse:
        stub = await self.leader()
        response = await stub.Append(log_pb2.AppendRequest(group="test", bodies=bodies))
        assert response.code == ResponseCode.SUCCESS, response
        return response


@asynccontextmanager
async def served(cluster: Cluster, **changes: Any) -> AsyncIterator[Service]:
    service = Service(cluster)
    await service.start(**changes)
    try:
        yield service
    finally:
        await service.stop()


async def read(stub: LogServiceStub, **fields: Any) -> list[log_pb2.ReadResponse]:
    request = log_pb2.ReadRequest(**{"group": "test", **fields})
    return [response async for response in stub.Read(request)]


def entries_of(responses: list[log_pb2.ReadResponse]) -> list[log_pb2.Entry]:
    assert all(response.code == ResponseCode.SUCCESS for response in responses), responses
    return [entry for response in responses for entry in response.entries]


def bodies_of(responses: list[log_pb2.ReadResponse]) -> list[bytes]:
    return [entry.body for entry in entries_of(responses) if entry.magic == 1]


# ------------------------------------------------------------------------------------------------------------- append


def test_append_returns_positions_and_every_node_serves_them(run: Run, cluster: Cluster) -> None:
    async def main() -> None:
        async with served(cluster) as service:
            response = await service.append(b"one", b"", b"three")
            assert len(response.positions) == 3
            last_index = response.first_index + 2
            for node_id, stub in service.stubs.items():
                await cluster.nodes[node_id].wait_commit(last_index - 1)
                responses = await read(stub, **ALL, mode=log_pb2.READ_MODE_LOCAL)
                assert bodies_of(responses) == [b"one", b"", b"three"]
                entry = entries_of(responses)[-1]
                assert (entry.index, entry.term, entry.position) == (last_index, response.term, response.positions[2])
            assert bodies_of(await read(await service.leader(), **ALL)) == [b"one", b"", b"three"]

    run(main())


def test_append_stream_answers_every_request_once_with_its_own_position(run: Run, cluster: Cluster) -> None:
    count = 5 * IN_FLIGHT_MAX

    async def requests() -> AsyncIterator[log_pb2.AppendRequest]:
        for number in range(count):
            yield log_pb2.AppendRequest(group="test", bodies=[b"%d" % number], request_id=number)

    async def main() -> None:
        async with served(cluster) as service:
            stub = await service.leader()
            responses = [response async for response in stub.AppendStream(requests())]
            assert {response.code for response in responses} == {ResponseCode.SUCCESS}
            places = {response.request_id: response.first_index for response in responses}
            assert len(places) == len(responses) == count
            bodies = {entry.index: entry.body for entry in entries_of(await read(stub, **ALL))}
            assert all(bodies[index] == b"%d" % number for number, index in places.items())

    run(main())


def test_append_stream_refuses_single_requests_and_continues(run: Run, cluster: Cluster) -> None:
    async def main() -> None:
        async with served(cluster) as service:
            call = (await service.leader()).AppendStream()
            await call.write(log_pb2.AppendRequest(group="other", bodies=[b"x"], request_id=1))
            await call.write(log_pb2.AppendRequest(group="test", bodies=[], request_id=2))
            await call.write(log_pb2.AppendRequest(group="test", bodies=[b"x"], request_id=3))
            await call.done_writing()
            codes = {response.request_id: response.code async for response in call}
            assert codes == {
                1: ResponseCode.UNKNOWN_GROUP,
                2: ResponseCode.REQUEST_WITH_EMPTY_BODYS,
                3: ResponseCode.SUCCESS,
            }

    run(main())


def test_append_stream_of_a_client_that_goes_away_ends_on_the_server(run: Run, cluster: Cluster) -> None:
    async def main() -> None:
        async with served(cluster) as service:
            stub = await service.leader()
            call = stub.AppendStream()
            await call.write(log_pb2.AppendRequest(group="test", bodies=[b"x"], request_id=1))
            assert (await call.read()).code == ResponseCode.SUCCESS
            assert any("_take_in" in repr(task) for task in asyncio.all_tasks())
            call.cancel()
            await cluster.eventually(lambda: not any("_take_in" in repr(task) for task in asyncio.all_tasks()))
            assert (await service.append(b"y")).code == ResponseCode.SUCCESS

    run(main())


def test_bad_appends_get_their_codes(run: Run, cluster: Cluster) -> None:
    async def main() -> None:
        # Data files as large as an entry may be, so that the limit is the format's.
        async with served(cluster, mapped_file_size_for_entry_data=8 << 20) as service:
            leader, follower = await service.leader(), await service.follower()
            largest = bytes(MAX_BODY_BYTES)
            table = [
                (leader, {"group": "other", "bodies": [b"x"]}, ResponseCode.UNKNOWN_GROUP),
                (leader, {"bodies": []}, ResponseCode.REQUEST_WITH_EMPTY_BODYS),
                (leader, {"bodies": [largest + b"x"]}, ResponseCode.UNEXPECTED_ARGUMENT),
                (leader, {"bodies": [largest]}, ResponseCode.SUCCESS),
                (leader, {"bodies": [largest, largest]}, ResponseCode.SUCCESS),
                (leader, {"bodies": [b"x"] * 10_001}, ResponseCode.UNEXPECTED_ARGUMENT),
                (follower, {"bodies": [b"x"]}, ResponseCode.NOT_LEADER),
            ]
            for stub, fields, code in table:
                request = log_pb2.AppendRequest(**{"group": "test", "request_id": 7, **fields})
                response = await stub.Append(request)
                assert response.code == code, (list(fields), response.message)
                assert response.request_id == 7
                assert (response.first_index >= 0) == (code == ResponseCode.SUCCESS)
                assert bool(response.message) == (code != ResponseCode.SUCCESS)
            hint = response.leader
            leader_config = (await cluster.leader()).config
            assert (hint.id, hint.address) == (leader_config.self_id, str(leader_config.client_address))

    run(main())


def test_append_without_a_known_leader_gets_an_empty_hint(run: Run, cluster: Cluster) -> None:
    async def main() -> None:
        await cluster.start("n0")
        node = cluster.nodes["n0"]
        server = await start_server(node, node.config.client_address)
        async with grpc.aio.insecure_channel(str(node.config.client_address)) as channel:
            response = await LogServiceStub(channel).Append(log_pb2.AppendRequest(group="test", bodies=[b"x"]))
        assert response.code == ResponseCode.NOT_LEADER
        assert (response.leader.id, response.leader.address) == ("", "")
        await server.stop(None)
        await cluster.stop()

    run(main())


# --------------------------------------------------------------------------------------------------------------- read


def test_bad_reads_get_their_codes(run: Run, cluster: Cluster) -> None:
    async def main() -> None:
        async with served(cluster) as service:
            done = await service.append(b"one", b"two")
            leader, follower = await service.leader(), await service.follower()
            end_position = (await cluster.leader()).status().end_position
            last_index = done.first_index + 1
            table = [
                (leader, {"group": "other", **ALL}, ResponseCode.UNKNOWN_GROUP),
                (leader, {}, ResponseCode.UNEXPECTED_ARGUMENT),
                (leader, {"index": -1}, ResponseCode.INDEX_LESS_THAN_LOCAL_BEGIN),
                (leader, {"index": last_index + 2}, ResponseCode.INDEX_OUT_OF_RANGE),
                (leader, {"index": last_index + 2, "follow": True}, ResponseCode.INDEX_OUT_OF_RANGE),
                (leader, {"index": 1 << 62}, ResponseCode.INDEX_OUT_OF_RANGE),
                (leader, {"position": -1}, ResponseCode.INDEX_LESS_THAN_LOCAL_BEGIN),
                (leader, {"position": end_position + 1}, ResponseCode.INDEX_OUT_OF_RANGE),
                (leader, {"position": done.positions[0] + 1}, ResponseCode.UNEXPECTED_ARGUMENT),
                (leader, {**ALL, "max_entries": -1}, ResponseCode.UNEXPECTED_ARGUMENT),
                (leader, {**ALL, "max_bytes": -1}, ResponseCode.UNEXPECTED_ARGUMENT),
                (leader, {**ALL, "max_bytes": (1 << 63) - 1}, ResponseCode.UNEXPECTED_ARGUMENT),
                (follower, {"index": last_index + 2}, ResponseCode.INDEX_OUT_OF_RANGE),
            ]
            for stub, fields, code in table:
                responses = await read(stub, **fields)
                assert [response.code for response in responses] == [code], (fields, responses)
                assert (bool(responses[0].message), len(responses[0].entries)) == (True, 0)

    run(main())


def test_every_node_serves_what_was_acknowledged_before(run: Run, cluster: Cluster) -> None:
    async def main() -> None:
        async with served(cluster) as service:
            for mode in (log_pb2.READ_MODE_LINEARIZABLE, log_pb2.READ_MODE_LEASE):
                last_index = (await service.append(b"x")).first_index
                responses = [await read(stub, **ALL, mode=mode) for stub in service.stubs.values()]
                assert {entries_of(each)[-1].index for each in responses} == {last_index}

    run(main())


@pytest.mark.parametrize("begin", ["index", "position"])
def test_read_at_the_end_is_empty_and_fine(run: Run, cluster: Cluster, begin: str) -> None:
    async def main() -> None:
        async with served(cluster) as service:
            done = await service.append(b"one")
            status = (await cluster.leader()).status()
            at = {"index": done.first_index + 1, "position": status.end_position}[begin]
            responses = await read(await service.leader(), **{begin: at})
            assert [(response.code, response.commit_index) for response in responses] == [(200, done.first_index)]
            assert not entries_of(responses)

    run(main())


def test_limits_in_entries_and_bytes_hold_but_at_least_one_entry_is_returned(run: Run, cluster: Cluster) -> None:
    async def main() -> None:
        async with served(cluster) as service:
            bodies = [b"%04d" % number for number in range(3000)]
            done = await service.append(*bodies)
            stub, begin = await service.leader(), done.first_index
            size = HEADER_SIZE + 4
            table = [
                ({"max_entries": 1}, 1),
                ({"max_entries": 2500}, 2500),
                ({"max_bytes": 1}, 1),
                ({"max_bytes": 2 * size}, 2),
                ({"max_bytes": 3 * size - 1}, 2),
                ({"max_bytes": 2000 * size, "max_entries": 1999}, 1999),
                ({}, 3000),
            ]
            for limits, count in table:
                assert bodies_of(await read(stub, index=begin, **limits)) == bodies[:count], limits
            position = done.positions[7]
            assert bodies_of(await read(stub, position=position, max_entries=2)) == bodies[7:9]

    run(main())


def test_raw_read_delivers_exactly_the_bytes_of_the_data_file(run: Run, cluster: Cluster, tmp_path: Path) -> None:
    async def main() -> None:
        async with served(cluster) as service:
            await service.append(*(b"%d" % number for number in range(5000)))
            responses = await read(await service.leader(), **ALL, raw=True)
            assert not entries_of(responses)
            encoded = b"".join(response.encoded for response in responses)
            self_id = (await cluster.leader()).config.self_id
            on_disk = (tmp_path / f"dledger-{self_id}" / "data" / f"{0:020d}").read_bytes()
            assert len(encoded) > 5000 * 48
            assert on_disk.startswith(encoded)

    run(main())


@pytest.mark.parametrize("mode", [log_pb2.READ_MODE_LINEARIZABLE, log_pb2.READ_MODE_LOCAL])
def test_follow_continues_with_later_entries_and_ends_at_its_limit(
    run: Run, cluster: Cluster, mode: log_pb2.ReadMode.ValueType
) -> None:
    async def main() -> None:
        async with served(cluster) as service:
            done, stub = await service.append(b"0"), await service.follower()
            for node in cluster.nodes.values():
                await node.wait_commit(done.first_index - 1)
            reading = asyncio.create_task(read(stub, index=done.first_index, follow=True, max_entries=100, mode=mode))
            for number in range(1, 120):
                await service.append(b"%d" % number)
            assert bodies_of(await reading) == [b"%d" % number for number in range(100)]

    run(main())


def test_follow_ends_with_a_code_when_the_node_stops(run: Run, cluster: Cluster) -> None:
    async def main() -> None:
        async with served(cluster) as service:
            done = await service.append(b"0")
            node = await cluster.leader()
            call = service.stubs[node.config.self_id].Read(
                log_pb2.ReadRequest(group="test", index=done.first_index + 1, follow=True)
            )
            assert (await call.read()).code == ResponseCode.SUCCESS
            await cluster.stop(node.config.self_id)
            assert (await call.read()).code == ResponseCode.INTERNAL_ERROR
            assert await call.read() is grpc.aio.EOF

    run(main())


def test_streams_that_follow_are_bounded(run: Run, cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dledger.service.log.FOLLOWERS_MAX", 2)

    async def main() -> None:
        async with served(cluster) as service:
            done = await service.append(b"0")
            stub = await service.leader()
            request = log_pb2.ReadRequest(group="test", index=done.first_index, follow=True)
            calls = [stub.Read(request) for _ in range(2)]
            for call in calls:
                assert (await call.read()).code == ResponseCode.SUCCESS
            codes = [response.code async for response in stub.Read(request)]
            assert codes == [ResponseCode.LEADER_PENDING_FULL]
            calls[0].cancel()

            async def is_taken() -> bool:
                call = stub.Read(request)
                code = (await call.read()).code
                call.cancel()
                return bool(code == ResponseCode.SUCCESS)

            while not await is_taken():
                pass

    run(main())


# ------------------------------------------------------------------------------------------------------------- status


def test_status_shows_the_same_cluster_from_every_node(run: Run, cluster: Cluster) -> None:
    async def main() -> None:
        async with served(cluster) as service:
            done = await service.append(b"one")
            leader = await cluster.leader()
            for node in cluster.nodes.values():
                await node.wait_commit(done.first_index - 1)
            await cluster.eventually(lambda: all(not peer.lag_entries for peer in leader.status().peers))
            for node_id, stub in service.stubs.items():
                status = await stub.Status(log_pb2.StatusRequest())
                assert status.code == ResponseCode.SUCCESS
                assert (status.group, status.self_id) == ("test", node_id)
                assert status.role == ("LEADER" if node_id == leader.config.self_id else "FOLLOWER")
                assert (status.leader.id, status.term) == (leader.config.self_id, done.term)
                assert (status.begin_index, status.end_index, status.commit_index) == (0,) + (done.first_index,) * 2
                assert status.end_position == status.commit_position == done.positions[0] + HEADER_SIZE + 3
                assert not status.is_disk_full
                assert [peer.lag_bytes for peer in status.peers] == ([0, 0] if status.role == "LEADER" else [])
                assert all(peer.is_live for peer in status.peers)
            refused = await stub.Status(log_pb2.StatusRequest(group="other"))
            assert refused.code == ResponseCode.UNKNOWN_GROUP

    run(main())
