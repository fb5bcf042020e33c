"""What the two sides of a connection over TCP send, from the first byte on."""

import collections

from capnp_body import Malformed
from zeros import NotZero, expect, name_of


class Tally:
    """`frames` and `messages`: how many came, by kind. `wrong`: in how many of them something was not 0, by the kind of
    frame; `failures`: texts of the first few."""

    def __init__(self):
        self.frames = collections.Counter()
        self.messages = collections.Counter()
        self.wrong = collections.Counter()
        self.failures = []

    def note(self, kind, what):
        self.wrong[kind] += 1
        if len(self.failures) < 10:
            self.failures.append(repr(what))


class Granted:
    """One segment that its sender granted: what of it has crossed."""

    def __init__(self, message, index, length):
        self.message = message
        self.index = index
        self.missing = length
        self.bytes = bytearray(length)

    def put(self, offset, data):
        """True: the whole segment has crossed."""
        self.bytes[offset : offset + len(data)] = data
        self.missing -= len(data)
        if self.missing == 0:
            self.message.segments[self.index] = bytes(self.bytes)
        return self.missing == 0


class Sent:
    """What one side sends; `peer` is the other side's. feed() it all: it notes in `tally` each field that the page says to be
    0 and that is not. `check_payload` gets the bodies (inline segments, what was READ, what was pushed), and may raise
    NotZero."""

    ATOMICS = ("compare-and-swap", "fetch-and-add")

    def __init__(self, zeros, tally, check_payload=lambda data: None):
        self.zeros = zeros
        self.tally = tally
        self.check_payload = check_payload
        self.peer = None
        self.acknowledged = 0  # As the last frame says.
        self._requests = 0
        self._reads = {}  # Number of a READ request: (rkey, address); of an atomic: None.
        self._granted = {}  # rkey: (address, Granted) of what was granted last with it.
        self._data = bytearray()
        self._greeted = False
        self._is_lost = False  # Where the next frame begins is not known.
        page = zeros.page
        self._length_max = {
            "SEND": 1 << 16,
            "READ response": page.fragment_max,
            "farewell": 256,
            "push": page.push_max,
            "compare-and-swap": 16,
            "fetch-and-add": 8,
        }

    def feed(self, data):
        self._data += data
        while not self._is_lost and (self._frame() if self._greeted else self._greeting()):
            pass

    def _take(self, size):
        """So many bytes, or None: not all of them have come."""
        if len(self._data) < size:
            return None
        taken = bytes(self._data[:size])
        del self._data[:size]
        return taken

    def _check(self, kind, check, *arguments):
        self.tally.frames[kind] += 1
        try:
            check(*arguments)
        except (NotZero, Malformed, LookupError, ValueError) as what:  # Also a number without a name, and bad text.
            self.tally.note(kind, what)

    def _greeting(self):
        layout = self.zeros.page.greeting
        if len(self._data) < layout.size:
            return False
        greeting = layout.decode(self._data)
        taken = self._take(layout.size + greeting["length"])
        if taken is None:
            return False
        self._check("greeting", self.zeros.greeting, greeting, taken[layout.size :])
        self._greeted = True
        return True

    def _frame(self):
        page = self.zeros.page
        if len(self._data) < page.frame.size:
            return False
        header = page.frame.decode(self._data)
        kind = next((name for name, number in page.frames.items() if number == header["kind"]), None)
        if kind is None or header["length"] > self._length_max.get(kind, 1 << 30):
            self._is_lost = True
            self.tally.note(kind, f"a frame that cannot be: {header}")
            return False
        taken = self._take(page.frame.size + (header["length"] if kind in self._length_max else 0))
        if taken is None:
            return False
        self.acknowledged = header["acknowledged"]
        number = self._requests
        self._requests += kind in ("SEND", "WRITE", "READ request", "push", *self.ATOMICS)
        self._check(kind, self._check_frame, kind, number, header, taken[page.frame.size :])
        return True

    def _check_frame(self, kind, number, header, payload):
        if kind == "SEND":
            self.tally.messages[name_of(self.zeros.page.kinds, self.zeros.page.header.decode(payload)["kind"])] += 1
        elif kind == "READ request":
            self._reads[number] = (header["key"], header["address"])
        elif kind in self.ATOMICS:
            self._reads[number] = None
        self.zeros.frame(header)
        if kind == "SEND":
            self._check_message(self.zeros.message(payload))
        elif kind == "push":
            self._put(header["key"], header["address"], payload)
        elif kind == "READ response":
            read = self.peer._reads[header["key"]]
            if read is None:
                expect(len(payload) == 8 and header["address"] == 0, "answer to an atomic", header)
            else:
                self._put(read[0], read[1] + header["address"], payload)
        elif kind == "farewell":
            expect(payload.decode().isprintable(), "text of a farewell", payload)

    def _check_message(self, message):
        for index, (entry, segment) in enumerate(zip(message.table, message.segments)):
            if segment is None:
                self._granted[entry["rkey"]] = (entry["address"], Granted(message, index, entry["length"]))
            else:
                self.check_payload(segment)

    def _put(self, rkey, address, data):
        self.check_payload(data)
        begin, granted = self._granted[rkey]
        if granted.put(address - begin, data):
            self.zeros.body(granted.message)


def line(zeros, of_client, of_server, check_payload=lambda data: None):
    """A new connection: (what its client sends, what its server sends)."""
    client, server = (Sent(zeros, tally, check_payload) for tally in (of_client, of_server))
    client.peer, server.peer = server, client
    return client, server
