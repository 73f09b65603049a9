"""Tables of schedules: columns in, schedules out."""

import numpy as np
import pytest

from jaxpipe.errors import ScheduleError
from jaxpipe.model.table import (
    as_table,
    concatenate,
    distinct,
    filled,
    groups_of,
    product_table,
    table_of,
)
from jaxpipe.schedule import GpuSchedule, HostSchedule

SCHEDULES = [GpuSchedule(block_m=m, swizzle=s) for m in (64, 128) for s in (True, False)]


def test_schedules_come_back_as_they_went_in() -> None:
    assert table_of(SCHEDULES).schedules() == SCHEDULES


def test_a_table_is_its_own_table() -> None:
    table = table_of(SCHEDULES)
    assert as_table(table) is table
    assert as_table(SCHEDULES).schedules() == SCHEDULES


def test_values_of_a_row_are_plain_python() -> None:
    schedule = table_of(SCHEDULES).schedule(0)
    assert (type(schedule.block_m), type(schedule.swizzle)) == (int, bool)
    assert type(table_of([HostSchedule()]).schedule(0).path) is str


def test_a_product_runs_over_the_last_knob_first() -> None:
    table = product_table(GpuSchedule, {"block_m": (64, 128), "smem_stages": (2, 3)})
    assert list(zip(table["block_m"], table["smem_stages"], strict=True)) == [
        (64, 2), (64, 3), (128, 2), (128, 3),
    ]  # fmt: skip
    assert set(table["block_n"]) == {GpuSchedule().block_n}


def test_unknown_knobs_are_refused() -> None:
    with pytest.raises(ScheduleError, match="GpuSchedule has no field tiles"):
        product_table(GpuSchedule, {"tiles": (1,)})


def test_no_schedules_make_no_table() -> None:
    with pytest.raises(ScheduleError, match="give at least one"):
        table_of([])
    with pytest.raises(ScheduleError, match="give at least one"):
        concatenate([])


def test_two_kinds_make_no_table() -> None:
    with pytest.raises(ScheduleError, match="one kind of schedule"):
        table_of([GpuSchedule(), HostSchedule()])


def test_rows_are_taken_by_index_mask_and_slice() -> None:
    table = table_of(SCHEDULES)
    assert table.take(np.array([3, 0])).schedules() == [SCHEDULES[3], SCHEDULES[0]]
    assert table.take(table["swizzle"]).schedules() == SCHEDULES[::2]
    assert table.take(slice(1, 3)).schedules() == SCHEDULES[1:3]


def test_repeated_rows_are_dropped_but_the_first() -> None:
    table = concatenate([table_of(SCHEDULES), table_of(SCHEDULES[::-1])])
    assert distinct(table).schedules() == SCHEDULES


def test_groups_are_rows_that_agree_in_all_columns() -> None:
    first, group = groups_of([np.array([1, 2, 1, 1]), np.array(["a", "b", "a", "b"])])
    assert group[0] == group[2] != group[3]
    assert len(first) == 3


def test_missing_columns_are_the_default() -> None:
    table = filled(GpuSchedule, {"block_m": np.array([64, 96])})
    assert table.schedules() == [GpuSchedule(block_m=64), GpuSchedule(block_m=96)]
