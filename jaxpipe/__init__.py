"""jaxpipe: pipelined matrix products and convolutions for JAX."""

from jaxpipe.accelerate import accelerate
from jaxpipe.doctor import doctor
from jaxpipe.ops.conv import conv_general_dilated
from jaxpipe.ops.coverage import coverage
from jaxpipe.ops.dot import dot_general, einsum
from jaxpipe.ops.export import EXPORT_CHECKS
from jaxpipe.ops.options import options
from jaxpipe.ops.packing import Packed, prepack
from jaxpipe.ops.products import conv, dot
from jaxpipe.ops.quantized import quantized_dot
from jaxpipe.ops.scales import quantize
from jaxpipe.version import VERSION as __version__

__all__ = [
    "EXPORT_CHECKS",
    "Packed",
    "__version__",
    "accelerate",
    "conv",
    "conv_general_dilated",
    "coverage",
    "doctor",
    "dot",
    "dot_general",
    "einsum",
    "options",
    "prepack",
    "quantize",
    "quantized_dot",
]
