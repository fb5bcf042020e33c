"""What is 0 by rpc/PROTOCOL.md in everything that one side sends: fields, and bytes that fill up words.

A `Sent` takes what one side of a connection over TCP sends, from its first byte on, and notes each field that the page
says to be 0 and that is not. A field that is written from memory that was never set shows what the process had there
before: see SECURITY.md.
"""

import collections


class NotZero(Exception):
    """A byte that should be 0 is not, or what was sent is not what the page describes."""


def expect(condition, *what):
    if not condition:
        raise NotZero(" ".join(str(part) for part in what))


class Zeros:
    """The rules of the page for each part; every method raises NotZero."""

    def __init__(self, page):
        self.page = page
        # The page's fields "0, not looked at" that are checked below. A new one there has to be added here.
        assert page.not_looked_at == {
            ("handshake", "session"),
            ("operation", "slot"),
            ("operation", "generation"),
            ("greeting", "READ depth"),
            ("greeting", "flags"),
            ("SEND", "key"),
            ("SEND", "address"),
            ("acknowledgement", "key"),
            ("acknowledgement", "address"),
            ("refusal", "address"),
            ("farewell", "key"),
            ("farewell", "address"),
        }, page.not_looked_at

    # ---- Connecting.

    def greeting(self, greeting, private):
        expect(greeting["magic"] == int.from_bytes(self.page.greeting_magic, "little"), "magic of a greeting", greeting)
        kind = next(name for name, number in self.page.greetings.items() if number == greeting["kind"])
        # Takes pushes; or, of a reject, speaks TLS only.
        expect(greeting["flags"] in ((0, 2) if kind == "reject" else (0, 1)), "flags of a greeting", greeting)
        if kind == "reject":
            expect(greeting["READ depth"] == 0, "READ depth of a reject", greeting)
            if private:
                self.rejection(private)
        else:
            self.handshake(private, accepts=kind == "accept")

    def handshake(self, private, accepts):
        page = self.page
        fields = page.handshake.decode(private)
        expect(private[:4] == page.handshake_magic, "magic of a handshake", private)
        expect(not any(private[fields["length"] :]), "behind a handshake", private)
        expect(fields["reserved"] == 0, "reserved", fields)
        # Over TCP nothing is agreed, and only the two bits are known.
        expect(fields["features"] == 0 if accepts else fields["features"] < 4, "features", fields)
        proves = fields["role"] >= 16
        if proves if accepts else fields["role"] in (page.roles["forward"], 16 + page.roles["forward"]):
            expect(not any(fields["session"]), "session", fields)

    def rejection(self, private):
        fields = self.page.rejection.decode(private)
        expect(private[:4] == self.page.handshake_magic and fields["length"] == len(private), "rejection", private)
        expect(private[self.page.rejection.size :].decode().isprintable(), "text of a rejection", private)

    # ---- Frames.

    def frame(self, header):
        """The name of its kind."""
        page = self.page
        kind = next((name for name, number in page.frames.items() if number == header["kind"]), None)
        expect(kind is not None, "kind of a frame", header)
        expect(header["reserved"] == 0, "reserved", header)
        expect(kind == "refusal" or header["status"] == 0, "status of a", kind, header)
        flags = {"SEND": 3, "WRITE": 1, "push": 1}.get(kind, 0)
        expect(header["flags"] & ~flags == 0, "flags of a", kind, header)
        for field in ("key", "address"):
            if (kind, field) in page.not_looked_at:
                expect(header[field] == 0, field, "of a", kind, header)
        if kind in ("acknowledgement", "refusal"):
            expect(header["length"] == 0, "length of a", kind, header)
        return kind

    # ---- Messages.

    def message(self, data):
        """One SEND. Returns its inline segments."""
        page = self.page
        header = page.header.decode(data)
        kind = next((name for name, number in page.kinds.items() if number == header["kind"]), None)
        expect(kind is not None, "kind of a message", header)
        expect(header["credits"] == 0, "credits, which are not agreed", header)
        expect(kind == "request" or header["timeout"] == 0, "timeout of a", kind, header)
        rest = data[page.header.size :]
        if kind in ("request", "response"):
            return self._body(kind, header, rest)
        expect(header["envelope"] == 0, "envelope of a", kind, header)
        expect(header["slot"] == page.control_slot, "slot of a", kind, header)
        if kind == "control":
            expect(len(rest) == header["entries"] * page.operation.size, "length of a control request", header)
            for at in range(0, len(rest), page.operation.size):
                self._operation(page.operation.decode(rest[at : at + page.operation.size]))
        else:
            expect(header["entries"] == 0 and not rest, "entries of a", kind, header)
            expect(kind != "return" or header["generation"] == 0, "generation of a", kind, header)
        return []

    def _operation(self, fields):
        name = next(name for name, number in self.page.operations.items() if number == fields["operation"])
        expect(fields["reserved"] == 0, "reserved of", name, fields)
        if name not in ("cancel", "release"):
            expect(fields["slot"] == fields["generation"] == 0, "slot and generation of", name, fields)

    def _body(self, kind, header, rest):
        page = self.page
        at = header["entries"] * page.entry.size
        table = [page.entry.decode(rest[entry : entry + page.entry.size]) for entry in range(0, at, page.entry.size)]
        layout = page.request if kind == "request" else page.response
        expect(8 * header["envelope"] == layout.size, "length of the envelope", header)
        envelope = layout.decode(rest[at:])
        expect(envelope["reserved"] == 0, "reserved of an envelope", envelope)
        at += layout.size
        segments = []
        for entry in table:
            if entry["rkey"] != 0:
                segments.append(None)
                continue
            expect(entry["address"] == 0, "address of an inline segment", entry)
            segments.append(rest[at : at + entry["length"]])
            at += entry["length"]
        expect(at == len(rest), "length of a message", header)
        number = envelope["metadata"]
        if number != 0 and segments[number] is not None:
            self.metadata(segments[number])
        if all(segment is not None for segment in segments):
            self.segments(segments, number)
        return [segment for segment in segments if segment]

    def metadata(self, segment):
        page, at = self.page, 0
        while len(segment) - at >= page.metadata.size and segment[at] != 0:
            pair = page.metadata.decode(segment[at:])
            expect(pair["reserved"] == 0, "reserved of a pair of metadata", pair)
            at += page.metadata.size + pair["key bytes"] + pair["value bytes"]
        expect(len(segment) - at < 8 and not any(segment[at:]), "behind the metadata", segment[at:])

    def segments(self, segments, metadata=0):
        """A whole message of Cap'n Proto: what is behind the last element of a list, up to the end of its word, and each
        word that no pointer leads to, is 0. `metadata`: the number of the segment that has it; 0: none."""
        body = Body(segments)
        body.walk()
        for number, segment in enumerate(segments):
            if metadata != 0 and number == metadata:
                continue
            for index in range(len(segment) // 8):
                if (number, index) not in body.reached:
                    word = segment[8 * index : 8 * index + 8]
                    expect(not any(word), "word", index, "of segment", number, "that nothing leads to:", word.hex())


class Body:
    """The words of a message of Cap'n Proto that its pointers lead to (capnproto.org/encoding.html)."""

    def __init__(self, segments):
        self.segments = segments
        self.reached = set()

    def walk(self):
        pointers = collections.deque([(0, 0)] if self.segments and self.segments[0] else [])
        while pointers:
            pointers.extend(self._follow(*pointers.popleft()))

    def _word(self, segment, index):
        self.reached.add((segment, index))
        return int.from_bytes(self.segments[segment][8 * index : 8 * index + 8], "little")

    def _follow(self, segment, index):
        """The places of the pointers in what the pointer there leads to."""
        pointer = self._word(segment, index)
        if pointer & 3 == 2:  # Far.
            segment, index = pointer >> 32, pointer >> 3 & 0x1FFFFFFF
            is_double = pointer & 4
            pointer = self._word(segment, index)
            if is_double:
                tag = self._word(segment, index + 1)
                return self._content(pointer >> 32, pointer >> 3 & 0x1FFFFFFF, tag)
        if pointer == 0:
            return []
        offset = pointer >> 2 & 0x3FFFFFFF
        return self._content(segment, index + 1 + (offset - (1 << 30) if offset >> 29 else offset), pointer)

    def _content(self, segment, at, pointer):
        if pointer & 3 == 0:
            return self._struct(segment, at, pointer)
        expect(pointer & 3 == 1, "a pointer to a capability", hex(pointer))
        size, count = pointer >> 32 & 7, pointer >> 35
        if size == 6:  # Pointers.
            return [(segment, at + i) for i in range(count)]
        if size == 7:  # Structs, behind a word that has the shape of each.
            tag = self._word(segment, at)
            words = (tag >> 32 & 0xFFFF) + (tag >> 48)
            return [
                place
                for i in range(tag >> 2 & 0x3FFFFFFF)
                for place in self._struct(segment, at + 1 + i * words, tag)
            ]
        bits = count * (0, 1, 8, 16, 32, 64)[size]
        words = (bits + 63) // 64
        self.reached.update((segment, at + i) for i in range(words))
        if bits % 64 != 0:
            last = self._word(segment, at + words - 1)
            expect(last >> bits % 64 == 0, "behind a list of", count, "elements:", hex(last))
        return []

    def _struct(self, segment, at, pointer):
        data, pointers = pointer >> 32 & 0xFFFF, pointer >> 48
        self.reached.update((segment, at + i) for i in range(data))
        return [(segment, at + data + i) for i in range(pointers)]


class Tally:
    """`frames` and `messages`: how many came, by kind. `wrong`: in how many of them something was not 0, by the kind of
    frame; `failures`: texts of the first few."""

    def __init__(self):
        self.frames = collections.Counter()
        self.messages = collections.Counter()
        self.wrong = collections.Counter()
        self.failures = []


class Sent:
    """What one side of one connection sends. feed() it all. `check_payload` gets the bodies (inline segments, what was
    READ, what was pushed), and may raise NotZero."""

    def __init__(self, zeros, tally, check_payload=lambda data: None):
        self.zeros = zeros
        self.tally = tally
        self.check_payload = check_payload
        self._data = bytearray()
        self._greeted = False

    def feed(self, data):
        self._data += data
        while self._greeting() if not self._greeted else self._frame():
            pass

    def _take(self, layout, length_of):
        """The fields of `layout` and what follows them, or None: not all of it has come."""
        if len(self._data) < layout.size:
            return None
        fields = layout.decode(self._data)
        end = layout.size + length_of(fields)
        if len(self._data) < end:
            return None
        payload = bytes(self._data[layout.size : end])
        del self._data[:end]
        return fields, payload

    def _check(self, kind, check, *arguments):
        self.tally.frames[kind] += 1
        try:
            check(*arguments)
        except NotZero as what:
            self.tally.wrong[kind] += 1
            if len(self.tally.failures) < 10:
                self.tally.failures.append(str(what))

    def _greeting(self):
        taken = self._take(self.zeros.page.greeting, lambda fields: fields["length"])
        if taken is None:
            return False
        self._check("greeting", self.zeros.greeting, *taken)
        self._greeted = True
        return True

    def _frame(self):
        page = self.zeros.page
        read = page.frames["READ request"]
        taken = self._take(page.frame, lambda fields: 0 if fields["kind"] == read else fields["length"])
        if taken is None:
            return False
        kind = next((name for name, number in page.frames.items() if number == taken[0]["kind"]), None)
        self._check(kind, self._check_frame, kind, *taken)
        return True

    def _check_frame(self, kind, header, payload):
        if kind == "SEND":
            number = payload[self.zeros.page.header.fields["kind"][0]]
            self.tally.messages[next((name for name, of in self.zeros.page.kinds.items() if of == number), None)] += 1
        self.zeros.frame(header)
        if kind == "SEND":
            for segment in self.zeros.message(payload):
                self.check_payload(segment)
        elif kind in ("READ response", "push"):
            self.check_payload(payload)
        elif kind == "farewell":
            expect(payload.decode().isprintable(), "text of a farewell", payload)
