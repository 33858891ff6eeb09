"""The codec: every frame survives a round trip; all other bytes are a GarbledError."""

from __future__ import annotations

import json
import tracemalloc
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from policies.remote.frames import (
    DTYPES,
    MAGIC,
    MOST_ARRAYS,
    MOST_HEADER_BYTES,
    PREFIX,
    Frame,
    GarbledError,
    decode,
    encode,
    shown,
)

MOST = 1 << 20  # bytes of arrays
NAMES = st.text(st.characters(codec="utf-8", categories=("L", "N", "P")), min_size=1, max_size=20)
LEAVES = (
    st.none()
    | st.booleans()
    | st.integers(-(2**62), 2**62)
    | st.floats(allow_nan=False, allow_infinity=False)
)
JSON = st.recursive(
    LEAVES | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
ARRAYS = npst.arrays(
    st.sampled_from(sorted(DTYPES)).map(np.dtype),
    npst.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4),
)
FRAMES = st.builds(
    Frame,
    NAMES,
    st.dictionaries(st.text(max_size=8), JSON, max_size=4),
    st.dictionaries(NAMES, ARRAYS, max_size=4),
)


def packed(frame: Frame) -> bytes:
    return b"".join(encode(frame))


def raw(header: Any, arrays: bytes = b"", announced: int | None = None) -> bytes:
    """Frame with a header that `encode` would not write."""
    words = header if isinstance(header, bytes) else json.dumps(header).encode()
    return PREFIX.pack(MAGIC, len(words), len(arrays) if announced is None else announced) + words + arrays


def header_of(**changes: Any) -> dict[str, Any]:
    entry = {"name": "x", "dtype": "float32", "shape": [1]} | changes
    return {"kind": "k", "meta": {}, "arrays": [entry]}


@settings(max_examples=100, deadline=None)
@given(FRAMES)
def test_every_frame_survives(frame: Frame) -> None:
    """Kind, meta and arrays come back with their bits, NaN included, types and shapes."""
    back = decode(packed(frame), MOST)
    assert (back.kind, back.meta) == (frame.kind, frame.meta)
    assert list(back.arrays) == list(frame.arrays)
    for name, array in frame.arrays.items():
        assert back.arrays[name].shape == array.shape
        assert back.arrays[name].dtype == array.dtype
        assert back.arrays[name].tobytes() == array.tobytes()


def test_arrays_of_any_layout_are_sent_in_c_order() -> None:
    """A transposed view and an array of the other byte order arrive as the same numbers."""
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    for other in (array.T, array[:, ::2], array.astype(">f4")):
        assert np.array_equal(decode(packed(Frame("k", {}, {"x": other})), MOST).arrays["x"], other)


@settings(max_examples=120, deadline=None)
@given(FRAMES, st.data())
def test_damaged_frames_are_frames_or_refused(frame: Frame, data: st.DataObject) -> None:
    """Cut, extended or with changed bytes: never another exception."""
    good = bytearray(packed(frame))
    where = data.draw(st.integers(0, len(good) - 1))
    kind = data.draw(st.sampled_from(("cut", "longer", "changed")))
    if kind == "changed":
        good[where] = data.draw(st.integers(0, 255))
    bad = bytes(good[:where]) if kind == "cut" else bytes(good) + b"\0" * (kind == "longer")
    try:
        decode(bad, MOST)
    except GarbledError:
        return
    assert kind == "changed"


@settings(max_examples=120, deadline=None)
@given(st.binary(max_size=200))
def test_random_bytes_are_refused(data: bytes) -> None:
    """Behind a valid prefix, too."""
    for bad in (data, raw(data)):
        with pytest.raises(GarbledError):
            decode(bad, MOST)


BAD_HEADERS = {
    "no object": [1, 2],
    "further key": {"kind": "k", "meta": {}, "arrays": [], "code": ""},
    "meta is a list": {"kind": "k", "meta": [], "arrays": []},
    "arrays is an object": {"kind": "k", "meta": {}, "arrays": {}},
    "empty kind": {"kind": "", "meta": {}, "arrays": []},
    "control characters": {"kind": "a\x1b[2J", "meta": {}, "arrays": []},
    "pickled objects": header_of(dtype="object"),
    "half precision": header_of(dtype="float16"),
    "structured type": header_of(dtype=[["a", "float32"]]),
    "byte order in the type": header_of(dtype=">f4"),
    "no type": header_of(dtype=None),
    "negative side": header_of(shape=[-1]),
    "sides whose product overflows": header_of(shape=[2**24, 2**24, 2**24]),
    "huge side": header_of(shape=[2**62]),
    "no numbers, but huge other sides": {
        "kind": "k",
        "meta": {},
        "arrays": [header_of()["arrays"][0], {"name": "y", "dtype": "uint8", "shape": [0, *[2**24] * 4]}],
    },
    "side that is a float": header_of(shape=[1.0]),
    "side that is true": header_of(shape=[True]),
    "side that is a text": header_of(shape=["1"]),
    "side that is missing": header_of(shape=[None]),
    "many axes": header_of(shape=[1] * 9),
    "shape that is a number": header_of(shape=1),
    "name that is long": header_of(name="n" * 1000),
    "name that is a number": header_of(name=1),
    "two arrays of one name": {"kind": "k", "meta": {}, "arrays": [*header_of(shape=[0])["arrays"]] * 2},
    "too many arrays": {"kind": "k", "meta": {}, "arrays": [{}] * (MOST_ARRAYS + 1)},
}
BAD_WORDS = {
    "NaN shape": b'{"kind":"k","meta":{},"arrays":[{"name":"x","dtype":"float32","shape":[NaN]}]}',
    "infinity": b'{"kind":"k","meta":{"a":Infinity},"arrays":[]}',
    "beyond floats": b'{"kind":"k","meta":{"a":1e999},"arrays":[]}',
    "6,000 digits": b'{"kind":"k","meta":{"a":' + b"9" * 6000 + b'},"arrays":[]}',
    "6,000 digits of a side": b'{"kind":"k","meta":{},"arrays":[{"name":"x","dtype":"uint8","shape":['
    + b"9" * 6000
    + b"]}]}",
    "nested 100,000 deep": b'{"kind":"k","meta":' + b"[" * 100_000 + b"]" * 100_000 + b',"arrays":[]}',
    "key twice": b'{"kind":"k","kind":"l","meta":{},"arrays":[]}',
    "not UTF-8": b'{"kind":"\xff","meta":{},"arrays":[]}',
    "UTF-16": '{"kind":"k","meta":{},"arrays":[]}'.encode("utf-16"),
}


@pytest.mark.parametrize(
    "header", [*BAD_HEADERS.values(), *BAD_WORDS.values()], ids=[*BAD_HEADERS, *BAD_WORDS]
)
def test_hostile_headers_are_refused(header: Any) -> None:
    """The message is printable, and short enough for a terminal."""
    with pytest.raises(GarbledError) as caught:
        decode(raw(header, b"\0" * 4), MOST)
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 600


def test_nothing_is_allocated_for_announced_sizes() -> None:
    """A header may announce at most 1 MiB and the arrays what the caller allows, with every byte accounted
    for.
    """
    huge = (
        PREFIX.pack(MAGIC, MOST_HEADER_BYTES + 1, 0),
        PREFIX.pack(MAGIC, 2**32 - 1, 2**64 - 1),
        PREFIX.pack(MAGIC, 2, MOST + 1),
        raw(header_of(shape=[2**24, 2**10]), announced=4),
        raw(header_of(shape=[2**24, 2**10]), announced=2**36),
    )
    tracemalloc.start()
    try:
        for bad in huge:
            with pytest.raises(GarbledError):
                decode(bad, MOST)
        assert tracemalloc.get_traced_memory()[1] < 1 << 18
    finally:
        tracemalloc.stop()


def test_other_types_are_not_sent() -> None:
    for array in (np.zeros(2, np.complex64), np.array([{}]), np.array(["a"]), np.zeros(2, np.uint64)):
        with pytest.raises(GarbledError, match="frames hold float32"):
            encode(Frame("k", {}, {"x": array}))


def test_text_of_a_peer_cannot_steer_the_terminal() -> None:
    assert shown("a\x1b]0;b\x07\nc") == "a?]0;b??c"
    assert len(shown("x" * 10_000)) < 500
