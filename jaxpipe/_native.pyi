"""What csrc/module.cc exports; kept by hand, one line an export."""

from typing import Any

import numpy as np

FFI_API_VERSION: tuple[int, int]

def ffi_targets() -> dict[str, dict[str, Any]]: ...
def describe_recipe(words: list[int], names: str) -> str: ...
def host_info() -> dict[str, Any]: ...
def host_peak_flops(seconds: float = 0.2, threads: int = 1, isa: str = "auto") -> float: ...

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
        lines: list[tuple[int, int, int]],
        texts: list[str],
        files: list[str],
    ) -> None: ...
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
