"""The baseline model: three times at peak, blind to stages and waves."""

from dataclasses import replace

import numpy as np
import pytest

from jaxpipe.model import bottleneck
from jaxpipe.problem import Matmul
from jaxpipe.schedule import GpuSchedule
from jaxpipe.target import DEVICES

A100 = DEVICES["a100"]
LINEAR = Matmul(512, 3072, 768)
SCHEDULE = GpuSchedule(block_k=64, smem_stages=3)


def test_it_is_the_largest_of_compute_shared_and_device_memory() -> None:
    said = bottleneck.predict(LINEAR, SCHEDULE, A100)
    assert dict(said.parts).keys() == {"tensor", "shared", "dram"}
    assert said.seconds == max(dict(said.parts).values())


def test_it_cannot_tell_stages_apart() -> None:
    staged = [replace(SCHEDULE, smem_stages=s, reg_stages=r) for s in (1, 2, 3) for r in (1, 2)]
    assert len(set(bottleneck.predict_many(LINEAR, staged, A100))) == 1


def test_compute_is_the_padded_product_at_peak() -> None:
    parts = dict(bottleneck.predict(Matmul(100, 128, 64), SCHEDULE, A100).parts)
    assert parts["tensor"] == pytest.approx(2 * 128 * 128 * 64 / A100.flops_hz("bfloat16"))


def test_what_does_not_fit_takes_for_ever() -> None:
    deep = replace(SCHEDULE, block_k=128, smem_stages=8)
    assert bottleneck.predict_many(Matmul(512, 512, 8192), [deep], A100)[0] == np.inf


def test_it_knows_no_cache_so_that_small_tiles_cost_device_memory() -> None:
    small, large = (GpuSchedule(block_m=b, block_n=b, block_k=64, smem_stages=2) for b in (64, 128))
    moved = [dict(bottleneck.predict(LINEAR, s, A100).parts)["dram"] for s in (small, large)]
    assert moved[0] > 1.5 * moved[1]
