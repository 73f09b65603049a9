"""Which GPU a program is lowered for: the row of target.DEVICES that its kernels are made for.

In: a lowering context, or devices, or a name. Out: a Device. Order: a name that the caller gives,
the devices that the program is lowered for, JAXPIPE_TARGET, the GPUs that this process sees. Never
"device 0": a host may hold several kinds, and a program may be compiled for none of them. It must
not know kernels or schedules.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import jax

from jaxpipe import settings, target
from jaxpipe.errors import TargetError
from jaxpipe.target import Device

GPU_PLATFORMS = ("gpu", "cuda")
_WAYS = "pass jaxpipe.options(target=...), or set JAXPIPE_TARGET to one of " + ", ".join(
    target.DEVICES
)


def resolve(devices: Sequence[jax.Device], explicit: str | None = None) -> Device:
    """The row of `explicit`, of `devices`, of JAXPIPE_TARGET or of the visible GPUs: the first.

    explicit: a device or architecture name that overrules the rest (export on another host).
    devices: those that a program is lowered for; CPUs among them say nothing. Raises TargetError
    when nothing says which, when devices differ in kind, or when one is older than sm_80.
    """
    if explicit:
        return named(explicit)
    if gpus := [d for d in devices if d.platform in GPU_PLATFORMS]:
        return _common(gpus, "the program is lowered for")
    if setting := settings.get("JAXPIPE_TARGET"):
        return named(str(setting))
    if visible := visible_gpus():
        return _common(visible, "this process sees")
    raise TargetError(f"no GPU is visible and the program names no device: {_WAYS}")


def named(name: str) -> Device:
    """The row of a device (`h200`), or a plain one of an architecture (`sm_80`)."""
    if name in target.DEVICES:
        return target.device(name)
    if name in target.ARCHES:
        rows = [row for row in target.DEVICES.values() if row.arch == name]
        if rows:
            return rows[0]
    raise TargetError(f"unknown GPU {name!r}: {_WAYS}, or an architecture of those")


def of_jax(device: jax.Device) -> Device:
    """The row of one JAX device: by model name, else made from its architecture.

    A model that no row names gets the row of its architecture whose SM count is nearest, under a
    name of its own: records of the known device are not taken for measurements of this one.
    """
    kind = device.device_kind
    if row := target.device_by_model(kind):
        return row
    capability = getattr(device, "compute_capability", None)
    if capability is None:
        raise TargetError(f"device {kind!r} does not tell its compute capability: {_WAYS}")
    major, minor = (int(part) for part in str(capability).split("."))
    arch = target.arch_of_capability(major, minor)
    return _like(arch.name, kind, int(getattr(device, "core_count", 0)))


def devices_of(ctx: Any) -> tuple[jax.Device, ...]:
    """Devices that a lowering context knows; () where JAX does not tell.

    JAX tells them in a sharding context when the program asks for them, and as the mesh inside
    shard_map. Neither field is documented: both are read with care.
    """
    axes = getattr(ctx.module_context, "axis_context", None)
    if assigned := getattr(axes, "device_assignment", None):
        return tuple(assigned)
    mesh = getattr(axes, "mesh", None)
    if isinstance(mesh, jax.sharding.AbstractMesh):  # raises when asked for its devices
        return ()
    devices = getattr(mesh, "devices", None)
    return () if devices is None else tuple(devices.flat)


def visible_gpus() -> tuple[jax.Device, ...]:
    """CUDA devices of this process's default backend; () without one."""
    if jax.default_backend() != "gpu":
        return ()
    return tuple(d for d in jax.local_devices() if getattr(d, "compute_capability", None))


def _common(devices: Sequence[jax.Device], what: str) -> Device:
    rows = {of_jax(device).name: of_jax(device) for device in devices}
    if len(rows) != 1:
        raise TargetError(
            f"{what} GPUs of several kinds ({', '.join(sorted(rows))}), one kernel cannot serve "
            f"them all: {_WAYS}"
        )
    return next(iter(rows.values()))


def _like(arch: str, kind: str, sm_count: int) -> Device:
    rows = [row for row in target.DEVICES.values() if row.arch == arch]
    if not rows:
        raise TargetError(f"no device row for {arch} ({kind}): {_WAYS}")
    nearest = min(rows, key=lambda row: abs(row.sm_count - sm_count))
    name = re.sub(r"[^a-z0-9]+", "_", kind.lower()).strip("_")
    return replace(nearest, name=name, sm_count=sm_count or nearest.sm_count, match=(kind,))
