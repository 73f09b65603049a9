"""Registers the extension's FFI handlers with XLA, once a process.

In: `jaxpipe._native.ffi_targets()`, {name: {stage: capsule}}. The platform is the name's prefix:
`jaxpipe_host_*` and `jaxpipe_interpret_*` are for cpu, `jaxpipe_cuda_*` for CUDA. State types of
a target must be registered before its handlers (XLA's rule): a type table comes first.
"""

from __future__ import annotations

import functools

import jax

from jaxpipe import _native, settings

PLATFORM_OF_PREFIX = {
    "jaxpipe_host_": "cpu",
    "jaxpipe_interpret_": "cpu",
    "jaxpipe_cuda_": "CUDA",
}


def platform_of(target: str) -> str:
    """The XLA platform that FFI target `target` is registered for."""
    for prefix, platform in PLATFORM_OF_PREFIX.items():
        if target.startswith(prefix):
            return platform
    raise AssertionError(f"FFI target {target} has no known prefix")


@functools.cache
def register() -> tuple[str, ...]:
    """Register every handler of the extension; returns their names. Later calls do nothing."""
    _native.cuda_set_driver(str(settings.get("JAXPIPE_LIBCUDA") or ""))
    names = []
    for name, stages in _native.ffi_targets().items():
        jax.ffi.register_ffi_target(name, stages, platform=platform_of(name))
        names.append(name)
    return tuple(names)


def is_registered(target: str) -> bool:
    """True when this build of the extension holds the handler `target`."""
    return target in register()
