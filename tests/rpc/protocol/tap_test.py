"""What servers and clients send, by tap.py: nothing but what rpc/PROTOCOL.md says, no byte of another client's, and no
address of memory.

    tap_test.py PROTOCOL.md kv_server kv hawser

The memory of all programs is filled with a pattern: that of the heap when it is allocated and when it is freed, and the
registered memory of the server by values that another client has put and removed.
"""

import asyncio
import os
import re
import subprocess
import sys
import tempfile
import unittest

from page import Page
from sent import Tally, line
from tap import PATIENCE_S, Tap, contexts
from zeros import NotZero, Zeros, address_of

SENDS_MIN = 2000  # Of each side, over each of TCP and TLS.

# Of what is allocated and not written, of what was freed (mallopt(3), M_PERTURB), and of the values of another client.
ALLOCATED, FREED, OTHERS = b"\xc3", b"\x3c", b"\xa5"
# Small chunks that malloc() keeps for a thread would have what was in them before.
FILLED = {"MALLOC_PERTURB_": str(FREED[0]), "GLIBC_TUNABLES": "glibc.malloc.tcache_count=0"}
# Three in a row: one or two also occur in numbers.
FOREIGN = [3 * byte for byte in (ALLOCATED, FREED, OTHERS)]

# Sizes of values: of each way a message goes (in a SEND, pushed, READ), and most end within a word.
SIZES = [1, 7, 13, 100, 1001, 3333, 5001, 20_011, 131_003, 300_007, 1_000_001]


def openssl(*arguments):
    subprocess.run(["openssl", *arguments], check=True, capture_output=True)


def issue(folder):
    """A certificate for 127.0.0.1 that is its own authority: (certificate, key, authorities)."""
    certificate, key = os.path.join(folder, "all.pem"), os.path.join(folder, "all.key")
    openssl(
        *("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "1"),
        *("-subj", "/CN=all", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", certificate),
    )
    return certificate, key, certificate


class Programs:
    """Starts them, with memory that is filled with the pattern."""

    def __init__(self, tls=None):
        self.flags = []
        self.processes = []
        if tls:
            names = ("certificate", "key", "authorities")
            self.flags = [f"--tls_{name}={path}" for name, path in zip(names, tls)]

    async def start(self, *command):
        process = await asyncio.create_subprocess_exec(
            *(*command, *self.flags),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            env={**os.environ, **FILLED},
        )
        self.processes.append(process)
        return process

    async def serve(self, *command):
        self.server = await self.start(*command, "--listen=tcp://127.0.0.1:0")
        line = (await self.server.stdout.readline()).decode()
        self.port = int(re.search(r":(\d+)$", line).group(1))

    async def end(self):
        """Ends the server, in order."""
        self.server.terminate()
        out, err = await self.server.communicate()
        assert self.server.returncode == 0, (self.server.returncode, out[-2000:], err[-2000:])

    async def run(self, program, port, *arguments):
        """Runs it to its end, which is to be good; returns what it printed."""
        process = await self.start(program, *arguments, f"--target=tcp://127.0.0.1:{port}")
        out, err = await asyncio.wait_for(process.communicate(), PATIENCE_S)
        assert process.returncode == 0, (arguments, process.returncode, out[-2000:], err[-2000:])
        return out

    async def kill(self):
        """What has not ended."""
        for process in self.processes:
            if process.returncode is None:
                process.kill()
                await process.wait()


class TapTest(unittest.IsolatedAsyncioTestCase):
    def setUp(self):
        self.folder = self.enterContext(tempfile.TemporaryDirectory())
        self.page = Page(PAGE)
        self.started = []  # What kills programs, and what stops taps.

    async def asyncTearDown(self):
        for end in self.started:
            try:
                await end()
            except Exception as what:  # The others end all the same.
                print(f"at the end: {what!r}", file=sys.stderr)

    async def serve(self, *arguments, tls=None):
        """Starts kv_server."""
        programs = Programs(tls)
        self.started.insert(0, programs.kill)  # Relays end with the programs.
        await programs.serve(KV_SERVER, *arguments)
        return programs

    async def tap(self, programs, *options):
        tap = Tap(Zeros(self.page), ("127.0.0.1", programs.port), *options)
        self.started.append(tap.stop)
        await tap.start()
        return tap

    def no_foreign(self, data):
        for foreign in FOREIGN:
            if foreign in data:
                raise NotZero(f"{data.count(foreign)} times {foreign.hex()} in a payload of {len(data)} bytes")

    def file_of(self, byte, size):
        path = os.path.join(self.folder, f"{byte.hex()}-{size}")
        with open(path, "wb") as file:
            file.write(byte * size)
        return path

    async def leave_values_behind(self, programs):
        """Fills the server's memory with the values of a client that is not looked at, and removes them."""
        for size in SIZES:
            await programs.run(KV, programs.port, "put", f"other/{size}", "--file=" + self.file_of(OTHERS, size))
        for size in SIZES:
            await programs.run(KV, programs.port, "del", f"other/{size}")

    async def use_everything(self, programs, tap):
        """All that clients of kv_server can do, in messages of every size."""
        watch = asyncio.create_task(programs.run(KV, tap.port, "watch", "mine/", f"--count={2 * len(SIZES)}"))
        # Of the watch: from here on it is told of every change.
        await tap.until(lambda: tap.of_server.messages["response"] > 0)
        for size in SIZES:
            path, copy = self.file_of(b"v", size), os.path.join(self.folder, "copy")
            await programs.run(KV, tap.port, "put", f"mine/{size}", "--file=" + path)
            await programs.run(KV, tap.port, "get", f"mine/{size}", "--out=" + copy)
            with open(path, "rb") as one, open(copy, "rb") as other:
                self.assertEqual(one.read(), other.read())
            os.remove(copy)
        await programs.run(KV, tap.port, "list", "mine/")
        for size in SIZES:
            await programs.run(KV, tap.port, "del", f"mine/{size}")
        self.assertEqual(len((await watch).splitlines()), 2 * len(SIZES))

    async def send_much(self, programs, tap):
        workloads = [("a", 13), ("e", 101), ("f", 3001)]
        # Clients release large responses by a control request when a slot is idle, which depends on the time.
        while workloads or tap.of_client.messages["control"] == 0:
            workload, size = workloads.pop() if workloads else ("c", 5001)
            await programs.run(
                *(KV, tap.port, "bench", f"--workload={workload}", f"--value_size={size}"),
                *("--records=100", f"--operations={SENDS_MIN // 2}", f"--prefix={workload}/"),
            )

    async def ask(self, programs, tap):
        """All that every server can be asked."""
        for arguments in [
            ("list",),
            ("describe", "KeyValue"),
            ("call", "KeyValue.list", '{"prefix": "a/"}'),
            ("ping", "--count=100"),
            ("health",),
            ("status",),
            ("perf", "--duration=20ms", "--size=13"),
            ("perf", "--duration=20ms", "--size=30001"),
        ]:
            await programs.run(HAWSER, tap.port, *arguments)

    async def check(self, tls):
        programs = await self.serve("--perf", tls=tls)
        tls = contexts(*tls) if tls else (None, None)
        # The values of `known` are made for this; those of `much`, and snapshots, have every byte in them.
        known, much = await self.tap(programs, tls, self.no_foreign), await self.tap(programs, tls)
        await self.leave_values_behind(programs)
        await self.use_everything(programs, known)
        await self.send_much(programs, much)
        await self.ask(programs, much)
        await programs.end()
        await known.stop()
        await much.stop()
        for tap in (known, much):
            for name, side in [("clients", tap.of_client), ("server", tap.of_server)]:
                print(f"{name}: {dict(side.frames)}, {dict(side.messages)}; wrong: {dict(side.wrong)}")
        for side in (known.of_client, known.of_server, much.of_client, much.of_server):
            self.assertEqual(dict(side.wrong), {}, side.failures)
        for side in (known.of_client, known.of_server):
            # The reverse connection has them the other way round.
            for kind in ["request", "response"]:
                self.assertGreater(side.messages[kind], 0, kind)
            for kind in ["READ request", "READ response", "push"]:
                self.assertGreater(side.frames[kind], 0, kind)
        # A frame that a side sends in time takes its place.
        self.assertGreater(sum(side.frames["acknowledgement"] for side in (known.of_client, known.of_server)), 0)
        self.assertGreater(much.of_server.messages["control answer"], 0)
        for side in (much.of_client, much.of_server):
            self.assertGreaterEqual(side.frames["SEND"], SENDS_MIN)

    async def test_over_tcp_nothing_else_crosses(self):
        await self.check(None)

    async def test_over_tls_nothing_else_crosses(self):
        await self.check(issue(self.folder))

    async def test_a_client_that_refuses_or_is_left_says_nothing_else(self):
        """What a Hawser client sends to a server that breaks the protocol, and to one that ends."""
        programs = await self.serve()
        tap = await self.tap(programs)
        await programs.start(KV, "watch", "mine/", f"--target=tcp://127.0.0.1:{tap.port}")

        async def is_watched():
            """Once more: a client whose connection was lost makes another."""
            seen = tap.of_server.messages["response"]
            await tap.until(lambda: tap.of_server.messages["response"] > seen)

        await tap.until(lambda: tap.of_server.messages["response"] > 0)
        tap.inject(kind=self.page.frames["READ request"], length=8, key=4711, address=4096)
        await tap.until(lambda: tap.of_client.frames["refusal"] > 0)
        await is_watched()
        tap.inject(kind=max(self.page.frames.values()) + 1)
        await tap.until(lambda: tap.of_client.frames["farewell"] > 0)
        await is_watched()
        programs.server.terminate()
        await tap.until(lambda: tap.of_client.messages["control answer"] > 0)
        self.assertGreater(tap.of_server.messages["control"], 0)
        for side in (tap.of_client, tap.of_server):
            self.assertEqual(dict(side.wrong), {}, side.failures)

    def test_a_byte_that_has_to_be_0_and_is_not_is_reported(self):
        """One byte of a connection after the other is changed."""
        page, zeros = self.page, Zeros(self.page)
        text = b"tow".ljust(8, b"\0")
        body = (1 << 48).to_bytes(8, "little") + (1 | 3 << 35 | 2 << 32).to_bytes(8, "little") + text
        pair = page.metadata.encode(key_bytes=1, value_bytes=1) + b"kv"
        request = (
            page.header.encode(kind=page.kinds["request"], envelope=2, entries=2, generation=1, timeout=9)
            + page.entry.encode(length=len(body))
            + page.entry.encode(length=8)
            + page.request.encode(interface=1, metadata=1)
            + body
            + pair.ljust(8, b"\0")
        )
        response = page.header.encode(kind=page.kinds["response"], envelope=1, generation=1) + page.response.encode()
        granted = (
            page.header.encode(kind=page.kinds["request"], envelope=2, entries=1, generation=2, timeout=9)
            + page.entry.encode(address=address_of(5), rkey=5, length=len(body))
            + page.request.encode(interface=1)
        )
        ping = page.header.encode(kind=page.kinds["control"], slot=page.control_slot, generation=1, entries=1)
        ping += page.operation.encode(operation=page.operations["ping"])
        handshake = page.handshake.encode(
            magic=page.handshake_magic,
            length=page.handshake_bytes,
            role=page.roles["forward"],
            version=page.version,
            slots=8,
            receive_buffer=4096,
            largest_body=1 << 20,
        )
        parts = [
            page.greeting.encode(
                magic=page.greeting_magic,
                version=page.greeting_version,
                kind=page.greetings["connect"],
                length=len(handshake),
                READ_depth=16,
            ),
            handshake,
            page.frame.encode(kind=page.frames["SEND"], length=len(request)),
            request,
            page.frame.encode(kind=page.frames["SEND"], length=len(ping)),
            ping,
            page.frame.encode(kind=page.frames["acknowledgement"]),
            page.frame.encode(kind=page.frames["SEND"], length=len(response)),
            response,
            page.frame.encode(kind=page.frames["refusal"], status=2),
            page.frame.encode(kind=page.frames["farewell"], length=3) + b"why",
            page.frame.encode(kind=page.frames["SEND"], length=len(granted)),
            granted,
            page.frame.encode(kind=page.frames["push"], length=len(body), key=5, address=address_of(5)) + body,
        ]
        good = b"".join(parts)

        def wrong(data):
            tally = Tally()
            line(zeros, tally, Tally())[0].feed(data)
            self.assertEqual(sum(tally.frames.values()), 9)
            return tally.failures

        self.assertEqual(wrong(good), [])
        at = [sum(map(len, parts[:i])) for i in range(len(parts))]
        entries = at[3] + page.header.size
        envelope = entries + 2 * page.entry.size
        end = at[3] + len(request)
        zero = [
            *range(at[1] + 28, at[1] + 44),  # The session.
            *range(at[1] + 14, at[1] + 16),
            *(at[i] + j for i in (2, 4, 6, 7, 10, 11) for j in (2, 3, *range(12, 24))),
            *range(len(good) - 5, len(good)),  # Behind the "tow" that is pushed.
            *(at[9] + j for j in (1, 3, *range(16, 24))),
            *range(at[8] + 8, at[8] + 12),  # The timeout of a response.
            *range(at[8] + 14, at[8] + 16),
            *range(at[8] + page.header.size + 4, at[8] + page.header.size + 8),
            *range(at[3] + 14, at[3] + 16),
            *range(entries, entries + 8),
            *range(envelope + 12, envelope + 16),
            *range(end - 13, end - 8),  # Behind "tow".
            end - 7,  # Reserved, of the pair.
            *range(end - 2, end),
            *range(at[5] + 8, at[5] + 12),
            *range(at[5] + page.header.size + 1, at[5] + page.header.size + 8),
            # Of addresses of granted memory: the offset in the grant.
            *range(at[12] + page.header.size, at[12] + page.header.size + 4),
            *range(at[13] + 16, at[13] + 20),
        ]
        for place in zero:
            bad = bytearray(good)
            self.assertEqual(bad[place], 0, place)
            bad[place] = ALLOCATED[0]
            self.assertTrue(wrong(bad), place)


if __name__ == "__main__":
    PAGE, KV_SERVER, KV, HAWSER = sys.argv[1:]
    unittest.main(argv=[sys.argv[0], "-v"])
