"""What csrc/module.cc exports; kept by hand, one line an export."""

from collections.abc import Sequence
from typing import Any

import numpy as np

Buffers = Sequence[tuple[int, int]]

FFI_API_VERSION: tuple[int, int]

def ffi_targets() -> dict[str, dict[str, Any]]: ...
def host_info() -> dict[str, Any]: ...
def host_peak_flops(seconds: float = 0.2, threads: int = 1, isa: str = "auto") -> float: ...
def describe_recipe(words: Sequence[int], names: str) -> str: ...
def inflate(compressed: bytes, limit_bytes: int) -> bytes: ...
def cuda_set_driver(path: str) -> None: ...
def cuda_driver() -> tuple[str, int]: ...
def cuda_devices() -> list[dict[str, Any]]: ...
def cuda_modules() -> tuple[int, int]: ...
def cuda_unload() -> int: ...
def cuda_run(
    device: int,
    words: Sequence[int],
    names: str,
    key: str,
    cubin: bytes,
    calls: Sequence[tuple[Buffers, Buffers]],
) -> None: ...
def cuda_time(
    device: int,
    words: Sequence[int],
    names: str,
    key: str,
    cubin: bytes,
    calls: Sequence[tuple[Buffers, Buffers]],
    launches: int,
    samples: int,
) -> list[float]: ...

PTX_SPECIAL_SLOTS: int
PTX_SHARED_BASE: int
PTX_FIRST_BUFFER: int
PTX_BUFFER_SHIFT: int

def ptx_operations() -> dict[str, int]: ...

class PtxProgram:
    def __init__(
        self,
        instructions: bytes,
        lists: list[int],
        constants: list[int],
        constant_is_wide: list[int],
        register_slots: int,
        predicate_slots: int,
        static_shared_bytes: int,
        local_bytes: int,
        param_bytes: int,
        max_registers: int,
        lines: list[tuple[int, int, int]],
        texts: list[str],
        files: list[str],
    ) -> None: ...
    def serialize(self) -> bytes: ...
    def run(
        self,
        buffers: list[tuple[np.ndarray, np.ndarray | None, bool, int]],
        params: bytes,
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        cluster: tuple[int, int, int],
        dynamic_shared_bytes: int,
        landing: int,
        order: int,
        seed: int,
        check: bool,
        max_steps: int,
        threads: int,
    ) -> tuple[list[dict[str, Any]], np.ndarray]: ...
