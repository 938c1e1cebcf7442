"""The types of elements: the library's type behind each, and its names in buffers and DLPack.

A boolean is a byte of 0 or 1, and only operations that keep it one reduce it. A complex number is a pair of
floats, and its sum has the sums of the parts. What is not in TYPES (records, dates) is moved as bytes.
"""

import enum
from typing import NamedTuple


class Op(enum.IntEnum):
    """What a reduction does with the elements of two ranks."""

    SUM = 0
    PROD = 1
    MAX = 2
    MIN = 3
    AVG = 4
    AND = 6
    OR = 7
    XOR = 8


OPS = frozenset(Op)
OF_BOOL = frozenset((Op.MAX, Op.MIN, Op.AND, Op.OR, Op.XOR))
OF_COMPLEX = frozenset((Op.SUM, Op.AVG))


class Type(NamedTuple):
    """`code` is the library's; `unit`: how many of the library's elements make one; `ops`: the operations
    that Python lets through. The library refuses some of them for some types."""

    name: str
    code: int
    bytes: int
    unit: int = 1
    ops: frozenset[Op] = OPS


TYPES = {
    one.name: one
    for one in (
        Type("int8", 0, 1),
        Type("uint8", 1, 1),
        Type("int16", 12, 2),
        Type("uint16", 13, 2),
        Type("int32", 2, 4),
        Type("uint32", 3, 4),
        Type("int64", 4, 8),
        Type("uint64", 5, 8),
        Type("float16", 6, 2),
        Type("float32", 7, 4),
        Type("float64", 8, 8),
        Type("bfloat16", 9, 2),
        Type("float8_e4m3fn", 10, 1),
        Type("float8_e5m2", 11, 1),
        Type("bool", 1, 1, ops=OF_BOOL),
        Type("complex64", 7, 8, 2, OF_COMPLEX),
        Type("complex128", 8, 16, 2, OF_COMPLEX),
    )
}


def opaque(name: str, size: int) -> Type:
    """A type that is only moved."""
    return Type(name, TYPES["uint8"].code, size, size, frozenset())


_KINDS = {**dict.fromkeys("bhilqn", "int"), **dict.fromkeys("BHILQN", "uint"), **dict.fromkeys("efd", "float")}
_NAMES = {"?": "bool", "Zf": "complex64", "Zd": "complex128"}  # Z: as NumPy says it.


def of_format(text: str, size: int) -> Type:
    """The type of a format of Python's buffers (`struct`). Numbers of the other byte order are only moved."""
    letter = text.lstrip("@=<")
    known = TYPES.get(_NAMES.get(letter) or f"{_KINDS.get(letter, '?')}{8 * size}")
    return opaque(f"format '{text}'", size) if known is None else known
