"""Encoding rules of the asynchronous machinery."""

from __future__ import annotations

from jaxpipe.ptx.encode_memory import cp_async

ASYNC_RULES = {"cp": cp_async}
