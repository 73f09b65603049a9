"""What exporting a program with our kernels takes: the safety checks to disable."""

from __future__ import annotations

from jax.export import DisabledSafetyCheck

from jaxpipe.runtime import targets

# jax.export refuses custom calls that it does not know to be stable. Ours carry their version and
# refuse a program of another; loading one takes `import jaxpipe`, which registers the handlers.
EXPORT_CHECKS: tuple[DisabledSafetyCheck, ...] = tuple(
    DisabledSafetyCheck.custom_call(name) for name in targets.register()
)
