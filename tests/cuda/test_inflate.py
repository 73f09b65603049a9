"""The extension's own inflate against zlib: same bytes, and damage is an error."""

import contextlib
import random
import zlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxpipe import _native

LIMIT = 1 << 24
PARTS = st.sampled_from([b"mma.sync", b"\0" * 64, b"ld.shared", b"\xff"])
BINARIES = st.one_of(st.binary(max_size=3000), st.lists(PARTS, max_size=400).map(b"".join))
LEVELS = st.integers(0, 9)


@given(
    BINARIES, LEVELS, st.sampled_from([zlib.Z_DEFAULT_STRATEGY, zlib.Z_FIXED, zlib.Z_HUFFMAN_ONLY])
)
@settings(max_examples=200, deadline=None)
def test_every_block_type_is_read_back(data: bytes, level: int, strategy: int) -> None:
    packer = zlib.compressobj(level, strategy=strategy)
    assert _native.inflate(packer.compress(data) + packer.flush(), LIMIT) == data


def test_a_large_binary_is_read_back() -> None:
    words = [random.Random(0).randbytes(16) for _ in range(500)]
    data = b"".join(random.Random(1).choices(words, k=60_000))
    assert _native.inflate(zlib.compress(data, 9), LIMIT) == data


@given(BINARIES.filter(lambda b: len(b) > 20), st.data())
@settings(max_examples=200, deadline=None)
def test_a_cut_stream_is_refused(data: bytes, draw: st.DataObject) -> None:
    packed = zlib.compress(data)
    cut = draw.draw(st.integers(0, len(packed) - 1))
    with pytest.raises(ValueError, match="zlib stream"):
        _native.inflate(packed[:cut], LIMIT)


@given(BINARIES.filter(lambda b: len(b) > 20), st.data())
@settings(max_examples=400, deadline=None)
def test_a_flipped_bit_is_refused_or_harmless(data: bytes, draw: st.DataObject) -> None:
    packed = bytearray(zlib.compress(data))
    bit = draw.draw(st.integers(16, 8 * len(packed) - 1))
    packed[bit // 8] ^= 1 << bit % 8
    with contextlib.suppress(ValueError):
        assert _native.inflate(bytes(packed), LIMIT) == data


def test_output_beyond_the_limit_is_refused() -> None:
    packed = zlib.compress(b"\0" * 5000)
    with pytest.raises(ValueError, match="more than 4999"):
        _native.inflate(packed, 4999)
    assert _native.inflate(packed, 5000) == b"\0" * 5000
