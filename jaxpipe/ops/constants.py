"""Weights that a traced function closes over, packed once: options(pack_constants=True).

In: the operands of a product. Out: the weight, or what `prepack` makes of it. An entry belongs to
one array object, which JAX never changes, and goes with it: no entry can be stale. What the cache
holds is bounded by JAXPIPE_PACKED_MB; programs keep what they were compiled with. It must not know
primitives.
"""

from __future__ import annotations

import threading
import weakref
from collections import OrderedDict
from typing import Any

import jax
import jax.numpy as jnp

from jaxpipe import settings
from jaxpipe.ops import packing
from jaxpipe.ops.options import Options
from jaxpipe.ops.packing import Packed


class Cache:
    """Packed forms of living arrays, least recently used first."""

    def __init__(self) -> None:
        self._entries: OrderedDict[int, tuple[Any, Packed]] = OrderedDict()
        self._lock = threading.Lock()

    @property
    def bytes(self) -> int:
        """What the packed arrays take."""
        entries = list(self._entries.values())  # an array may die, and its entry go, meanwhile
        return sum(packed.data.nbytes for _, packed in entries)

    def packed(self, w: Any, limit_bytes: int) -> Any:
        """The packed form of array w, or w itself when that alone exceeds the limit."""
        with self._lock:
            if (entry := self._entries.get(id(w))) is not None and entry[0]() is w:
                self._entries.move_to_end(id(w))
                return entry[1]
        with jax.ensure_compile_time_eval():
            made = packing.prepack(w)
        if made.data.nbytes > limit_bytes:
            return w
        with self._lock:
            self._entries[id(w)] = (weakref.ref(w, self._forget(id(w))), made)
            while self.bytes > limit_bytes:
                self._entries.popitem(last=False)
        return made

    def _forget(self, key: int) -> Any:
        """Drops the entry when its array dies, before the id can name another."""
        return lambda dead: self._entries.pop(key, None)


CACHE = Cache()


def weight(x: Any, w: Any, options: Options) -> Any:
    """w, packed where it is a constant of a function that is being traced and options say so."""
    is_constant = isinstance(x, jax.core.Tracer) and not isinstance(w, jax.core.Tracer | Packed)
    if not (options.pack_constants and is_constant and w.ndim == 2):
        return w
    known = jnp.dtype(w.dtype).name in packing.words()[1] and w.is_fully_addressable
    if not known or len(w.devices()) != 1 or w.is_deleted():
        return w
    return CACHE.packed(w, settings.whole("JAXPIPE_PACKED_MB") << 20)
