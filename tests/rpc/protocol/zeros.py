"""What is 0 by rpc/PROTOCOL.md in everything that one side sends: fields, and bytes that fill up words. Also the addresses
of grants, which are not 0 but must not show where the process has its memory.

A field that is written from memory that was never set shows what the process had there before: see SECURITY.md.
"""

from capnp_body import Body


class NotZero(Exception):
    """A byte that should be 0 is not, or what was sent is not what the page describes."""


def address_of(rkey):
    """Where the grant of a Hawser program with this rkey begins."""
    return rkey << 32


def expect(condition, *what):
    if not condition:
        raise NotZero(" ".join(str(part) for part in what))


def name_of(names, number):
    """The name that has this number; LookupError: none has."""
    return {of: name for name, of in names.items()}[number]


class Message:
    """The segments of a request or a response, and `metadata`, the number of the one that has it; 0: none has. What was granted
    and has not come yet is None."""

    def __init__(self, table, segments, metadata):
        self.table = table
        self.segments = segments
        self.metadata = metadata


class Zeros:
    """The rules of the page for each part. Each method raises NotZero, or Malformed, or what Python says of bad data."""

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
        kind = name_of(self.page.greetings, greeting["kind"])
        # Takes pushes, takes atomics; or, of a reject, speaks TLS only.
        expect(greeting["flags"] & ~(2 if kind == "reject" else 5) == 0, "flags of a greeting", greeting)
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
        kind = name_of(page.frames, header["kind"])
        expect(header["reserved"] == 0, "reserved", header)
        expect(kind == "refusal" or header["status"] == 0, "status of a", kind, header)
        flags = {"SEND": 3, "WRITE": 1, "push": 1}.get(kind, 0)
        expect(header["flags"] & ~flags == 0, "flags of a", kind, header)
        for field in ("key", "address"):
            if (kind, field) in page.not_looked_at:
                expect(header[field] == 0, field, "of a", kind, header)
        if kind == "push":
            expect(header["address"] == address_of(header["key"]), "address of a push", header)
        if kind in ("acknowledgement", "refusal"):
            expect(header["length"] == 0, "length of a", kind, header)
        return kind

    # ---- Messages.

    def message(self, data):
        """One SEND: a Message, of which what came along was checked."""
        page = self.page
        header = page.header.decode(data)
        kind = name_of(page.kinds, header["kind"])
        expect(header["credits"] == 0, "credits, which are not agreed", header)
        expect(kind == "request" or header["timeout"] == 0, "timeout of a", kind, header)
        rest = data[page.header.size :]
        if kind in ("request", "response"):
            return self._exchange(kind, header, rest)
        expect(header["envelope"] == 0, "envelope of a", kind, header)
        expect(header["slot"] == page.control_slot, "slot of a", kind, header)
        if kind == "control":
            expect(len(rest) == header["entries"] * page.operation.size, "length of a control request", header)
            for at in range(0, len(rest), page.operation.size):
                self._operation(page.operation.decode(rest[at : at + page.operation.size]))
        else:
            expect(header["entries"] == 0 and not rest, "entries of a", kind, header)
            expect(kind != "return" or header["generation"] == 0, "generation of a", kind, header)
        return Message([], [], 0)

    def _operation(self, fields):
        name = name_of(self.page.operations, fields["operation"])
        expect(fields["reserved"] == 0, "reserved of", name, fields)
        if name not in ("cancel", "release"):
            expect(fields["slot"] == fields["generation"] == 0, "slot and generation of", name, fields)

    def _exchange(self, kind, header, rest):
        page = self.page
        at = header["entries"] * page.entry.size
        table = [page.entry.decode(rest[entry : entry + page.entry.size]) for entry in range(0, at, page.entry.size)]
        layout = page.request if kind == "request" else page.response
        expect(8 * header["envelope"] == layout.size, "length of the envelope", header)
        envelope = layout.decode(rest[at : at + layout.size])
        expect(envelope["reserved"] == 0, "reserved of an envelope", envelope)
        if kind == "response":
            expect(envelope["flags"] < 2, "flags of a response", envelope)
            expect(envelope["flags"] == 0 or envelope["metadata"] == 0, "metadata of a call that was not run", envelope)
        at += layout.size
        segments = []
        for entry in table:
            if entry["rkey"] != 0:
                expect(entry["address"] == address_of(entry["rkey"]), "address of a granted segment", entry)
                segments.append(None)
                continue
            expect(entry["address"] == 0, "address of an inline segment", entry)
            segments.append(rest[at : at + entry["length"]])
            at += entry["length"]
        expect(at == len(rest), "length of a message", header)
        message = Message(table, segments, envelope["metadata"])
        self.body(message)
        return message

    def body(self, message):
        """Checks the segments of a message of which all have come."""
        if all(segment is not None for segment in message.segments):
            if message.metadata != 0:
                self.metadata(message.segments[message.metadata])
            self.segments(message.segments, message.metadata)

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
