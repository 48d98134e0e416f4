"""One read over several streams: nothing skipped, nothing twice, damage detected, limits kept."""

from __future__ import annotations

import grpc
import pytest

from dledger.client import ReadFailed
from dledger.client.outcomes import Refused
from dledger.client.reading import DamagedBytesError, ReadSession, decode_chunk
from dledger.entries.format.entry import ENTRY_NOOP, ENTRY_NORMAL, Entry, encode_batch
from dledger.entries.format.walk import UNKNOWN, WalkState
from dledger.errors import ResponseCode
from dledger.v1.log_pb2 import READ_MODE_LOCAL, ReadResponse

ANY = WalkState(UNKNOWN, 0, UNKNOWN)


class Log:
    """Encoded entries of one log; the first is a no-op, as after an election."""

    def __init__(self, count: int, noop_at: tuple[int, ...] = (0,)) -> None:
        self.parts: list[bytes] = []
        position = chain = 0
        for index in range(count):
            magic, body = (ENTRY_NOOP, b"") if index in noop_at else (ENTRY_NORMAL, b"body %d" % index)
            batch = encode_batch([body], first_index=index, term=1, position=position, chain_crc=chain, magic=magic)
            self.parts.append(batch.data)
            position, chain = position + len(batch.data), batch.chain_crc

    def response(self, begin: int, end: int, commit: int | None = None) -> ReadResponse:
        commit = len(self.parts) - 1 if commit is None else commit
        return ReadResponse(code=200, commit_index=commit, encoded=b"".join(self.parts[begin:end]))


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def session(clock: Clock | None = None, **options: object) -> ReadSession:
    settings = {
        "group": "g",
        "begin": 0,
        "position": None,
        "max_entries": 0,
        "max_bytes": 0,
        "is_follow": False,
        "mode": "linearizable",
        "is_internal_included": False,
        "patience_s": 10.0,
        "now_s": clock or Clock(),
    }
    return ReadSession(**{**settings, **options})  # type: ignore[arg-type]


def indexes(entries: list[Entry]) -> list[int]:
    return [entry.index for entry in entries]


def test_noops_are_hidden_unless_asked_for() -> None:
    log = Log(4)

    assert [1, 2, 3] == indexes(session().take(log.response(0, 4), "n"))
    assert [0, 1, 2, 3] == indexes(session(is_internal_included=True).take(log.response(0, 4), "n"))


def test_next_stream_begins_after_the_last_entry() -> None:
    log, read = Log(6), session(position=0)
    assert "position" == read.request().WhichOneof("begin")

    read.take(log.response(0, 3), "n")
    request = read.request()

    assert ("index", 3) == (request.WhichOneof("begin"), request.index)


def test_read_that_continues_at_another_node_ends_where_the_log_ended_when_it_began() -> None:
    log, read = Log(9), session()
    read.take(log.response(0, 2, commit=4), "n")

    assert 3 == read.request().max_entries
    read.take(log.response(2, 5, commit=8), "m")
    assert read.is_done


def test_hidden_entries_do_not_count_against_the_limit() -> None:
    log, read = Log(9, noop_at=(0, 2)), session(max_entries=3)
    read.request()
    assert [1] == indexes(read.take(log.response(0, 3), "n"))
    read.ended()
    assert not read.is_done

    assert 2 == read.request().max_entries
    assert [3, 4] == indexes(read.take(log.response(3, 5), "n"))
    assert read.is_done


def test_stream_that_ends_cleanly_ends_the_read() -> None:
    read = session()
    read.request()
    read.take(Log(3).response(0, 3, commit=7), "n")
    read.ended()

    assert read.is_done


def test_next_stream_gets_the_rest_of_the_limit_in_bytes() -> None:
    log, read = Log(9), session(max_bytes=200)
    read.take(log.response(0, 2), "n")
    assert 200 - len(log.parts[0]) - len(log.parts[1]) == read.request().max_bytes

    read.take(log.response(2, 4), "n")
    assert read.is_done


@pytest.mark.parametrize("at", range(0, 54 + 48, 5))
def test_flipped_bit_anywhere_is_detected(at: int) -> None:
    good = b"".join(Log(3).parts[:3])
    bad = bytearray(good)
    bad[at] ^= 0x10

    assert 3 == len(decode_chunk(good, WalkState(0, 0, 0))[0])
    with pytest.raises(DamagedBytesError, match=r"expected .*, found"):
        decode_chunk(bytes(bad), WalkState(0, 0, 0))


def test_missing_entry_between_two_streams_is_detected() -> None:
    log, read = Log(6), session()
    read.take(log.response(0, 2), "n")

    with pytest.raises(ReadFailed, match="expected index 2, found index 3") as caught:
        read.take(log.response(3, 5), "n")
    assert 2 == caught.value.next_index


def test_entry_that_is_not_whole_is_damage() -> None:
    with pytest.raises(DamagedBytesError):
        decode_chunk(Log(1).parts[0][:-1], ANY)


def test_positions_may_jump_where_a_data_file_ends() -> None:
    first = encode_batch([b"a"], first_index=0, term=1, position=1000, chain_crc=0)
    read = session()
    read.take(ReadResponse(code=200, commit_index=9, encoded=first.data), "n")

    for position in (4096, 1049):
        second = encode_batch([b"b"], first_index=1, term=1, position=position, chain_crc=first.chain_crc)
        assert position == decode_chunk(second.data, read._walk, read._end_position)[0][0].position
    back = encode_batch([b"b"], first_index=1, term=1, position=1048, chain_crc=first.chain_crc)
    with pytest.raises(ReadFailed, match="expected position 1049"):
        read.take(ReadResponse(code=200, commit_index=9, encoded=back.data), "n")


def test_temporary_refusal_is_retried_until_the_time_limit() -> None:
    clock = Clock()
    read = session(clock)
    refusal = Refused(ResponseCode.NOT_LEADER, "why")
    assert 0 < read.pause_after(refusal) < 1

    clock.now += 9.99
    with pytest.raises(ReadFailed, match=r"why \(tried for 10 s\)"):
        read.pause_after(refusal)


def test_progress_restarts_the_time_limit() -> None:
    clock, log = Clock(), Log(3)
    read = session(clock)
    clock.now += 9
    read.take(log.response(0, 1), "n")
    clock.now += 9

    assert 0 < read.pause_after(Refused(ResponseCode.NETWORK_ERROR, "why"))


@pytest.mark.parametrize("code", [400, 410, 411, 414, 419])
def test_permanent_refusal_ends_the_read_at_once(code: int) -> None:
    read = session()
    with pytest.raises(Refused) as refused:
        read.take(ReadResponse(code=code, message="why"), "n")

    with pytest.raises(ReadFailed, match="n answered: why") as caught:
        read.pause_after(refused.value)
    assert code == caught.value.code


def test_local_read_waits_for_another_node_that_lags() -> None:
    read = session(mode="local")
    assert READ_MODE_LOCAL == read.request().mode
    read.take(Log(3).response(0, 2), "n")

    assert 0 < read.pause_after(Refused(ResponseCode.INDEX_OUT_OF_RANGE, "why"))


def test_idle_stream_that_follows_the_log_is_renewed_while_a_node_answers() -> None:
    clock = Clock()
    read = session(clock, is_follow=True)
    for _ in range(10):
        read.request()
        clock.now += read.timeout_s()
        read.broke("n", grpc.StatusCode.DEADLINE_EXCEEDED, "")
        read.node_found()
    assert not read.is_done

    clock.now += 11
    with pytest.raises(ReadFailed):
        read.pause_after(Refused(ResponseCode.NETWORK_ERROR, "no leader found"))


def test_broken_stream_counts_as_a_refusal() -> None:
    read = session()
    read.request()

    with pytest.raises(Refused, match="Socket closed"):
        read.broke("n", grpc.StatusCode.UNAVAILABLE, "Socket closed")
    with pytest.raises(Refused, match="did not answer in time"):
        read.broke("n", grpc.StatusCode.DEADLINE_EXCEEDED, "")


def test_long_read_may_take_longer_than_one_stream() -> None:
    read = session()
    read.request()
    read.take(Log(3).response(0, 1), "n")

    read.broke("n", grpc.StatusCode.DEADLINE_EXCEEDED, "")
    assert 1 == read.request().index


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"begin": -1}, "begin"),
        ({"max_entries": -1}, "max_entries"),
        ({"max_bytes": -1}, "max_bytes"),
        ({"mode": "x"}, "mode"),
    ],
)
def test_bad_argument_is_refused_at_once(options: dict[str, object], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        session(**options)
