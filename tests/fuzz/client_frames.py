"""Decoders of the frame port of clients: greetings, frames and the list of methods, of both ends."""

from contextlib import suppress

from dledger.client.framing import Welcome
from dledger.frames import codec
from dledger.frames.codec import BadClientFrame, ClientFrameReader
from tests.fuzz.target import Target


def frames_of(reader: ClientFrameReader, pieces: list[bytes]) -> tuple[list[codec.ClientFrame], bool]:
    """Return the frames that a reader returns before it refuses, and whether it refuses."""
    found: list[codec.ClientFrame] = []
    for piece in pieces:
        try:
            found += reader.received(piece)
        except BadClientFrame:
            return found, True
        assert reader.size_bytes <= max(codec.REQUEST_SIZE_BYTES_MAX, codec.ANSWER_SIZE_BYTES_MAX) + codec.HEAD.size
    return found, False


def client_frames(data: bytes) -> None:
    """Split bytes into frames, in pieces of a size that the first byte names; the pieces make no difference."""
    size, data = (data[0] if data else 0) + 1, data[1:]
    pieces = [data[at : at + size] for at in range(0, len(data), size)]
    for make in (ClientFrameReader.of_server, ClientFrameReader.of_client):
        whole, is_refused = frames_of(make(), [data])
        split, is_split_refused = frames_of(make(), pieces)
        assert is_refused == is_split_refused
        # In one piece the frames before a bad one are not returned: the connection ends.
        assert split == whole or (is_refused and not whole)
        for frame in whole:
            kind, detail, call_id, number, payload = frame
            again = codec.encode_frame(kind, payload, detail=detail, call_id=call_id, number=number)
            assert make().received(again) == [frame]
    with suppress(BadClientFrame):
        codec.decode_greeting(data[:8].ljust(8, b"\0"))
    with suppress(BadClientFrame):
        methods = codec.decode_methods(data)
        if len(methods) == data.count(b"\n"):
            assert codec.encode_methods(list(methods))[codec.HEAD.size :] == data
    welcome = Welcome(ClientFrameReader.of_client())
    with suppress(BadClientFrame):
        for piece in pieces:
            if welcome.received(piece):
                break


def seeds() -> list[bytes]:
    """Return the bytes that a client and a server send."""
    client = codec.encode_greeting() + codec.encode_frame(codec.TOKEN, b"dls1_token")
    client += codec.encode_frame(codec.CALL, b"\x0a\x02g0", detail=1, call_id=7, number=4000)
    server = codec.encode_greeting() + codec.encode_methods(["/dledger.v1.LogService/Append"])
    server += codec.encode_frame(codec.ANSWER, b"\x10\xc8\x01", call_id=7)
    server += codec.encode_frame(codec.CLOSING)
    return [bytes((size,)) + data for data in (client, client[8:], server, server[8:]) for size in (0, 6, 255)]


TARGETS = (Target("client_frames", client_frames, seeds),)
