"""A client of the remoting protocol on a socket, which signs its requests with an access key."""

import asyncio
import base64
import struct

from cluster.access.access_keys import signature_of
from cluster.remoting.codec import Reply, decode_frame, encode_request, encode_response
from cluster.remoting.command import Request, Response
from tests.support.waiting import PATIENCE_S


def signed_fields(fields, body, access_key, secret):
    """Return fields with the signature of RocketMQ's clients."""
    found = {name: str(value) for name, value in fields.items()} | {"AccessKey": access_key}
    content = "".join(found[name] for name in sorted(found)).encode() + body
    return found | {"Signature": base64.b64encode(signature_of(secret, content)).decode()}


class RemotingPeer:
    """Sends requests one by one; `async with` closes the connection.

    Args:
        endpoint: `host:port`.
        access_key: with which requests are signed; empty: they are not.
        secret: of the access key.
        tls: the context of the connection; None: it is plain.
    """

    def __init__(self, endpoint, access_key="", secret="", tls=None):
        self._endpoint, self._access_key, self._secret, self._tls = endpoint, access_key, secret, tls
        # Requests of the server, which are not answered.
        self._pushed = []

    async def __aenter__(self):
        host, port = self._endpoint.split(":")
        self._reader, self._writer = await asyncio.open_connection(host, int(port), ssl=self._tls)
        return self

    async def __aexit__(self, *_error):
        self._writer.close()

    async def _read(self):
        (size,) = struct.unpack(">I", await self._reader.readexactly(4))
        return decode_frame(await self._reader.readexactly(size))

    async def answer(self, body):
        """Answer the requests of the server with a body, without end."""
        while True:
            found = await self._read()
            if isinstance(found, Request) and not found.is_oneway:
                self._writer.write(encode_response(Response(body=body), found.opaque))

    async def ask(self, code, body=b"", *, changed_body=None, **fields):
        """Return the response to a request.

        Args:
            code: of the request.
            body: that is signed.
            changed_body: that is sent instead; None: the same.
            fields: of the request.
        """
        if self._access_key:
            fields = signed_fields(fields, body, self._access_key, self._secret)
        self._write(code, fields, body if changed_body is None else changed_body)
        async with asyncio.timeout(PATIENCE_S):
            while not isinstance(found := await self._read(), Reply):
                self._pushed.append(found)
        return found.response

    def notify(self, code, body=b"", **fields):
        """Send a request that has no response, unsigned."""
        self._write(code, fields, body, is_oneway=True)

    async def pushed(self, code):
        """Return the next request of the server with a code; others before it are dropped."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                found = self._pushed.pop(0) if self._pushed else await self._read()
                if isinstance(found, Request) and found.code == code:
                    return found

    def _write(self, code, fields, body, *, is_oneway=False):
        texts = {name: str(value) for name, value in fields.items()}
        self._writer.write(encode_request(Request(code, texts, body, 7, is_oneway=is_oneway, version=479)))

    async def send(self, topic, body=b"body", **fields):
        """Return the response to a send."""
        names = {"a": "PG", "b": topic, "c": "TBW102", "d": 4, "e": 0, "f": 0, "g": 1, "h": 0, "i": "", "j": 0}
        return await self.ask(310, body, **names, **fields)

    async def pull(self, topic, group, offset=0, **fields):
        """Return the response to a pull that does not wait."""
        place = {"consumerGroup": group, "topic": topic, "queueId": 0, "queueOffset": offset, "maxMsgNums": 32}
        return await self.ask(11, **place, sysFlag=4, commitOffset=0, subscription="*", subVersion=0, **fields)
