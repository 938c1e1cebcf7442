"""What elements the library knows, and how NumPy, buffers and DLPack call them.

Only elements that the library knows can be reduced. All others (complex numbers, records, dates) are moved
as bytes.
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


class Type(NamedTuple):
    """`code` is the library's; `unit`: how many elements of the library's one element is; `arithmetic`: whether
    all operations make sense. Booleans are bytes with 0 or 1, so the operations that can't leave these work."""

    name: str
    code: int
    bytes: int
    unit: int = 1
    arithmetic: bool = True


TYPES = {
    one.name: one
    for one in (
        Type("int8", 0, 1),
        Type("uint8", 1, 1),
        Type("int16", 12, 2),
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
        Type("bool", 1, 1, arithmetic=False),
    )
}
OPS = frozenset(Op)
OF_BOOL = frozenset((Op.MAX, Op.MIN, Op.AND, Op.OR, Op.XOR))


def opaque(name: str, size: int) -> Type:
    """A type that is only moved."""
    return Type(name, TYPES["uint8"].code, size, size, False)


_KINDS = {**dict.fromkeys("bhilqn", "int"), **dict.fromkeys("BHILQN", "uint"), **dict.fromkeys("efd", "float")}


def of_format(text: str, size: int) -> Type:
    """The type of a format of Python's buffers (`struct`). Numbers of the other byte order are only moved."""
    letter = text.lstrip("@=<")
    if letter == "?":
        return TYPES["bool"]
    known = TYPES.get(f"{_KINDS.get(letter, '?')}{8 * size}")
    return opaque(f"format '{text}'", size) if known is None else known
