"""To and from other tuners: Kernel Tuner's T4 results format.

In: records. Out: a T4 document (https://github.com/odgaard/TuningSchema), and back for documents
that jaxpipe wrote. Times are milliseconds there, seconds here.
"""

from __future__ import annotations

import json
import pathlib
from collections.abc import Iterable
from typing import Any

from jaxpipe import tuned
from jaxpipe.errors import RecordError
from jaxpipe.records import Record

SCHEMA_VERSION = "1.0.0"
_VALIDITY = {
    "ok": "correct",
    "pruned": "correct",
    "compile_failed": "compile",
    "launch_failed": "runtime",
    "wrong_result": "correctness",
    "timeout": "timeout",
    "crashed": "runtime",
}


def to_t4(records: Iterable[Record]) -> str:
    """Every record as one T4 result, failures included; the record itself rides along."""
    results = [_result(record) for record in records]
    document = {
        "schema_version": SCHEMA_VERSION,
        "metadata": {"tool": "jaxpipe"},
        "results": results,
    }
    return json.dumps(document, indent=1) + "\n"


def _result(record: Record) -> dict[str, Any]:
    m = record.measurement
    has_time = m.status in ("ok", "pruned") and bool(m.samples_s)
    milliseconds = [1e3 * s for s in m.samples_s]
    measurements = [{"name": "time", "value": 1e3 * m.median_s, "unit": "milliseconds"}]
    return {
        "configuration": record.schedule.to_json(),
        "objectives": ["time"],
        "times": {"runtimes": milliseconds},
        "invalidity": _VALIDITY[m.status],
        "correctness": 1 if has_time else 0,
        "measurements": measurements if has_time else [],
        "jaxpipe": json.loads(record.to_json()),
    }


def from_t4(text: str, where: str = "text") -> list[Record]:
    """The records of a T4 document that jaxpipe wrote; RecordError for others, which lack them."""
    try:
        results = json.loads(text)["results"]
        return [Record.from_json(json.dumps(result["jaxpipe"])) for result in results]
    except (ValueError, KeyError, TypeError) as error:
        raise RecordError(
            f"{where} is no T4 document of jaxpipe ({error!r}): results of other tools name no "
            "problem and no schedule of ours"
        ) from error


def read_any(path: pathlib.Path) -> tuned.Table:
    """The winners in a tuned file or in a T4 document; RecordError when it is neither."""
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise RecordError(f"cannot read records from {path}: {error}") from error
    try:
        return tuned.Table.loads(text, str(path))
    except RecordError:
        return tuned.Table.of(from_t4(text, str(path)))
