"""The finite list that a tuner chooses from: legal configurations as columns, with what is known.

In: knob columns (numbers, booleans or words) and, if any, the model's predicted log latency. Out:
parameters of a row, the row of parameters, Optuna distributions, numeric features. It must not
know schedules, devices or how a row is measured, so replayed public data serves as well.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from optuna.distributions import BaseDistribution, CategoricalDistribution

from jaxpipe.errors import TuningError

Floats = NDArray[np.float64]
Codes = NDArray[np.int64]
Value = Any


@dataclass(frozen=True, eq=False)
class Candidates:
    """N configurations: `knobs` maps each name to its N values.

    log_prior: natural log of the predicted seconds (only differences matter), or None. extra:
    (N, E) further numeric features, or None. Rows are distinct in their knobs; TuningError says
    which are not. orders: other models' log predictions by name, for the methods
    that only rank. `codes` holds for each knob the position of each row's value among `choices`.
    """

    knobs: Mapping[str, NDArray[Any]]
    log_prior: Floats | None = None
    extra: Floats | None = None
    orders: Mapping[str, Floats] = field(default_factory=dict)
    choices: Mapping[str, tuple[Value, ...]] = field(init=False)
    codes: Codes = field(init=False)
    features: Floats = field(init=False)
    _row_of: Mapping[int, int] | None = field(init=False, default=None)
    _places: Codes = field(init=False)

    def __post_init__(self) -> None:
        sizes = {name: len(column) for name, column in self.knobs.items()}
        if not sizes or len(set(sizes.values())) != 1 or 0 in sizes.values():
            raise TuningError(f"candidates need equally long, non-empty knob columns, got {sizes}")
        if self.log_prior is not None and not np.all(np.isfinite(self.log_prior)):
            bad = int(np.count_nonzero(~np.isfinite(self.log_prior)))
            raise TuningError(f"{bad} predictions are not finite: leave such candidates out")
        choices, columns = {}, []
        for name, column in self.knobs.items():
            values, codes = np.unique(np.asarray(column), return_inverse=True)
            choices[name] = tuple(values.tolist())
            columns.append(codes)
        self._set("choices", choices)
        self._set("codes", np.stack(columns, axis=1).astype(np.int64))
        radix = [len(values) for values in choices.values()]
        self._set("_places", np.cumprod([1, *radix[:-1]], dtype=np.int64))
        self._set("features", _features(self))
        self._index_rows()

    def _set(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)

    def _index_rows(self) -> None:
        numbers = self.codes @ self._places
        rows = {number: row for row, number in enumerate(numbers.tolist())}
        if len(rows) != len(numbers):
            twice = next(r for r, n in enumerate(numbers.tolist()) if rows[n] != r)
            raise TuningError(f"candidate {self.params(twice)} is listed more than once")
        self._set("_row_of", rows)

    def __len__(self) -> int:
        return len(self.codes)

    @property
    def names(self) -> tuple[str, ...]:
        """Knob names in order."""
        return tuple(self.knobs)

    def params(self, row: int) -> dict[str, Value]:
        """The configuration in `row`, as plain Python values."""
        return {
            name: values[code]
            for (name, values), code in zip(self.choices.items(), self.codes[row], strict=True)
        }

    def row(self, params: Mapping[str, Value]) -> int | None:
        """The row that holds exactly these parameters, or None when it is not a candidate."""
        number = 0
        for (name, values), place in zip(self.choices.items(), self._places, strict=True):
            if name not in params or params[name] not in values:
                return None
            number += values.index(params[name]) * int(place)
        assert self._row_of is not None
        return self._row_of.get(number)

    def matching(self, fixed: Mapping[str, Value]) -> NDArray[np.bool_]:
        """Which rows agree with the (possibly partial) parameters `fixed`."""
        mask = np.ones(len(self), dtype=np.bool_)
        for column, (name, values) in enumerate(self.choices.items()):
            if name in fixed:
                code = values.index(fixed[name]) if fixed[name] in values else -1
                mask &= self.codes[:, column] == code
        return mask

    def distributions(self) -> dict[str, BaseDistribution]:
        """Optuna's view of the knobs: one categorical distribution each, values in order."""
        return {name: CategoricalDistribution(values) for name, values in self.choices.items()}

    def nearest(self, params: Mapping[str, Value], allowed: NDArray[np.bool_]) -> int:
        """The allowed row whose knobs are fewest steps away from `params` (lowest row on ties)."""
        steps = np.zeros(len(self))
        for column, (name, values) in enumerate(self.choices.items()):
            if name in params and params[name] in values:
                steps += np.abs(self.codes[:, column] - values.index(params[name]))
        return int(np.argmin(np.where(allowed, steps, np.inf)))

    def with_prior(self, log_prior: Floats | None) -> Candidates:
        """The same list with another prediction."""
        return Candidates(self.knobs, log_prior, self.extra, self.orders)


def _features(candidates: Candidates) -> Floats:
    """Knobs as standardised numbers: log2 where a knob spans octaves, one column a word else."""
    columns = [
        column
        for values, codes in zip(candidates.choices.values(), candidates.codes.T, strict=True)
        for column in _encode(values, codes)
    ]
    if candidates.extra is not None:
        columns += list(np.asarray(candidates.extra, dtype=np.float64).T)
    varying = [column for column in columns if np.ptp(column) > 0]
    if not varying:
        return np.zeros((len(candidates), 1))
    table = np.stack(varying, axis=1)
    return np.asarray((table - table.mean(axis=0)) / table.std(axis=0))


def _encode(values: Sequence[Value], codes: NDArray[np.int64]) -> list[Floats]:
    """Numeric columns of one knob, from the codes of its sorted values."""
    if all(isinstance(v, (bool, int, float)) for v in values):
        numbers = np.array(values, dtype=np.float64)
        scaled = np.log2(1.0 + numbers) if numbers.min() == 0 else numbers
        scaled = np.log2(numbers) if numbers.min() > 0 else scaled
        return [scaled[codes]]
    return [np.asarray(codes == code, dtype=np.float64) for code in range(len(values))]
