"""The closed set of what our primitives compute."""

from jaxpipe.ops.conv_spec import ConvSpec
from jaxpipe.ops.dot_spec import DotSpec
from jaxpipe.ops.packed_spec import PackedSpec

Spec = DotSpec | ConvSpec | PackedSpec
