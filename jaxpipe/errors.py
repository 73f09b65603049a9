"""Every exception that jaxpipe raises, in one table.

A message says what was asked, what was got, the limit and the remedy, with values. All classes
derive from `JaxpipeError`; those that report a bad argument are also `ValueError` or `TypeError`,
so that callers who know nothing of jaxpipe catch what they expect.
"""

from __future__ import annotations


class JaxpipeError(Exception):
    """The root of everything that jaxpipe raises by itself."""


class ProblemError(JaxpipeError, ValueError):
    """Shapes, dtypes or an epilogue that describe no valid product or convolution."""


class DtypeError(JaxpipeError, TypeError):
    """A dtype that the operation does not know."""


class ScheduleError(JaxpipeError, ValueError):
    """A schedule that is illegal for its problem and target; carries every reason."""


class TargetError(JaxpipeError, ValueError):
    """An unknown device or architecture name."""


class SettingError(JaxpipeError, ValueError):
    """A JAXPIPE_* variable or an option with a value outside its range."""


class UnsupportedError(JaxpipeError, NotImplementedError):
    """A named implementation cannot serve this call; says why and what can."""


class IrError(JaxpipeError):
    """The loop IR breaks one of its invariants: a fault of a pass, never of a user."""


class ToolchainError(JaxpipeError, RuntimeError):
    """A compiler or library of the CUDA toolchain is missing or failed; names what was searched."""


class CompileError(ToolchainError):
    """NVRTC or nvcc refused a source; carries its log."""


class PtxError(JaxpipeError, ValueError):
    """PTX that the interpreter does not know; carries line and text."""


class HazardError(JaxpipeError, RuntimeError):
    """The interpreter found a race, a fault or a deadlock in a kernel."""


class RecordError(JaxpipeError, ValueError):
    """A tuned record or a measurement file that cannot be read."""


class TuningError(JaxpipeError, RuntimeError):
    """A study cannot go on: nothing legal to try, every candidate failed, or storage is gone."""
