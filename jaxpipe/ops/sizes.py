"""Problems of calls whose sizes are known only when they run (`jax.export.symbolic_shape`).

In: sizes, some symbolic. Out: a Matmul or Conv2d with numbers in their place, for which a schedule
is chosen, and `dynamic` saying which they are; the executors read the true ones from the call's
buffers. It must not know specs or executors.
"""

from __future__ import annotations

from typing import Any

from jaxpipe.ops.fold import is_known, nominal
from jaxpipe.problem import Conv2d, Matmul


def matmul(m: int, n: int, k: int, batch: tuple[int, ...] = (), **words: Any) -> Matmul:
    """The product of these sizes; symbolic ones are dynamic."""
    sizes = {"m": m, "n": n, "k": k} | {f"batch{i}": size for i, size in enumerate(batch)}
    return Matmul(
        nominal(m), nominal(n), nominal(k), tuple(map(nominal, batch)),
        dynamic=tuple(name for name, size in sizes.items() if not is_known(size)), **words,
    )  # fmt: skip


def conv2d(batch: int, **words: Any) -> Conv2d:
    """The convolution of `batch` images, dynamic where their number is symbolic."""
    dynamic = () if is_known(batch) else ("batch",)
    return Conv2d(nominal(batch), dynamic=dynamic, **words)
