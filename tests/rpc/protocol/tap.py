"""A relay between clients and a server over TCP that checks with zeros.py what both sides send, in plain text or TLS."""

import asyncio
import ssl

from zeros import Sent, Tally

# One turn of a relay; what is larger comes in several.
TURN_BYTES = 1 << 18


def contexts(certificate, key, authorities):
    """What the relay shows to clients, and to the server, and believes of them."""
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

    async def start(self):
        self.server = await asyncio.start_server(self._relay, "127.0.0.1", 0, ssl=self.tls[0], limit=TURN_BYTES)
        self.port = self.server.sockets[0].getsockname()[1]

    async def until(self, condition):
        """Until it holds; looks when something has come."""
        while not condition():
            self.fed.clear()
            await self.fed.wait()

    async def stop(self):
        self.server.close()
        while self.relays:
            await asyncio.wait(self.relays)

    async def _relay(self, client_reader, client_writer):
        relay = asyncio.current_task()
        self.relays.add(relay)
        relay.add_done_callback(self.relays.discard)
        writers = [client_writer]
        try:
            host, port = self.target
            server_reader, server_writer = await asyncio.open_connection(
                host, port, ssl=self.tls[1], limit=TURN_BYTES
            )
            writers.append(server_writer)
            ways = [
                self._pass(client_reader, server_writer, self.of_client),
                self._pass(server_reader, client_writer, self.of_server),
            ]
            # The first that ends, ends both: a connection of Hawser's is closed as a whole.
            done, pending = await asyncio.wait(map(asyncio.create_task, ways), return_when=asyncio.FIRST_COMPLETED)
            for way in pending:
                way.cancel()
            await asyncio.gather(*done, *pending, return_exceptions=True)
            for way in done:
                way.result()
        except (ConnectionError, ssl.SSLError):
            pass  # One side has gone.
        finally:
            for writer in writers:
                writer.close()

    async def _pass(self, reader, writer, tally):
        sent = Sent(self.zeros, tally, self.check_payload)
        while data := await reader.read(TURN_BYTES):
            sent.feed(data)
            self.fed.set()
            writer.write(data)
            await writer.drain()
