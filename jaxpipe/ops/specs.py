"""The closed set of what our primitives compute."""

from jaxpipe.ops.conv_spec import ConvSpec
from jaxpipe.ops.dot_spec import DotSpec
from jaxpipe.ops.packed_spec import PackedSpec
from jaxpipe.ops.rounded_spec import RoundedSpec

Spec = DotSpec | ConvSpec | PackedSpec | RoundedSpec
