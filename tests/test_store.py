"""What is kept to be found by its contents: the hash, and the store."""

from __future__ import annotations

import ctypes
import itertools
import math
import random
import re
import subprocess
import threading
from collections.abc import Iterator
from ctypes import c_char
from pathlib import Path

import pytest

from tests import sdgen_native as native
from tests.sdgen_native import REPOSITORY, Level

BLOCK, LINE = 1024, 64  # bytes that the hash, and its kernel, take at a time
HEADER = 64  # bytes kept beside each array
BUSY, IDLE = 8, 32  # ticks
MASK = 2**64 - 1

# ---- the hash ----


def hash_of(data: bytes, offset: int = 0, level: Level = Level.C) -> int:
    memory = (c_char * (len(data) + offset + LINE))()
    start = ctypes.addressof(memory) + -ctypes.addressof(memory) % LINE + offset
    ctypes.memmove(start, data, len(data))
    return rows_hash(start, 1, len(data), 0, level)


def rows_hash(data: bytes | int, rows: int, row_bytes: int, stride: int, level: Level = Level.C) -> int:
    made: native.Hash = native.sdgen_hash(native.sdgen_kernels(level), data, rows, row_bytes, stride)
    return made.value


def secrets(count: int) -> Iterator[int]:
    """splitmix64, from 0."""
    for i in range(1, count + 1):
        z = i * 0x9E3779B97F4A7C15 & MASK
        z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & MASK
        z = (z ^ z >> 27) * 0x94D049BB133111EB & MASK
        yield z ^ z >> 31


def exact_nh(block: bytes, s: list[int]) -> list[int]:
    """What the kernel makes of a block."""
    words = [int.from_bytes(block[i : i + 8], "little") for i in range(0, len(block), 8)]
    half = 2**32
    return [
        sum((a + b) % half * ((a // half + b // half) % half) for a, b in zip(words, s[p * LINE // 8 :], strict=False))
        & MASK
        for p in range(4)
    ]


def exact_hash(rows: list[bytes]) -> int:
    """By whole numbers: modulo 2^127 - 1."""
    *s, low, high = secrets((BLOCK + 3 * LINE) // 8 + 2)
    k = (high >> 2) << 64 | low
    coefficients = []
    for row in rows:
        for start in range(0, len(row), BLOCK):
            block = row[start : start + BLOCK]
            sums = exact_nh(block + bytes(-len(block) % LINE), s)
            coefficients += [(sums[p + 1] >> 2) << 64 | sums[p] for p in (0, 2)]
    h = 0
    for coefficient in (*coefficients, len(rows[0]) << 64 | len(rows), 0):
        h = (h * k + coefficient) % (2**127 - 1)
    return h


@pytest.mark.parametrize("size", [0, 1, 7, 8, 15, 16, 17, 100, BLOCK - 1, BLOCK, BLOCK + 1, 5 * BLOCK + 24])
def test_hash_is_the_polynomial(size: int) -> None:
    data = random.Random(size).randbytes(size)
    for level in native.native_levels():
        assert hash_of(data, level=level) % (2**127 - 1) == exact_hash([data])


@pytest.mark.parametrize("size", [1, 16, 100, BLOCK, 3 * BLOCK + 40])
def test_hash_is_the_same_wherever_data_lies(size: int) -> None:
    data = random.Random(size).randbytes(size)
    assert len({hash_of(data, offset) for offset in range(17)}) == 1


@pytest.mark.parametrize("row_bytes", [6, 64, 100, BLOCK + 8])
def test_hash_is_the_same_for_every_stride(row_bytes: int) -> None:
    chance = random.Random(row_bytes)
    rows = [chance.randbytes(row_bytes) for _ in range(5)]
    hashes = set()
    for gap in (0, 1, 64):
        data = b"".join(row + chance.randbytes(gap) for row in rows)
        hashes.add(rows_hash(data, 5, row_bytes, row_bytes + gap))
    backwards = b"".join(reversed(rows))
    memory = ctypes.create_string_buffer(backwards, len(backwards))
    hashes.add(rows_hash(ctypes.addressof(memory) + 4 * row_bytes, 5, row_bytes, -row_bytes))
    assert len(hashes) == 1
    assert hashes.pop() % (2**127 - 1) == exact_hash(rows)


def test_hash_tells_rows_from_bytes() -> None:
    """The same bytes, cut into other rows."""
    data = random.Random(0).randbytes(4 * BLOCK)
    cuts = [(1, 4 * BLOCK), (2, 2 * BLOCK), (4, BLOCK), (8, BLOCK // 2)]
    assert len({rows_hash(data, rows, size, size) for rows, size in cuts}) == len(cuts)


@pytest.mark.parametrize("size", [1, 16, 33, BLOCK, 2 * BLOCK + 20])
@pytest.mark.parametrize("zeros", [False, True])
def test_every_bit_changes_about_half_of_the_hash(size: int, zeros: bool) -> None:
    data = bytes(size) if zeros else random.Random(size).randbytes(size)
    whole, number = hash_of(data), int.from_bytes(data, "little")
    changed = []
    for bit in range(8 * size):
        other = hash_of((number ^ 1 << bit).to_bytes(size, "little"))
        assert other != whole
        changed.append((other ^ whole).bit_count())
    # Each of 127 bits with a chance of a half, of standard deviation 5.6; the mean's is no more than that of eight.
    assert abs(sum(changed) / len(changed) - 63.5) < 4 * 5.6 / math.sqrt(8)
    assert min(changed) > 63.5 - 7 * 5.6


def test_no_two_small_inputs_have_the_same_hash() -> None:
    inputs = {bytes(size) for size in range(2000)}
    inputs |= {i.to_bytes(size, "little") for size in (4, 8, 40) for i in range(20000)}
    inputs |= {(1 << bit).to_bytes(600, "little") for bit in range(4800)}
    inputs |= {(3 << bit).to_bytes(600, "little") for bit in range(4798)}
    hashes = [hash_of(data) for data in inputs]
    assert len(set(hashes)) == len(inputs)
    # Even the 40 bits that follow any place are the same in few pairs: n^2 / 2 / 2^40 of them, 0.004 and at most 3.
    for shift in (0, 30, 64, 87):
        assert len({value >> shift & (1 << 40) - 1 for value in hashes}) >= len(inputs) - 3


def test_without_numbers_of_128_bits(tmp_path: Path) -> None:
    """As compilers without them see it."""
    cache = (native.LIBRARIES / "CMakeCache.txt").read_text()
    found = re.search(r"^CMAKE_C_COMPILER:\w+=(.*)$", cache, re.MULTILINE)
    assert found
    runtime, library = REPOSITORY / "runtime", tmp_path / "hash.so"
    options = ["-U__SIZEOF_INT128__", f"-I{runtime}", f"-I{runtime / 'include'}", "-O1", "-shared", "-fPIC"]
    subprocess.run([found[1], *options, str(runtime / "hash.c"), "-o", str(library)], check=True)
    other = ctypes.CDLL(str(library)).sdgen_hash
    other.restype, other.argtypes = native.sdgen_hash.restype, native.sdgen_hash.argtypes
    for size in (0, 1, 100, 5 * BLOCK):
        for data in (random.Random(size).randbytes(size), b"\xff" * size, bytes(size)):
            assert other(native.sdgen_kernels(Level.C), data, 1, size, 0).value == hash_of(data)


def test_words_that_change_places_change_the_hash() -> None:
    chance = random.Random(3)
    words = [chance.randbytes(8) for _ in range(2 * BLOCK // 8)]
    pairs = list(itertools.combinations(range(0, len(words), 3), 2))
    hashes = {hash_of(b"".join(words))}
    for i, j in pairs:
        swapped = words.copy()
        swapped[i], swapped[j] = words[j], words[i]
        hashes.add(hash_of(b"".join(swapped)))
    assert len(hashes) == 1 + len(pairs)


# ---- the store ----


class Store:
    """Arrays of one byte, repeated, by the name of a number."""

    def __init__(self, most: int) -> None:
        self.at = native.sdgen_store_new(most)
        assert self.at

    @staticmethod
    def key(name: int) -> native.Hash:
        return native.Hash((name, name * 7))

    def tick(self, count: int = 1) -> None:
        for _ in range(count):
            native.sdgen_store_tick(self.at)

    def find(self, name: int) -> int | None:
        found: int | None = native.sdgen_store_find(self.at, self.key(name))
        return found

    def begin(self, name: int, size: int) -> int | None:
        made: int | None = native.sdgen_store_add(self.at, self.key(name), size)
        if made:
            assert made % LINE == 0
            ctypes.memset(made, name % 256, size)
        return made

    def release(self, array: int) -> None:
        native.sdgen_store_release(self.at, array)

    def publish(self, array: int) -> None:
        native.sdgen_store_publish(self.at, array)

    def add(self, name: int, size: int) -> bool:
        array = self.begin(name, size)
        if array:
            self.publish(array)
            self.release(array)
        return array is not None

    def has(self, name: int, size: int) -> bool:
        array = self.find(name)
        if array:
            assert ctypes.string_at(array, size) == bytes([name % 256]) * size
            self.release(array)
        return array is not None

    @property
    def counts(self) -> native.StoreCounts:
        counts: native.StoreCounts = native.sdgen_store_counts(self.at)
        return counts


SIZE = 1000
EACH = HEADER + 1024


@pytest.fixture
def store() -> Iterator[Store]:
    """One of room for three."""
    made = Store(3 * EACH)
    yield made
    native.sdgen_store_free(made.at)


def test_what_is_added_is_found(store: Store) -> None:
    assert not store.has(1, SIZE)
    assert store.add(1, SIZE)
    assert store.has(1, SIZE)
    counts = store.counts
    assert (counts.bytes, counts.arrays, counts.found, counts.added) == (EACH, 1, 1, 1)


def test_what_is_not_published_is_not_found(store: Store) -> None:
    array = store.begin(1, SIZE)
    assert array and store.find(1) is None
    assert store.begin(1, SIZE) is None, "it is being made"
    store.release(array)
    assert store.counts.arrays == 0
    assert store.add(1, SIZE) and store.has(1, SIZE)
    assert store.begin(1, SIZE) is None, "it is there"
    assert store.counts.turned_away == 0


def test_the_one_used_longest_ago_goes_first(store: Store) -> None:
    for name in (1, 2, 3):
        assert store.add(name, SIZE)
        store.tick()
    assert store.has(1, SIZE)
    store.tick(BUSY - 1)
    assert store.add(4, SIZE)
    assert [store.has(name, SIZE) for name in (1, 2, 3, 4)] == [True, False, True, True]


def test_what_was_used_lately_does_not_go(store: Store) -> None:
    for name in (1, 2, 3):
        assert store.add(name, SIZE)
    for _ in range(5 * BUSY):
        store.tick()
        assert [store.has(name, SIZE) for name in (1, 2, 3)] == [True] * 3
        assert not store.add(4, SIZE)
    assert store.counts.turned_away == 5 * BUSY


def test_what_is_not_used_goes_by_itself(store: Store) -> None:
    assert store.add(1, SIZE) and store.add(2, SIZE)
    held = store.find(2)
    assert held
    store.tick(IDLE - 1)
    assert store.counts.arrays == 2
    store.tick()
    assert store.counts.arrays == 1 and store.counts.bytes == EACH
    assert ctypes.string_at(held, SIZE) == b"\2" * SIZE
    store.release(held)
    store.tick()
    assert store.counts.arrays == 0 and store.counts.bytes == 0


def test_what_is_in_use_does_not_go(store: Store) -> None:
    held = []
    for name in (1, 2, 3):
        store.add(name, SIZE)
        held.append(store.find(name))
    store.tick(2 * IDLE)
    assert not store.add(4, SIZE)
    for name, array in enumerate(held, 1):
        assert array and ctypes.string_at(array, SIZE) == bytes([name]) * SIZE
    assert held[1]
    store.release(held[1])
    assert store.add(4, SIZE)
    assert store.find(2) is None
    for array in (held[0], held[2]):
        assert array
        store.release(array)


@pytest.mark.parametrize("size", [3 * EACH - HEADER + 1, 3 * EACH, MASK - 10, MASK])
def test_what_is_too_large_is_turned_away(store: Store, size: int) -> None:
    assert store.add(1, SIZE)
    store.tick(BUSY)
    assert native.sdgen_store_add(store.at, store.key(2), size) is None
    assert store.has(1, SIZE) and store.counts.turned_away == 1


def test_room(store: Store) -> None:
    def has_room(size: int) -> bool:
        room: bool = native.sdgen_store_has_room(store.at, size)
        return room

    assert has_room(3 * EACH - HEADER) and not has_room(3 * EACH - HEADER + 1) and not has_room(MASK)
    for name in (1, 2, 3):
        store.add(name, SIZE)
        assert has_room(SIZE) == (name < 3)
    store.tick(BUSY - 1)
    held = store.find(1)
    assert held and not has_room(0)
    store.tick()
    assert has_room(2 * EACH - HEADER) and not has_room(2 * EACH - HEADER + 1)
    assert store.counts.arrays == 3, "nothing is given up for a question"
    assert store.begin(4, 2 * EACH - HEADER) and store.counts.arrays == 2
    store.release(held)


def test_no_room_at_all() -> None:
    store = Store(0)
    assert not store.add(1, 1) and not store.add(2, 0)
    native.sdgen_store_free(store.at)


def test_no_memory() -> None:
    """Where the system has none, nothing is kept."""
    store = Store(MASK)
    assert native.sdgen_store_add(store.at, store.key(1), 1 << 60) is None
    assert store.add(2, SIZE) and store.has(2, SIZE)
    native.sdgen_store_free(store.at)


def test_many_in_a_bucket() -> None:
    """The same last bits of the first words."""
    store = Store(1 << 20)
    names = [1 + (i << 20) for i in range(200)]
    assert all(store.add(name, 8) for name in names)
    assert all(store.has(name, 8) for name in names)
    assert not store.has(1 + (200 << 20), 8)
    store.tick(IDLE)
    assert store.counts.arrays == 0
    native.sdgen_store_free(store.at)


def test_several_threads() -> None:
    """What is found is whole, whatever the others do."""
    store = Store(20 * EACH)
    wrong: list[str] = []

    def hammer(seed: int) -> None:
        chance = random.Random(seed)
        for _ in range(3000):
            name, act = chance.randrange(1, 60), chance.randrange(8)
            try:
                if act == 0:
                    store.tick()
                elif act < 4:
                    store.add(name, SIZE)
                else:
                    store.has(name, SIZE)
            except AssertionError as error:
                wrong.append(str(error))
            if store.counts.bytes > 20 * EACH:
                wrong.append("more than there is room for")

    threads = [threading.Thread(target=hammer, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    store.tick(IDLE)
    assert store.counts.bytes == 0 and store.counts.found > 0
    native.sdgen_store_free(store.at)


def test_the_ticks_are_those_of_the_header() -> None:
    header = (REPOSITORY / "runtime" / "include" / "sdgen.h").read_text()
    assert f"enum {{ SDGEN_STORE_BUSY = {BUSY}, SDGEN_STORE_IDLE = {IDLE} }};" in header
