"""On which connection of a client a stream is opened."""

from contextlib import ExitStack

from dledger.client.connections import STREAMS_PER_CONNECTION_MAX, Connections


def numbered_connections():
    """Return connections whose channels and stubs are `address/number of the channel`."""
    opened = []

    def connect(address):
        opened.append(f"{address}/{len(opened)}")
        return opened[-1]

    return Connections(connect, lambda channel: channel), opened


def test_connection_carries_a_bounded_number_of_streams():
    connections, opened = numbered_connections()
    with ExitStack() as streams:
        stubs = [streams.enter_context(connections.stream_stub("a:1")) for _ in range(STREAMS_PER_CONNECTION_MAX + 1)]
        assert set(stubs[:-1]) == {"a:1/0"}
        assert stubs[-1] == "a:1/1"
        assert connections.stub("a:1") == connections.channel("a:1") == "a:1/0"
    assert opened == ["a:1/0", "a:1/1"]


def test_place_of_a_stream_that_has_ended_is_used_again():
    connections, opened = numbered_connections()
    for _ in range(2 * STREAMS_PER_CONNECTION_MAX):
        with connections.stream_stub("a:1"):
            pass
    assert opened == ["a:1/0"]


def test_all_channels_are_known():
    connections, opened = numbered_connections()
    with ExitStack() as streams:
        for _ in range(2 * STREAMS_PER_CONNECTION_MAX):
            streams.enter_context(connections.stream_stub("a:1"))
        connections.stub("b:1")
    assert connections.channels() == opened == ["a:1/0", "a:1/1", "b:1/2"]
