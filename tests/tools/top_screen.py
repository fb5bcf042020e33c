#!/usr/bin/python3 -B
"""What a person sees of `hawser top` on a terminal: top_screen.py HAWSER KV_SERVER EVERYTHING_SERVER.

Runs it on a pseudo-terminal whose screen it keeps, as a terminal does: a control sequence that it does not know is an error.
Exit status 1, with the screen, if it does not come to look as wanted within half a minute.
"""

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time

PATIENCE = 30
SEQUENCE = re.compile(rb"\x1b\[(\??)([0-9;]*)([A-Za-z])")


class Screen:
    """The cells of a terminal, from the bytes that a program writes to it."""

    def __init__(self, columns, rows):
        self.alternate = False
        self.cursor = True
        self.pending = b""
        self.attributes = set()
        self.resize(columns, rows)

    def resize(self, columns, rows):
        self.columns, self.rows = columns, rows
        self.lines = [[(" ", frozenset())] * columns for _ in range(rows)]
        self.row = self.column = 0
        self.stale = True  # Until the program draws again: what comes first may be the rest of what is for the old size.

    def text(self):
        return "\n".join("".join(char for char, _ in line).rstrip() for line in self.lines)

    def all_faint(self):
        return all("2" in attributes for line in self.lines for char, attributes in line if char != " ")

    def feed(self, data):
        data = self.pending + data
        self.pending = b""
        while data:
            if self.stale and data[:1] != b"\x1b":
                data = data[1:]
            elif data[:1] == b"\x1b":
                found = SEQUENCE.match(data)
                if found is None:
                    if len(data) > 16:
                        sys.exit(f"a control sequence that is none: {data[:32]!r}")
                    self.pending = data
                    return
                self.control(found[1] == b"?", found[2].decode(), found[3].decode())
                data = data[found.end():]
            elif data[:1] == b"\r":
                self.column = 0
                data = data[1:]
            elif data[:1] == b"\n":
                self.row += 1
                if self.row >= self.rows and self.alternate:
                    sys.exit(f"the screen scrolls:\n{self.text()}")
                self.row = min(self.row, self.rows - 1)
                data = data[1:]
            else:
                size = 1 if data[0] < 0x80 else 2 if data[0] < 0xE0 else 3 if data[0] < 0xF0 else 4
                if len(data) < size:
                    self.pending = data
                    return
                char = data[:size].decode()
                if not char.isprintable():
                    sys.exit(f"{char!r} on the screen")
                if self.column < self.columns:
                    self.lines[self.row][self.column] = (char, frozenset(self.attributes))
                elif self.alternate:
                    sys.exit(f"the screen is too narrow for {char!r}:\n{self.text()}")
                self.column += 1
                data = data[size:]

    def control(self, private, numbers, final):
        blank = (" ", frozenset())
        if private and final in "hl" and numbers in ("1049", "25"):
            if numbers == "1049":
                self.alternate = final == "h"
            else:
                self.cursor = final == "h"
        elif not private and final == "H" and numbers == "":
            self.row = self.column = 0
            self.stale = False
        elif self.stale:
            pass
        elif not private and final == "K" and numbers == "":
            self.lines[self.row][self.column:] = [blank] * max(0, self.columns - self.column)
        elif not private and final == "J" and numbers == "":
            self.lines[self.row][self.column:] = [blank] * max(0, self.columns - self.column)
            for row in range(self.row + 1, self.rows):
                self.lines[row] = [blank] * self.columns
        elif not private and final == "m":
            for number in numbers.split(";"):
                self.attributes = set() if number in ("", "0") else self.attributes | {number}
        else:
            sys.exit(f"a control sequence that this terminal does not know: {private} {numbers} {final}")


class Terminal:
    """A program on a terminal of its own."""

    def __init__(self, *command, columns=100, rows=30):
        self.screen = Screen(columns, rows)
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
            sys.stdout.buffer.write(repr(termios.tcgetattr(0)).encode() + b"\n")
            sys.stdout.flush()
            os.environ["TERM"] = "xterm"
            os.execv(command[0], command)
        self.raw = b""
        self.wait(lambda: b"\r\n" in self.raw, "its start")
        self.before = self.raw.split(b"\r\n")[0].decode()

    def read(self, timeout):
        """False: nothing came, or the program has ended."""
        if not select.select([self.fd], [], [], timeout)[0]:
            return False
        try:
            data = os.read(self.fd, 65536)
        except OSError:
            return False
        self.raw += data
        self.screen.feed(data)
        return bool(data)

    def wait(self, condition, what):
        give_up = time.monotonic() + PATIENCE
        while not condition():
            if not self.read(max(0, give_up - time.monotonic())):
                self.fail(what)

    def fail(self, what):
        sys.exit(f"wanted: {what}; the screen has\n{self.screen.text()}\nand the last bytes are {self.raw[-300:]!r}")

    def shows(self, text):
        self.wait(lambda: text in self.screen.text(), text)

    def line(self, number):
        return self.screen.text().split("\n")[number]

    def type(self, keys):
        os.write(self.fd, keys)

    def resize(self, columns, rows):
        self.screen.resize(columns, rows)
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def is_restored(self):
        return not self.screen.alternate and self.screen.cursor and repr(termios.tcgetattr(self.fd)) == self.before

    def ends(self, status, what):
        """It has ended with this exit status, and the terminal is as it was."""
        while self.read(PATIENCE):
            pass
        _, result = os.waitpid(self.pid, 0)
        if os.waitstatus_to_exitcode(result) != status:
            self.fail(f"{what}: exit status {status}, and not {os.waitstatus_to_exitcode(result)}")
        if self.screen.alternate or not self.screen.cursor:
            self.fail(f"{what}: the screen that was there before")
        os.close(self.fd)
        print("ok:", what, flush=True)


class Server:
    def __init__(self, *command):
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        line = self.process.stdout.readline()
        self.uri = line.removeprefix("listening on ").strip()

    def kill(self):
        self.process.kill()
        self.process.wait()


def live(hawser, kv_server):
    server = Server(kv_server, "--listen=tcp://127.0.0.1:0")
    top = Terminal(hawser, "top", f"--target={server.uri}", "--interval=250ms")
    top.shows(f"kv_server, process {server.process.pid} on ")
    top.shows("of the last ")
    if top.screen.cursor or not top.screen.alternate:
        top.fail("another screen, without a cursor")
    put = [hawser, "call", f"--target={server.uri}", "KeyValue.put", '{"key": "tow", "value": "rope"}']
    subprocess.run(put, check=True, stdout=subprocess.DEVNULL)
    top.shows("kv.capnp:KeyValue.put")
    print("ok: it redraws in place", flush=True)

    server.kill()
    top.wait(lambda: "connection lost: UNAVAILABLE" in top.line(0), "that the connection is lost")
    top.wait(lambda: "process " in top.line(1) and top.screen.all_faint(), "the last figures, dimmed")
    print("ok: a server that goes is said to be lost", flush=True)
    old, server = server, Server(kv_server, f"--listen={server.uri}")
    if old.uri != server.uri:
        top.fail(f"a server at {old.uri}")
    top.shows(f"kv_server, process {server.process.pid} on ")
    top.wait(lambda: "connection lost" not in top.screen.text() and not top.screen.all_faint(), "bright figures")
    top.wait(lambda: "KeyValue.put" not in top.screen.text(), "figures of the new server only")
    print("ok: it goes on when the server is back", flush=True)
    top.type(b"q")
    top.ends(0, "q ends it")
    return server


def resized(hawser, server):
    top = Terminal(hawser, "top", f"--target={server.uri}", "--interval=1h")
    top.shows("POLLER")
    for columns, rows in ((50, 7), (30, 3), (132, 50), (1, 1), (80, 24)):
        top.resize(columns, rows)
        top.wait(lambda: top.screen.text().strip() != "" or columns == 1, f"a picture of {columns} x {rows}")
    top.shows("POLLER")
    print("ok: a new size is drawn at once", flush=True)
    top.type(b"\x1a")
    _, status = os.waitpid(top.pid, os.WUNTRACED)
    top.wait(lambda: os.WIFSTOPPED(status) and top.is_restored(), "a terminal for the shell")
    os.kill(top.pid, signal.SIGCONT)
    top.wait(lambda: top.screen.alternate, "its screen again")
    top.shows("POLLER")
    print("ok: Ctrl-Z gives the terminal back for a while", flush=True)
    top.type(b"\x03")
    top.ends(0, "Ctrl-C ends it")

    top = Terminal(hawser, "top", f"--target={server.uri}", "--interval=1h")
    top.shows("POLLER")
    os.kill(top.pid, signal.SIGTERM)
    top.wait(top.is_restored, "the terminal as it was")
    top.ends(0, "so does SIGTERM")


def failed(hawser, everything_server):
    server = Server(everything_server)
    top = Terminal(hawser, "top", f"--target={server.uri}", "--interval=250ms")
    top.shows("of the last ")
    server.kill()
    server = Server(everything_server, f"--listen={server.uri}", "--no_introspection")
    top.wait(lambda: "ServerOptions::introspection" in top.raw[-1000:].decode(errors="replace"), "why it ends")
    top.ends(1, "an error restores the terminal, too")
    server.kill()


def hostile(hawser, everything_server):
    server = Server(everything_server, "--lie=snapshots")
    top = Terminal(hawser, "top", f"--target={server.uri}", "--interval=250ms")
    top.shows("of the last ")
    top.shows("\\x1b[2J")
    top.type(b"q")
    top.ends(0, "a hostile server cannot command the terminal")
    server.kill()


def main(hawser, kv_server, everything_server):
    server = live(hawser, kv_server)
    resized(hawser, server)
    server.kill()
    failed(hawser, everything_server)
    hostile(hawser, everything_server)


main(*sys.argv[1:])
