"""Reads Hugging Face safetensors and configurations; no torch, no network."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Mapping

import numpy as np
from safetensors.numpy import load_file


def read_config(folder: pathlib.Path) -> dict[str, object]:
    """The parsed config.json of a Hugging Face model folder."""
    path = folder / "config.json"
    if not path.is_file():
        raise FileNotFoundError(f"{folder} holds no config.json: give a Hugging Face model folder")
    config: dict[str, object] = json.loads(path.read_text())
    return config


def read_tensors(folder: pathlib.Path, prefixes: tuple[str, ...] = ()) -> dict[str, np.ndarray]:
    """All tensors of model*.safetensors by name, as float32; `prefixes` are cut off names."""
    files = sorted(folder.glob("model*.safetensors"))
    if not files:
        raise FileNotFoundError(f"{folder} holds no model*.safetensors")
    tensors: dict[str, np.ndarray] = {}
    for file in files:
        for name, value in load_file(file).items():
            for prefix in prefixes:
                name = name.removeprefix(prefix)
            is_float = np.issubdtype(value.dtype, np.floating) or value.dtype.name == "bfloat16"
            tensors[name] = value.astype(np.float32) if is_float else value
    return tensors


class Taker:
    """Hands out tensors by name and knows at the end which were never asked for."""

    def __init__(self, tensors: Mapping[str, np.ndarray]) -> None:
        self._tensors = dict(tensors)
        self._taken: set[str] = set()

    def __call__(self, name: str, *shape: int) -> np.ndarray:
        """Tensor `name`, checked to have `shape`."""
        if name not in self._tensors:
            raise KeyError(f"the checkpoint has no tensor {name!r}")
        value = self._tensors[name]
        if value.shape != shape:
            raise ValueError(f"tensor {name!r} has shape {value.shape}, the config wants {shape}")
        self._taken.add(name)
        return value

    def left(self) -> set[str]:
        """Names that were not taken."""
        return set(self._tensors) - self._taken
