"""TLS before a plain port, with HTTP/2 and a certificate without an authority: for clients that always use TLS."""

import asyncio
import ssl
import threading
from contextlib import contextmanager

from tests.support.waiting import PATIENCE_S


@contextmanager
def tls_in_front(address, certificate, key):
    """Yield `host:port` of a TLS port that passes bytes on to `address`."""
    host, _, port = address.rpartition(":")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    context.set_alpn_protocols(["h2"])

    async def passed(reader, writer):
        try:
            while data := await reader.read(1 << 16):
                writer.write(data)
                await writer.drain()
        except OSError:
            pass
        finally:
            writer.close()

    async def serve(reader, writer):
        to_reader, to_writer = await asyncio.open_connection(host, int(port))
        await asyncio.gather(passed(reader, to_writer), passed(to_reader, writer))

    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    server = asyncio.run_coroutine_threadsafe(asyncio.start_server(serve, "127.0.0.1", 0, ssl=context), loop).result(
        PATIENCE_S
    )
    try:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:

        async def end():
            server.close()
            others = asyncio.all_tasks() - {asyncio.current_task()}
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)

        asyncio.run_coroutine_threadsafe(end(), loop).result(PATIENCE_S)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
