"""What csrc/module.cc exports; kept by hand, one line an export."""

from typing import Any

FFI_API_VERSION: tuple[int, int]

def ffi_targets() -> dict[str, dict[str, Any]]: ...
def describe_recipe(words: list[int], names: str) -> str: ...
