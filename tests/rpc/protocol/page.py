"""The numbers of rpc/PROTOCOL.md, read from its tables, so that a client made of them is wrong where the page is."""

import re


def _cells(line):
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def _bytes(cell):
    """The bytes of `89 48 41`, which stand between backquotes."""
    return bytes.fromhex(re.search(r"`([0-9a-f ]+)`", cell).group(1))


class Layout:
    """Fields at offsets: one table of the page whose columns are offset, bytes, field."""

    def __init__(self, rows):
        self.fields = {field: (int(offset), int(size)) for offset, size, field, *_ in rows if size != "-"}
        self.notes = {field: rest for _, _, field, *rest in rows}
        # Each begins where the one before it ends, from 0 on.
        at = 0
        for offset, size, field, *_ in rows:
            assert int(offset) == at, f"{field} is at {offset}, the fields before it end at {at}"
            at += 0 if size == "-" else int(size)
        self.size = at

    def encode(self, **values):
        out = bytearray(self.size)
        for field, value in values.items():
            offset, size = self.fields[field.replace("_", " ")]
            out[offset : offset + size] = value if isinstance(value, bytes) else value.to_bytes(size, "little")
        return bytes(out)

    def decode(self, data):
        """The fields of the first bytes of `data`. ValueError: it is too short."""
        if len(data) < self.size:
            raise ValueError(f"{len(data)} bytes, where {self.size} have {', '.join(self.fields)}")
        return {
            field: data[offset : offset + size] if size > 8 else int.from_bytes(data[offset : offset + size], "little")
            for field, (offset, size) in self.fields.items()
        }


class Page:
    def __init__(self, path):
        with open(path, encoding="utf-8") as page:
            text = page.read()
        self.tables = []
        for block in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
            head, _, *rows = block.splitlines()
            self.tables.append((_cells(head), [_cells(row) for row in rows]))
        self.example = self._example(text)
        self.rejection_example = self._rejection_example(text)

        # In the order of the page.
        handshake, rejection, tail, header, entry, request, response, metadata, operation, greeting, frame = [
            Layout(rows) for head, rows in self.tables if head[:3] == ["offset", "bytes", "field"]
        ]
        self.handshake, self.rejection, self.header, self.entry = handshake, rejection, header, entry
        self.tail = tail
        self.request, self.response, self.metadata, self.operation = request, response, metadata, operation
        self.greeting, self.frame = greeting, frame

        self.handshake_magic = _bytes(handshake.notes["magic"][0])
        self.handshake_bytes = int(re.match(r"\d+", handshake.notes["length"][0]).group())
        self.version = int(handshake.notes["version"][0])
        self.roles = self._numbers(handshake.notes["role"][0])
        self.tails = self._numbers(tail.notes["kind"][0])
        self.kinds = self._numbers(header.notes["kind"][0])
        self.control_slot = int(re.search(r"(\d+) for control", header.notes["slot"][0]).group(1))
        self.forever = int(re.search(r"(\d+) for ever", header.notes["timeout"][0]).group(1))
        self.greeting_magic = _bytes(greeting.notes["magic"][0])
        self.greeting_version = int(re.search(r"\d+", greeting.notes["version"][0]).group())
        self.greetings = self._numbers(greeting.notes["kind"][0])
        self.operations = self._names("operation", "name")
        self.frames = self._names("kind", "frame")
        self.refusals = self._names("status", "the requester's completion")
        fragment = next(row[2] for row in self._rows("kind") if row[1] == "READ response")
        self.fragment_min, self.fragment_max = map(int, re.match(r"(\d+) to (\d+),", fragment).groups())
        push = next(row[2] for row in self._rows("kind") if row[1] == "push")
        self.push_max = int(re.match(r"1 to (\d+);", push).group(1))
        self.codes = {}
        for row in self._rows("code"):
            for number, name in zip(row[::2], row[1::2]):
                if number:
                    self.codes[name] = int(number)
        self.reasons = [row[0] for row in self._rows("reason")]
        # (part, field): what is "0, not looked at", of a kind of frame or of another part.
        parts = {"handshake": handshake, "rejection": rejection, "tail": tail, "header": header, "entry": entry}
        parts |= {"request": request, "response": response, "metadata": metadata, "operation": operation}
        parts |= {"greeting": greeting, "frame": frame}
        notes = [(part, field, " ".join(rest)) for part, layout in parts.items() for field, rest in layout.notes.items()]
        for _, name, _, key, address in self._rows("kind"):
            notes += [(name, "key", key), (name, "address", address)]
        self.not_looked_at = {(part, field) for part, field, note in notes if "0, not looked at" in note}

        # What the test does not come by.
        assert handshake.size == self.handshake_bytes
        for numbers in (self.roles, self.tails, self.kinds, self.operations, self.greetings, self.frames):
            assert list(numbers.values()) == list(range(1, len(numbers) + 1)), numbers
        assert list(self.refusals.values()) == list(range(2, 2 + len(self.refusals))), self.refusals
        assert sorted(self.codes.values()) == list(range(len(self.codes))), self.codes

    def _rows(self, first_column):
        return next(rows for head, rows in self.tables if head[0] == first_column)

    def _names(self, first_column, second_column):
        head, rows = next((head, rows) for head, rows in self.tables if head[:2] == [first_column, second_column])
        return {name: int(number) for number, name, *_ in rows}

    @staticmethod
    def _numbers(cell):
        """{"request": 1, "control answer": 4} of "1 request, 4 control answer"; what follows a colon is left out."""
        return {name.strip(): int(number) for number, name in re.findall(r"(\d+) ([A-Za-z ]+?)(?=[:;,.]|$)", cell)}

    @staticmethod
    def _rejection_example(text):
        """Port, text and bytes of the rejection with a tail."""
        example = r'^A rejection that names port (\d+), with the text "(.*?)": (.*)'
        port, said, line = re.search(example, text, re.MULTILINE).groups()
        return int(port), said, bytes.fromhex(" ".join(re.findall(r"`([0-9a-f ]+)`", line)))

    @staticmethod
    def _example(text):
        """The bytes of the first block of code: pairs of digits, then three spaces and words."""
        block = re.search(r"^```\n(.*?)^```", text, re.MULTILINE | re.DOTALL).group(1)
        return b"".join(bytes.fromhex(line.split("   ")[0]) for line in block.splitlines())
