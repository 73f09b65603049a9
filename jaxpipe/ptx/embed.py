"""Interpreted kernels as attributes of a custom call: what csrc/ffi/interpret.cc reads.

In: a CompiledKernel. Out: its encoded programs as bytes (one a launch, in order) and the mode. A
program depends on the PTX alone, so it may be cached and exported; it must not know JAX.
"""

from __future__ import annotations

import functools

import numpy as np

from jaxpipe import settings
from jaxpipe.errors import SettingError
from jaxpipe.kernel import CompiledKernel
from jaxpipe.ptx.encode import encode
from jaxpipe.ptx.parse import parse
from jaxpipe.ptx.run import LANDINGS, ORDERS, Mode


def attributes(compiled: CompiledKernel) -> dict[str, object]:
    """Attributes of one call, in the mode that JAXPIPE_INTERPRET_MODE and _CHECKS ask for."""
    mode = mode_of_settings()
    return {
        "program": programs(compiled),
        "landing": np.int64(LANDINGS.index(mode.landing)),
        "order": np.int64(ORDERS.index(mode.order)),
        "seed": np.int64(mode.seed),
        "checks": np.int64(bool(settings.get("JAXPIPE_INTERPRET_CHECKS"))),
    }


def mode_of_settings() -> Mode:
    """The Mode of JAXPIPE_INTERPRET_MODE, written `landing,order,seed`."""
    text = str(settings.get("JAXPIPE_INTERPRET_MODE"))
    landing, order, seed = (*(part.strip() for part in text.split(",")), "", "", "")[:3]
    if landing not in LANDINGS or order not in ORDERS or not seed.isdigit():
        raise SettingError(
            f"JAXPIPE_INTERPRET_MODE={text!r}: write landing,order,seed with a landing of "
            f"{LANDINGS}, an order of {ORDERS} and a whole number"
        )
    return Mode(LANDINGS[LANDINGS.index(landing)], ORDERS[ORDERS.index(order)], int(seed))


@functools.lru_cache(maxsize=64)
def programs(compiled: CompiledKernel) -> np.ndarray:
    """The serialised programs of all launches, one after another, as uint8."""
    module = parse(compiled.ptx)
    parts = [encode(module, launch.entry).serialize() for launch in compiled.kernel.launches]
    return np.frombuffer(b"".join(parts), np.uint8)
