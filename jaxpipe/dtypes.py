"""Element types of operands and results, one row each. It must not know problems."""

from __future__ import annotations

from dataclasses import dataclass

from jaxpipe.errors import DtypeError


@dataclass(frozen=True, slots=True)
class DtypeInfo:
    """One element type: size in bytes, the type that its products are summed in, default result."""

    name: str
    size_bytes: int
    accumulator: str
    default_out: str
    is_float: bool


DTYPES: dict[str, DtypeInfo] = {
    d.name: d
    for d in (
        DtypeInfo("float32", 4, "float32", "float32", True),
        DtypeInfo("bfloat16", 2, "float32", "bfloat16", True),
        DtypeInfo("float16", 2, "float32", "float16", True),
        DtypeInfo("float8_e4m3fn", 1, "float32", "bfloat16", True),
        DtypeInfo("float8_e5m2", 1, "float32", "bfloat16", True),
        DtypeInfo("int8", 1, "int32", "int32", False),
        DtypeInfo("int32", 4, "int32", "int32", False),
    )
}
OPERAND_DTYPES = ("float32", "bfloat16", "float16", "float8_e4m3fn", "float8_e5m2", "int8")


def dtype_info(name: str) -> DtypeInfo:
    """The row of `name`, or DtypeError that lists what exists."""
    if name not in DTYPES:
        raise DtypeError(f"unknown dtype {name!r}: jaxpipe knows {', '.join(DTYPES)}")
    return DTYPES[name]
