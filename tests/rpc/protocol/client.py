"""A Hawser client over TCP, written from rpc/PROTOCOL.md alone: one connection, one thread, the standard library.

It does what a client has to, and no more: calls one at a time, serves the READs of its large requests, READs large
responses, answers the server's control requests. What the server says is checked with the page, too, down to the last
bit that the page says to be 0 (zeros.py).
"""

import collections
import socket
import struct

from zeros import Zeros

READ_DEPTH = 16
BODY_MAX = 512 << 20
READ_CHUNK = 256 << 10
CREDITS = 1  # Offered, and not agreed: over TCP a SEND may wait for a receive.

Response = collections.namedtuple("Response", "slot generation code flags body granted")


class Rejected(Exception):
    """`tail`: the values behind the declared length, by kind."""

    def __init__(self, code, text, tail):
        super().__init__(text)
        self.code = code
        self.text = text
        self.tail = tail


class Refused(Exception):
    """A request of ours was refused by the fabric."""

    def __init__(self, number, status):
        super().__init__(f"request {number} was refused with status {status}")
        self.number = number
        self.status = status


class Closed(Exception):
    """The peer has closed the connection; `text`: its farewell, or empty."""

    def __init__(self, text):
        super().__init__(text or "without a farewell")
        self.text = text


def rejected(page, private):
    """The private data of a reject, as Rejected."""
    fields = page.rejection.decode(private)
    assert private[:4] == page.handshake_magic and fields["length"] <= len(private)
    tail, at = {}, fields["length"]
    while at < len(private) and private[at] != 0:
        entry = page.tail.decode(private[at:])
        at += page.tail.size + entry["bytes"]
        assert at <= len(private)
        tail[entry["kind"]] = private[at - entry["bytes"] : at]
    return Rejected(fields["code"], private[page.rejection.size : fields["length"]].decode(), tail)


class Client:
    def __init__(
        self,
        page,
        address,
        version=None,
        slots=8,
        receive_buffer=4096,
        read_depth=READ_DEPTH,
        session=b"",
        pushes=False,
    ):
        self.page = page
        self.zeros = Zeros(page)
        self.socket = socket.create_connection(address)
        self.socket.settimeout(30)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sent = 0  # Requests: SENDs, WRITEs, READ requests and pushes,
        self.acknowledged = 0  # of them acknowledged.
        self.executed = 0  # Requests of the server's.
        self.generations = collections.Counter()
        self.control_generation = 0
        self.granted = {}  # rkey -> bytes
        self.next_rkey = 1000
        self.next_address = 1 << 40
        self.reads = {}  # Number of the request -> bytes so far.
        self.pushed = {}  # (rkey, address, length) -> bytes.
        self.reads_asked = 0  # READ requests of the server's.
        self.held_reads = None  # A list: READ requests are kept there instead of being answered.
        self.inbox = collections.deque()
        self.farewell = ""
        handshake = page.handshake.encode(
            magic=page.handshake_magic,
            length=page.handshake_bytes,
            role=page.roles["forward"],
            features=CREDITS,
            version=page.version if version is None else version,
            slots=slots,
            receive_buffer=receive_buffer,
            largest_body=BODY_MAX,
            session=session.ljust(16, b"\0"),
        )
        self.socket.sendall(
            page.greeting.encode(
                magic=page.greeting_magic,
                version=page.greeting_version,
                kind=page.greetings["connect"],
                length=len(handshake),
                READ_depth=read_depth,
                flags=int(pushes),
            )
            + handshake
        )
        greeting = page.greeting.decode(self._receive(page.greeting.size))
        assert greeting["magic"] == int.from_bytes(page.greeting_magic, "little"), greeting
        assert greeting["version"] == page.greeting_version, greeting
        private = self._receive(greeting["length"])
        self.zeros.greeting(greeting, private)
        if greeting["kind"] == page.greetings["reject"]:
            self.close()
            raise rejected(page, private)
        assert greeting["kind"] == page.greetings["accept"], greeting
        self.read_depth = greeting["READ depth"]
        assert 1 <= self.read_depth <= read_depth
        self.pushes = greeting["flags"] == 1
        assert greeting["flags"] == int(pushes), greeting
        answer = page.handshake.decode(private)
        assert private[:4] == page.handshake_magic and answer["role"] == page.roles["forward"]
        assert 1 <= answer["slots"] <= slots and 512 <= answer["receive buffer"] <= receive_buffer
        assert any(answer["session"])
        self.slots = answer["slots"]
        self.receive_buffer = answer["receive buffer"]
        self.session = answer["session"]

    def close(self):
        self.socket.close()

    # ---- Frames.

    def _receive(self, size):
        data = bytearray()
        while len(data) < size:
            try:
                part = self.socket.recv(min(size - len(data), 1 << 20))
            except ConnectionResetError:
                part = b""
            if not part:
                raise Closed(self.farewell)
            data += part
        return bytes(data)

    def frame(self, kind, payload=b"", behind=b"", **fields):
        """Sends a frame, with the bytes `behind` in the same write."""
        try:
            self.socket.sendall(self.frame_bytes(kind, payload, **fields) + behind)
        except (BrokenPipeError, ConnectionResetError):
            pass  # The server has hung up: why is still to be received, and ends the next poll().

    def frame_bytes(self, kind, payload=b"", **fields):
        fields.setdefault("length", len(payload))
        header = self.page.frame.encode(kind=self.page.frames[kind], acknowledged=self.executed, **fields)
        if kind in ("SEND", "WRITE", "READ request", "push"):
            self.sent += 1
        return header + payload

    def send(self, message, behind=b""):
        """One SEND that asks for its acknowledgement."""
        self.frame("SEND", message, behind, flags=1)

    def poll(self):
        """Takes one frame; what it carries goes to `inbox`, to `reads`, or is answered."""
        page = self.page
        header = page.frame.decode(self._receive(page.frame.size))
        kind = self.zeros.frame(header)
        assert self.acknowledged <= header["acknowledged"] <= self.sent, header
        self.acknowledged = header["acknowledged"]
        if kind == "SEND":
            self.inbox.append(self._receive(header["length"]))
            self.zeros.message(self.inbox[-1])
            self.executed += 1
            if header["flags"] & 1:
                self.frame("acknowledgement")
        elif kind == "push":
            assert self.pushes, header
            place = (header["key"], header["address"], header["length"])
            self.pushed[place] = self._receive(header["length"])
            self.executed += 1
            if header["flags"] & 1:
                self.frame("acknowledgement")
        elif kind == "READ request":
            self.reads_asked += 1
            number, self.executed = self.executed, self.executed + 1
            request = (number, header["key"], header["address"], header["length"])
            if self.held_reads is not None:
                self.held_reads.append(request)
            else:
                self.serve_read(*request)
        elif kind == "READ response":
            assert self.acknowledged > header["key"] == min(self.reads), header
            data = self.reads[header["key"]]
            shortest = min(page.fragment_min, data[1] - len(data[0]))
            assert header["address"] == len(data[0]) and shortest <= header["length"] <= page.fragment_max, header
            data[0] += self._receive(header["length"])
            if len(data[0]) == data[1]:
                del self.reads[header["key"]]
        elif kind == "refusal":
            assert header["key"] == header["acknowledged"], header
            raise Refused(header["key"], header["status"])
        elif kind == "farewell":
            self.farewell = self._receive(header["length"]).decode()
        else:
            assert kind == "acknowledgement", header

    def serve_read(self, number, rkey, address, length, fragment=None):
        base, memory = self.granted[rkey]
        data = memory[address - base : address - base + length]
        assert len(data) == length, "a READ outside what was granted"
        fragment = fragment or self.page.fragment_max
        for offset in range(0, length, fragment):
            part = data[offset : offset + fragment]
            self.frame("READ response", part, key=number, address=offset)

    def read(self, rkey, address, length):
        """READs `length` bytes of the server's memory, in chunks, READ depth of them at a time."""
        chunks = []
        for offset in range(0, length, READ_CHUNK):
            while len(self.reads) == self.read_depth:
                self.poll()
            chunk = [bytearray(), min(READ_CHUNK, length - offset)]
            self.reads[self.sent] = chunk
            chunks.append(chunk)
            self.frame("READ request", length=chunk[1], key=rkey, address=address + offset)
        while self.reads:
            self.poll()
        return b"".join(chunk[0] for chunk in chunks)

    # ---- Messages.

    def request(self, interface, method, segments, slot=0, timeout_us=None, metadata=None):
        """Sends a request with the body `segments` and the bytes of `metadata`; returns its generation."""
        page = self.page
        self.generations[slot] += 1
        envelope = page.request.encode(interface=interface, method=method, metadata=len(segments) if metadata else 0)
        if metadata:
            segments = [*segments, metadata + bytes(-len(metadata) % 8)]
        prefix_bytes = page.header.size + page.entry.size * len(segments) + len(envelope)
        whole = prefix_bytes + sum(map(len, segments)) <= self.receive_buffer
        table, inline, ahead = b"", b"", []
        for segment in segments:
            if whole or not segment:
                table += page.entry.encode(length=len(segment))
                inline += segment
            else:
                rkey, address = self.next_rkey, self.next_address
                self.next_rkey += 1
                self.next_address += len(segment)
                self.granted[rkey] = (address, segment)
                table += page.entry.encode(address=address, rkey=rkey, length=len(segment))
                ahead.append((segment, rkey, address))
        push = b""
        if self.pushes and len(ahead) == 1 and len(ahead[0][0]) <= page.push_max:
            data, rkey, address = ahead[0]
            push = self.frame_bytes("push", data, key=rkey, address=address)
        self.send(
            page.header.encode(
                kind=page.kinds["request"],
                envelope=len(envelope) // 8,
                slot=slot,
                generation=self.generations[slot],
                timeout=page.forever if timeout_us is None else timeout_us,
                entries=len(segments),
            )
            + table
            + envelope
            + inline,
            behind=push,
        )
        return self.generations[slot]

    def next_message(self):
        """The next message: (header, what follows the header). Control requests are answered on the way."""
        page = self.page
        while True:
            while not self.inbox:
                self.poll()
            message = self.inbox.popleft()
            header = page.header.decode(message)
            if header["kind"] != page.kinds["control"]:
                return header, message[page.header.size :]
            self.send(
                page.header.encode(
                    kind=page.kinds["control answer"], slot=page.control_slot, generation=header["generation"]
                )
            )

    def response(self):
        """The next response, its body READ and released."""
        page = self.page
        header, rest = self.next_message()
        assert header["kind"] == page.kinds["response"], header
        table_bytes = page.entry.size * header["entries"]
        table = [
            page.entry.decode(rest[at : at + page.entry.size]) for at in range(0, table_bytes, page.entry.size)
        ]
        rest = rest[table_bytes:]
        envelope, inline = page.response.decode(rest), rest[8 * header["envelope"] :]
        segments, granted = [], 0
        for entry in table:
            if entry["rkey"] == 0:
                segments.append(inline[: entry["length"]])
                inline = inline[entry["length"] :]
            else:
                granted += 1
                place = (entry["rkey"], entry["address"], entry["length"])
                is_alone = sum(other["rkey"] != 0 for other in table) == 1
                if self.pushes and is_alone and entry["length"] <= page.push_max:
                    while place not in self.pushed:
                        self.poll()
                segments.append(self.pushed.pop(place, None) or self.read(*place))
        assert not inline
        self.zeros.segments(segments, envelope["metadata"])
        if granted:
            self.control("release", header["slot"], header["generation"])
        return Response(header["slot"], header["generation"], envelope["code"], envelope["flags"], segments, granted)

    def control(self, operation, slot=0, generation=0):
        """One control exchange of one operation. No response is on its way."""
        page = self.page
        self.control_generation += 1
        self.send(
            page.header.encode(
                kind=page.kinds["control"], slot=page.control_slot, generation=self.control_generation, entries=1
            )
            + page.operation.encode(operation=page.operations[operation], slot=slot, generation=generation)
        )
        header, rest = self.next_message()
        assert header["kind"] == page.kinds["control answer"] and not rest, header
        assert header["generation"] == self.control_generation and header["slot"] == page.control_slot, header


# ---- As much of Cap'n Proto as a struct with one pointer to bytes takes (capnproto.org/encoding.html).


def struct_of_bytes(data):
    """The one segment of a message whose root has no data and one pointer, to `data`."""
    return struct.pack("<QII", 1 << 48, 1, len(data) << 3 | 2) + data + b"\0" * (-len(data) % 8)


def bytes_of_struct(segments, pointer=0):
    """The bytes that a pointer of the root leads to."""

    def word(segment, index):
        return struct.unpack_from("<Q", segments[segment], 8 * index)[0]

    def follow(segment, index):
        """(segment, index, pointer) that a pointer stands for, beyond far pointers."""
        at = word(segment, index)
        if at & 3 != 2:
            return segment, index, at
        target, pad = at >> 32, at >> 3 & 0x1FFFFFFF
        if at & 4 == 0:
            return target, pad, word(target, pad)
        # Two words: where the content is, and what it is.
        content = word(target, pad)
        return content >> 32, (content >> 3 & 0x1FFFFFFF) - 1, word(target, pad + 1) & ~0xFFFFFFFC

    def content_of(index, at):
        offset = at >> 2 & 0x3FFFFFFF
        return index + 1 + (offset - (1 << 30) if offset >> 29 else offset)

    segment, index, root = follow(0, 0)
    assert root & 3 == 0, "the root is no struct"
    if root >> 48 <= pointer:
        return b""
    segment, index, at = follow(segment, content_of(index, root) + (root >> 32 & 0xFFFF) + pointer)
    if at == 0:
        return b""
    assert at & 3 == 1 and at >> 32 & 7 == 2, "no list of bytes"
    start = 8 * content_of(index, at)
    return segments[segment][start : start + (at >> 35)]
