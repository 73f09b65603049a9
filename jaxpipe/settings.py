"""Every JAXPIPE_* environment variable: name, type, default, meaning. Read here and nowhere else.

Settings are read at the moment of use and passed down as arguments; what changes emitted code is
part of that code's key.
"""

from __future__ import annotations

import os
import pathlib
from collections.abc import Callable
from dataclasses import dataclass

from jaxpipe.errors import SettingError


@dataclass(frozen=True, slots=True)
class Setting:
    """One variable: `parse` turns its text into a value and raises ValueError on bad text."""

    name: str
    default: str
    parse: Callable[[str], object]
    meaning: str


def _flag(text: str) -> bool:
    words = {
        "1": True,
        "true": True,
        "on": True,
        "0": False,
        "false": False,
        "off": False,
        "": False,
    }
    if text.lower() not in words:
        raise ValueError("one of 0, 1, true, false, on, off")
    return words[text.lower()]


def _optional(text: str) -> str | None:
    return text or None


def _choice(*words: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text not in words:
            raise ValueError("one of " + ", ".join(w or "(empty)" for w in words))
        return text

    return parse


def _positive(text: str) -> int:
    if not text.strip().isdecimal() or int(text) < 1:
        raise ValueError("a whole number of at least 1")
    return int(text)


def _path(text: str) -> pathlib.Path:
    """A directory; empty text is the default, in the user's cache as the XDG specification has it.

    Without a home there is no such directory, and nothing is kept: files below it can neither be
    read nor written.
    """
    try:
        if text:
            return pathlib.Path(text).expanduser()
        xdg = os.environ.get("XDG_CACHE_HOME", "")
        home = pathlib.Path(xdg if os.path.isabs(xdg) else "~/.cache")
        return home.expanduser() / "jaxpipe"
    except RuntimeError:
        if text:
            raise ValueError("a path whose ~ names somebody with a home") from None
        return pathlib.Path(os.devnull) / "jaxpipe"


SETTINGS: dict[str, Setting] = {
    s.name: s
    for s in (
        Setting("JAXPIPE_CACHE_DIR", "", _path, "compiled kernels, user tuned records, calibration; empty: jaxpipe in the user's cache"),
        Setting("JAXPIPE_IMPLEMENTATION", "", _choice("", "cuda", "host", "interpret", "xla"), "implementation of every call that names none"),
        Setting("JAXPIPE_TARGET", "", _optional, "GPU that kernels are lowered for when none is visible (a100, h200, ...)"),
        Setting("JAXPIPE_COMPILER", "nvrtc", _choice("nvrtc", "nvcc"), "compiler of emitted CUDA"),
        Setting("JAXPIPE_NVRTC", "", _optional, "path of libnvrtc; empty: the wheel, then the system"),
        Setting("JAXPIPE_NVCC", "", _optional, "path of nvcc; empty: PATH, then CUDA_HOME"),
        Setting("JAXPIPE_LIBCUDA", "", _optional, "path of libcuda; empty: the loader's own search"),
        Setting("JAXPIPE_TUNED", "", _optional, "JSON file of tuned records laid over the shipped and the user's"),
        Setting("JAXPIPE_ON_MISS", "model", _choice("model", "tune", "error"), "what an untuned problem does: the model chooses, a short search now, or an error"),
        Setting("JAXPIPE_MISS_TRIALS", "16", _positive, "trials of one such search"),
        Setting("JAXPIPE_MISS_SECONDS", "20", _positive, "seconds after which such a search starts no trial"),
        Setting("JAXPIPE_HOST_THREADS", "", _optional, "cap on the threads of one host product; empty: XLA's pool"),
        Setting("JAXPIPE_PACKED_MB", "1024", _positive, "megabytes of packed constants that options(pack_constants=True) keeps"),
        Setting("JAXPIPE_INTERPRET_CHECKS", "1", _flag, "hazard checks in implementation='interpret'"),
        Setting("JAXPIPE_INTERPRET_MODE", "late,ascending,0", str, "landing,order,seed of the interpreter"),
        Setting("JAXPIPE_COMPILE_JOBS", str(os.cpu_count() or 1), _positive, "kernels compiled at once"),
    )
}  # fmt: skip


def get(name: str) -> object:
    """The value of setting `name`; SettingError names the variable, what it held and what it takes."""
    setting = SETTINGS[name]
    text = os.environ.get(name, setting.default)
    try:
        return setting.parse(text)
    except ValueError as error:
        raise SettingError(
            f"{name}={text!r} is not a valid setting ({setting.meaning}): it takes {error}; "
            f"unset it for the default {setting.default!r}"
        ) from None


def whole(name: str) -> int:
    """The value of setting `name`, which is a whole number."""
    value = get(name)
    assert isinstance(value, int), name
    return value


def cache_dir() -> pathlib.Path:
    """The directory of everything that jaxpipe keeps between runs (not created here)."""
    value = get("JAXPIPE_CACHE_DIR")
    assert isinstance(value, pathlib.Path)
    return value
