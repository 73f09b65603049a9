"""What stands in a space can be built: the compiler takes it, without spills. No GPU is needed."""

import numpy as np
import pytest

from jaxpipe.compiler import compile_kernel
from jaxpipe.model.occupancy import occupancy
from jaxpipe.model.workload import workload
from jaxpipe.problem import Conv2d, Layout, Matmul, Problem
from jaxpipe.space import gpu_space
from jaxpipe.target import ARCHES, DEVICES

pytestmark = pytest.mark.slow

CASES: list[tuple[str, str, Problem]] = [
    ("a100", "ampere", Matmul(512, 768, 768)),
    ("a100", "ampere", Conv2d(8, 28, 28, 128, 128, (3, 3), padding=((1, 1), (1, 1)))),
    ("rtx4090", "ampere", Matmul(512, 512, 64, batch=(12,), rhs=Layout(True))),
    ("h200", "hopper", Matmul(512, 768, 768)),
    ("h200", "hopper", Matmul(16, 768, 3072)),
]
SAMPLE = 6


@pytest.mark.parametrize("seed", range(SAMPLE))
@pytest.mark.parametrize(("name", "family", "problem"), CASES, ids=str)
def test_a_schedule_drawn_from_a_space_compiles_and_fits(
    name: str, family: str, problem: Problem, seed: int
) -> None:
    device = DEVICES[name]
    space = gpu_space(problem, device, family)
    row = int(np.random.default_rng(seed).integers(len(space)))
    built = compile_kernel(problem, space.schedule(row), device)
    main, launch, arch = built.resources[0], built.kernel.launches[0], ARCHES[device.arch]
    needs = occupancy(space.table.take(np.array([row])), workload(problem), arch)
    assert main.spill_store_bytes == 0
    assert launch.shared_bytes == needs.shared_bytes[0] <= arch.shared_per_block_bytes
    assert main.registers * needs.threads[0] <= arch.registers_per_sm
