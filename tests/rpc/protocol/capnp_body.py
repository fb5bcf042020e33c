"""The words of a message of Cap'n Proto (capnproto.org/encoding.html), without its schema."""

import collections


class Malformed(Exception):
    """It is no message, or one with bits behind the last element of a list."""


class Body:
    """walk() finds the words that pointers lead to: (segment, index) each, in `reached`."""

    def __init__(self, segments):
        self.segments = segments
        self.reached = set()

    def walk(self):
        pointers = collections.deque([(0, 0)] if self.segments and self.segments[0] else [])
        while pointers:
            pointers.extend(self._follow(*pointers.popleft()))

    def _word(self, segment, index):
        self.reached.add((segment, index))
        if index < 0 or 8 * index + 8 > len(self.segments[segment]):
            raise Malformed(f"word {index} of segment {segment}, which has {len(self.segments[segment])} bytes")
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
        if pointer & 3 != 1:
            raise Malformed(f"a pointer to a capability: {pointer:#x}")
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
            if last >> bits % 64 != 0:
                raise Malformed(f"behind a list of {count} elements: {last:#x}")
        return []

    def _struct(self, segment, at, pointer):
        data, pointers = pointer >> 32 & 0xFFFF, pointer >> 48
        self.reached.update((segment, at + i) for i in range(data))
        return [(segment, at + data + i) for i in range(pointers)]
