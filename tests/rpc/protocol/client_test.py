"""Calls examples/echo with client.py: each test is a paragraph of rpc/PROTOCOL.md.

    client_test.py PROTOCOL.md echo_server
"""

import os
import re
import socket
import subprocess
import sys
import unittest

from client import Client, Closed, Refused, Rejected, bytes_of_struct, rejected, struct_of_bytes
from page import Page

ECHO = None  # The interface's id: that of the page's example.


class Server:
    def __init__(self, program):
        # Memory that was not written is not 0: mallopt(3), M_PERTURB. The client looks at each field that has to be.
        self.process = subprocess.Popen(
            [program, "--listen=tcp://127.0.0.1:0"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "MALLOC_PERTURB_": "60", "GLIBC_TUNABLES": "glibc.malloc.tcache_count=0"},
        )
        line = self.process.stdout.readline().decode()
        self.address = ("127.0.0.1", int(re.search(r":(\d+)$", line).group(1)))

    def end(self):
        """Ends it; returns what it wrote on stderr."""
        self.process.terminate()
        errors = self.process.communicate(timeout=30)[1].decode()
        assert self.process.returncode == 0, (self.process.returncode, errors)
        return errors


class ClientTest(unittest.TestCase):
    def setUp(self):
        self.page = PAGE
        self.server = Server(PROGRAM)
        self.errors = None
        self.clients = []

    def tearDown(self):
        for client in self.clients:
            client.close()
        if self.errors is None:
            self.server.end()

    def connect(self, **options):
        client = Client(self.page, self.server.address, **options)
        self.clients.append(client)
        return client

    def echo(self, client, data, **options):
        generation = client.request(ECHO, 0, [struct_of_bytes(data)], **options)
        response = client.response()
        self.assertEqual(response.slot, options.get("slot", 0))
        self.assertEqual(response.generation, generation)
        return response

    def expect_echo(self, client, data, **options):
        response = self.echo(client, data, **options)
        self.assertEqual((response.code, response.flags), (self.page.codes["OK"], 0))
        self.assertEqual(bytes_of_struct(response.body), data)
        return response

    def error_of(self, response):
        """The text of its Status."""
        return bytes_of_struct(response.body).decode().rstrip("\0")

    # ---- Calls.

    def test_the_example_is_a_call(self):
        client = self.connect()
        client.send(self.page.example)
        response = client.response()
        self.assertEqual((response.slot, response.generation, response.code), (3, 1, self.page.codes["OK"]))
        self.assertEqual(bytes_of_struct(response.body), b"tow")

    def test_small_messages_cross_inline_in_each_slot(self):
        client = self.connect(slots=4)
        self.assertEqual(client.slots, 4)
        for slot in [0, 3, 1, 3, 3, 2, 0]:
            self.assertEqual(self.expect_echo(client, b"ahoy %d" % slot, slot=slot).granted, 0)
        self.assertEqual(client.acknowledged, client.sent)

    def test_what_fits_with_header_and_table_and_envelope_is_inline(self):
        client = self.connect(receive_buffer=1024)
        prefix = self.page.header.size + self.page.entry.size + self.page.response.size
        body = client.receive_buffer - prefix
        self.assertEqual(self.expect_echo(client, b"x" * (body - 16)).granted, 0)
        self.assertGreater(self.expect_echo(client, b"x" * (body - 16 + 1)).granted, 0)

    def test_large_messages_are_read_both_ways(self):
        client = self.connect()
        for size in [5_000, 300_000, 3_000_001]:
            data = bytes(i * 7 % 251 for i in range(1000)) * (size // 1000 + 1)
            response = self.expect_echo(client, data[:size], slot=size % 8)
            self.assertGreater(response.granted, 0)

    def test_medium_messages_are_pushed_both_ways(self):
        client = self.connect(pushes=True)
        for size in [5_000, 65_536, 131_072]:
            response = self.expect_echo(client, b"x" * size, slot=size % 8)
            self.assertEqual(response.granted, 1)
        # Nothing was READ. Each call is a SEND, a push and the control exchange that releases the response.
        self.assertEqual(client.reads_asked, 0)
        self.assertEqual(client.sent, 3 * 3)
        self.expect_echo(client, b"x" * 300_000)
        self.assertGreater(client.reads_asked, 0)

    def test_several_requests_are_answered_in_any_order(self):
        client = self.connect()
        for slot in range(client.slots):
            client.request(ECHO, 0, [struct_of_bytes(b"%d" % slot)], slot=slot)
        answers = {}
        for _ in range(client.slots):
            response = client.response()
            answers[response.slot] = bytes_of_struct(response.body)
        self.assertEqual(answers, {slot: b"%d" % slot for slot in range(client.slots)})

    def test_a_timeout_of_0_still_runs_the_method(self):
        self.expect_echo(self.connect(), b"late", timeout_us=0)

    def test_errors_have_the_pages_codes(self):
        client = self.connect()
        client.request(ECHO, 77, [struct_of_bytes(b"")])
        response = client.response()
        self.assertEqual((response.code, response.flags), (self.page.codes["Unimplemented"], 0))
        self.assertIn("method @77", self.error_of(response))
        client.request(ECHO + 1, 0, [struct_of_bytes(b"")])
        self.assertEqual(client.response().code, self.page.codes["Unimplemented"])
        client.request(ECHO, 0, [b"\xff" * 8])
        self.assertEqual(client.response().code, self.page.codes["InvalidArgument"])
        self.expect_echo(client, b"the connection goes on")

    # ---- Metadata.

    def pair(self, key, value):
        return self.page.metadata.encode(key_bytes=len(key), value_bytes=len(value)) + key + value

    def test_metadata_of_every_size_goes_along(self):
        client = self.connect()
        for value in [b"", b"blue", bytes(range(256)), b"x" * 8000]:
            self.expect_echo(client, b"tow", metadata=self.pair(b"tenant", value) + self.pair(b"trace.id", b"7"))

    def test_malformed_metadata_ends_the_call_and_not_the_connection(self):
        client = self.connect()
        cut = self.pair(b"tenant", b"x" * 20)[:-15]
        many = b"".join(self.pair(b"k", b"") for _ in range(65))
        for metadata in [self.pair(b"Tenant", b"blue"), self.pair(b"", b"blue"), cut, many, self.pair(b"k", b"x" * 8188)]:
            response = self.echo(client, b"tow", metadata=metadata)
            self.assertEqual(response.code, self.page.codes["InvalidArgument"], metadata[:20])
            self.assertIn("metadata is malformed", self.error_of(response))
        self.expect_echo(client, b"the connection goes on")

    # ---- Control.

    def test_a_ping_is_answered(self):
        client = self.connect()
        client.control("ping")
        client.control("ping", slot=4711, generation=12)  # Not looked at.
        self.expect_echo(client, b"ahoy")

    def test_a_cancelled_request_is_answered_when_its_reads_are(self):
        client = self.connect()
        client.held_reads = []
        generation = client.request(ECHO, 0, [struct_of_bytes(b"x" * 10_000_000)])
        while not client.held_reads:
            client.poll()
        client.control("cancel", 0, generation + 1)  # Of no exchange of the slot's: ignored.
        client.control("cancel", 0, generation)
        held, client.held_reads = client.held_reads, None
        self.assertFalse(client.inbox)
        self.assertLess(sum(read[3] for read in held), 10_000_000)
        for read in held:
            client.serve_read(*read)
        response = client.response()
        self.assertEqual(response.code, self.page.codes["Cancelled"])
        self.expect_echo(client, b"the slot is free")

    # ---- What is refused.

    def rejection(self, **options):
        with self.assertRaises(Rejected) as raised:
            self.connect(**options)
        return raised.exception

    def test_a_handshake_at_fault_is_rejected_with_code_and_text(self):
        other = self.rejection(version=self.page.version + 8)
        self.assertEqual(other.code, self.page.codes["FailedPrecondition"])
        self.assertIn(f"version {self.page.version + 8}", other.text)
        self.assertIn(f"version {self.page.version}", other.text)
        for options in [{"slots": 0}, {"receive_buffer": 100}, {"read_depth": 0}, {"session": b"guess"}]:
            self.assertEqual(self.rejection(**options).code, self.page.codes["InvalidArgument"], options)

    def test_a_rejection_with_a_tail_is_as_in_the_example(self):
        port, text, private = self.page.rejection_example
        for padding in (b"", b"\0" * 20):
            example = rejected(self.page, private + padding)
            self.assertEqual(example.code, self.page.codes["FailedPrecondition"])
            self.assertEqual(example.text, text)
            self.assertEqual(example.tail, {self.page.tails["port of proofs"]: port.to_bytes(2, "little")})

    def test_a_read_of_what_was_not_granted_is_refused(self):
        client = self.connect()
        self.expect_echo(client, b"ahoy")
        number = client.sent
        with self.assertRaises(Refused) as raised:
            client.read(rkey=4711, address=0x1000, length=8)
        self.assertEqual(raised.exception.number, number)
        self.assertEqual(raised.exception.status, self.page.refusals["IBV_WC_REM_ACCESS_ERR"])

    def test_a_write_is_always_refused(self):
        client = self.connect()
        client.frame("WRITE", b"12345678", key=4711, address=0x1000)
        with self.assertRaises(Refused) as raised:
            client.response()
        self.assertEqual(raised.exception.status, self.page.refusals["IBV_WC_REM_ACCESS_ERR"])

    def test_a_send_longer_than_the_receive_is_refused(self):
        client = self.connect(receive_buffer=512)
        client.send(b"\0" * 65536)
        with self.assertRaises(Refused) as raised:
            client.response()
        self.assertEqual(raised.exception.status, self.page.refusals["IBV_WC_REM_INV_REQ_ERR"])

    def farewell(self, client):
        with self.assertRaises(Closed) as raised:
            client.response()
        return raised.exception.text

    def test_a_violation_is_told_to_the_peer_and_logged_by_its_reason(self):
        client = self.connect()
        client.generations[client.slots] = 0
        client.request(ECHO, 0, [struct_of_bytes(b"")], slot=client.slots)
        self.assertIn(f"used slot {client.slots} of {client.slots}", self.farewell(client))
        client = self.connect()
        client.frame("acknowledgement", status=1)
        self.assertIn("status 1", self.farewell(client))
        self.errors = self.server.end()
        self.assertIn("slot", self.page.reasons)
        self.assertRegex(self.errors, r"hawser: protocol violation \(slot\): peer tcp://127\.0\.0\.1:\d+ used slot 8 of 8")
        self.assertRegex(self.errors, r"hawser: protocol violation \(frame\): peer ")

    def read_in_fragments(self, fragment):
        """A large call whose READs are answered in fragments of so many bytes."""
        client = self.connect()
        client.held_reads = []
        client.request(ECHO, 0, [struct_of_bytes(b"x" * 100_000)])
        while not client.held_reads:
            client.poll()
        held, client.held_reads = client.held_reads, None
        for read in held:
            client.serve_read(*read, fragment=fragment)
        return client

    def test_fragments_of_reads_have_a_least_size(self):
        self.assertEqual(self.read_in_fragments(self.page.fragment_min).response().code, self.page.codes["OK"])
        text = self.farewell(self.read_in_fragments(self.page.fragment_min - 1))
        self.assertIn("answered READ", text)

    def test_an_acknowledgement_of_nothing_new_is_refused(self):
        client = self.connect()
        client.frame("acknowledgement")
        self.assertIn("acknowledges nothing new", self.farewell(client))

    def test_a_grant_can_be_read_four_times_over(self):
        client = self.connect()
        client.request(ECHO, 0, [struct_of_bytes(b"x" * 100_000)])
        header, rest = client.next_message()
        table = [
            self.page.entry.decode(rest[i * self.page.entry.size :]) for i in range(header["entries"])
        ]
        granted = next(entry for entry in table if entry["rkey"])
        for _ in range(4):
            client.read(granted["rkey"], granted["address"], granted["length"])
        with self.assertRaises(Refused) as raised:
            client.read(granted["rkey"], granted["address"], granted["length"])
        self.assertEqual(raised.exception.status, self.page.refusals["IBV_WC_REM_ACCESS_ERR"])

    def test_strangers_are_answered_as_the_page_says(self):
        greeting = self.page.greeting.encode(
            magic=self.page.greeting_magic,
            version=self.page.greeting_version + 1,
            kind=self.page.greetings["connect"],
            READ_depth=1,
        )
        answer = self.say(greeting)
        self.assertEqual(
            answer,
            self.page.greeting.encode(
                magic=self.page.greeting_magic,
                version=self.page.greeting_version,
                kind=self.page.greetings["reject"],
            ),
        )
        self.assertEqual(self.say(b"\x1b[31mred alert\r\n0123456789"), b"")
        self.assertTrue(self.say(b"GET / HTTP/1.1\r\n\r\n").startswith(b"HTTP/1.1 400"))
        for _ in range(20):
            self.say(b"\x1b[31mred alert\r\n0123456789")
        self.errors = self.server.end()
        # Escaped, and limited: nothing that a peer says begins a line, or colours one.
        lines = self.errors.splitlines()
        self.assertTrue(all(line.startswith("hawser: protocol violation (greeting): ") for line in lines), lines)
        self.assertIn("\\x1b[31mred alert", self.errors)
        self.assertNotIn("\x1b", self.errors)
        self.assertLess(len(lines), 10)

    def say(self, data):
        """To the server, as what it likes; returns the answer."""
        with socket.create_connection(self.server.address) as stranger:
            stranger.settimeout(30)
            stranger.sendall(data)
            answer = b""
            try:
                while part := stranger.recv(4096):
                    answer += part
            except ConnectionResetError:
                pass
            return answer


if __name__ == "__main__":
    PAGE, PROGRAM = Page(sys.argv[1]), sys.argv[2]
    ECHO = PAGE.request.decode(PAGE.example[PAGE.header.size + PAGE.entry.size :])["interface"]
    unittest.main(argv=[sys.argv[0], "-v"])
