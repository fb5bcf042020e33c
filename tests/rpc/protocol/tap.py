"""A relay between clients and a server over TCP that checks with zeros.py what both sides send, in plain text or TLS."""

import asyncio
import ssl

from sent import Tally, line

# One turn of a relay; what is larger comes in several.
TURN_BYTES = 1 << 18

# More than any machine needs for what a test waits for.
PATIENCE_S = 120


def contexts(certificate, key, authorities):
    """The relay's TLS: as a server, and as a client."""
    towards_client = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    towards_server = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    for context in (towards_client, towards_server):
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.load_cert_chain(certificate, key)
        context.load_verify_locations(authorities)
        context.verify_mode = ssl.CERT_REQUIRED
        context.set_alpn_protocols(["hawser/1"])
    return towards_client, towards_server


class Tap:
    """Listens on a port of its own. `of_client` and `of_server` say what came from each side, on all connections."""

    def __init__(self, zeros, target, tls=(None, None), check_payload=lambda data: None):
        self.zeros = zeros
        self.target = target
        self.tls = tls
        self.check_payload = check_payload
        self.of_client, self.of_server = Tally(), Tally()
        self.relays = set()
        self.fed = asyncio.Event()
        self.towards_clients = []  # (what the server has sent, where it goes), for each connection that is there.

    async def start(self):
        self.server = await asyncio.start_server(self._accept, "127.0.0.1", 0, ssl=self.tls[0], limit=TURN_BYTES)
        self.port = self.server.sockets[0].getsockname()[1]

    def inject(self, **frame):
        """Each client gets this frame as well, as if the server had sent it. No frame of the server's is under way."""
        for sent, writer in self.towards_clients:
            writer.write(self.zeros.page.frame.encode(acknowledged=sent.acknowledged, **frame))

    async def until(self, condition):
        """Waits until condition() holds; asks whenever something has come."""

        async def wait():
            while not condition():
                self.fed.clear()
                await self.fed.wait()

        await asyncio.wait_for(wait(), PATIENCE_S)

    async def stop(self):
        """Waits for the end of all connections. Raises what a relay did not expect."""
        self.server.close()
        await asyncio.wait_for(asyncio.gather(*self.relays), PATIENCE_S)

    def _accept(self, reader, writer):
        self.relays.add(asyncio.ensure_future(self._relay(reader, writer)))

    async def _relay(self, client_reader, client_writer):
        writers = [client_writer]
        ways = []
        try:
            host, port = self.target
            server_reader, server_writer = await asyncio.open_connection(
                host, port, ssl=self.tls[1], limit=TURN_BYTES
            )
            writers.append(server_writer)
            of_client, of_server = line(self.zeros, self.of_client, self.of_server, self.check_payload)
            self.towards_clients.append((of_server, client_writer))
            ways = [
                asyncio.ensure_future(self._pass(client_reader, server_writer, of_client)),
                asyncio.ensure_future(self._pass(server_reader, client_writer, of_server)),
            ]
            # A side that ends a connection sends nothing more, and the other one soon ends it as well. TLS of this library
            # cannot end one way alone.
            until = asyncio.FIRST_COMPLETED if self.tls[0] else asyncio.FIRST_EXCEPTION
            done, _ = await asyncio.wait(ways, return_when=until)
            for way in done:
                way.result()
        except OSError:
            pass  # One side has gone.
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
            self.towards_clients = [way for way in self.towards_clients if way[1] is not client_writer]
            for writer in writers:
                writer.close()

    async def _pass(self, reader, writer, sent):
        while data := await reader.read(TURN_BYTES):
            sent.feed(data)
            self.fed.set()
            writer.write(data)
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()
