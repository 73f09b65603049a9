"""jaxpipe: pipelined matrix products and convolutions for JAX."""

from jaxpipe.ops.coverage import coverage
from jaxpipe.ops.dot import dot_general, einsum
from jaxpipe.ops.fused import dot
from jaxpipe.ops.options import options
from jaxpipe.version import VERSION as __version__

__all__ = [
    "__version__",
    "coverage",
    "dot",
    "dot_general",
    "einsum",
    "options",
]
