"""The Hopper family in the interpreter, and what its machine code must and must not hold."""

from dataclasses import replace

import pytest

from jaxpipe.choose import constructed
from jaxpipe.compiler import compile_kernel, emit_kernel
from jaxpipe.epilogue import Epilogue
from jaxpipe.geometry_hopper import geometry
from jaxpipe.problem import Conv2d, Layout, Matmul, Problem
from jaxpipe.ptx.run import ADVERSARIAL_MODES, Mode
from jaxpipe.schedule import GpuSchedule
from jaxpipe.target import device
from jaxpipe.toolchain.sass import disassemble, tensor_instructions
from tests.codegen.hopper_points import SM_90A, Point, draw, points
from tests.codegen.hopper_runs import run_point

SERIALISED = ("C7508", "C7510", "C7511", "C7515", "C7517", "C7519")
K_MAJOR = Layout(transposed=True)


def schedule(text: str, block_k: int = 64) -> GpuSchedule:
    base = GpuSchedule(family="hopper", block_m=64, block_n=64, block_k=block_k, consumers=1)
    return GpuSchedule.parse(text, base)


def assert_right(problem: Problem, how: GpuSchedule, mode: Mode, seed: int = 0) -> None:
    report = run_point(problem, how, mode, seed)
    assert not report.hazards, "\n".join(str(h) for h in report.hazards)


# ---------------------------------------------------------------- the ring
@pytest.mark.parametrize("mode", ADVERSARIAL_MODES, ids=str)
@pytest.mark.parametrize("k_tiles", [1, 2, 3, 4, 8], ids=lambda n: f"{n} k tiles")
def test_three_slots_serve_any_number_of_steps(k_tiles: int, mode: Mode) -> None:
    how = schedule("smem_stages=3,persistent_blocks=1")
    assert_right(Matmul(96, 128, 64 * k_tiles - 8, rhs=K_MAJOR), how, mode)


@pytest.mark.parametrize("mode", ADVERSARIAL_MODES, ids=str)
@pytest.mark.parametrize("tiles", [1, 2, 3, 5, 7])
def test_ping_pong_groups_take_turns_over_any_number_of_tiles(tiles: int, mode: Mode) -> None:
    how = schedule("smem_stages=3,ping_pong=1,consumers=2,persistent_blocks=1")
    assert_right(Matmul(64 * tiles - 3, 64, 64 * 5, rhs=K_MAJOR), how, mode)


@pytest.mark.parametrize("mode", ADVERSARIAL_MODES, ids=str)
@pytest.mark.parametrize(
    "text", ["cluster_m=2", "cluster_n=2,block_n=128", "cluster_m=2,ping_pong=1,consumers=2"]
)
def test_a_cluster_may_have_a_block_without_work(text: str, mode: Mode) -> None:
    problem = Matmul(
        64 * 3, 64 * 3, 64 * 4, rhs=K_MAJOR, epilogue=Epilogue(bias="row", residual=True)
    )
    assert_right(problem, schedule(f"smem_stages=3,persistent_blocks=2,{text}"), mode)


@pytest.mark.parametrize("mode", ADVERSARIAL_MODES, ids=str)
def test_the_second_block_of_an_odd_cluster_stores_nothing_below_the_result(mode: Mode) -> None:
    """192 rows are whole blocks of 64, but two clusters of 128: the last block has no row, and
    257 columns make it store elements one by one."""
    epilogue = Epilogue(bias="column", activation="gelu_tanh")
    problem = Matmul(192, 257, 32, dtype="float8_e5m2", rhs=K_MAJOR, epilogue=epilogue)
    how = schedule("block_n=128,smem_stages=2,ping_pong=1,consumers=2,cluster_m=2", block_k=128)
    assert_right(problem, how, mode)


@pytest.mark.parametrize("mode", ADVERSARIAL_MODES, ids=str)
def test_the_second_block_of_an_odd_cluster_reads_no_bias_past_its_end(mode: Mode) -> None:
    """192 columns are whole blocks of 64, but two clusters of 128."""
    epilogue = Epilogue(bias="column", activation="relu")
    problem = Matmul(200, 192, 8, lhs=K_MAJOR, rhs=K_MAJOR, epilogue=epilogue)
    how = schedule("block_m=256,smem_stages=2,ping_pong=1,consumers=2,cluster_n=2")
    assert_right(problem, how, mode)


# ---------------------------------------------------------------- what is computed
FULL = Epilogue(0.5, "column", "float32", "gelu_erf", residual=True, save_preactivation=True)
CASES: dict[str, tuple[Problem, GpuSchedule]] = {
    "three consumers": (Matmul(200, 136, 136), schedule("block_m=192,block_n=128,consumers=3")),
    "mn-major operands": (Matmul(136, 72, 72, lhs=K_MAJOR), schedule("block_m=128,consumers=2")),
    "full epilogue": (Matmul(70, 72, 72, epilogue=FULL), schedule("persistent_blocks=2")),
    "no k": (Matmul(70, 72, 0, epilogue=FULL), schedule("persistent_blocks=2")),
    "broadcast batch": (
        Matmul(70, 72, 72, (2, 2), rhs=Layout(batch_strides=(0, 0))),
        schedule("persistent_blocks=3"),
    ),
    "split k": (Matmul(70, 72, 64 * 5, epilogue=FULL), schedule("split_k=3")),
    "swapped operands": (
        Matmul(21, 136, 136, rhs=K_MAJOR, epilogue=FULL),
        schedule("swap_operands=1,block_m=24"),
    ),
    "swapped to float32": (
        Matmul(13, 136, 136, out_dtype="float32", epilogue=FULL),
        schedule("swap_operands=1,block_m=16"),
    ),
    "rows of odd length": (Matmul(70, 71, 73, epilogue=FULL), schedule("tma=0")),
    "one operand by TMA": (Matmul(70, 72, 74, epilogue=FULL), schedule("tma=0")),
    "tf32": (
        Matmul(70, 72, 100, (), "float32", rhs=K_MAJOR, precision="tf32"),
        schedule("", block_k=32),
    ),
    "int8": (Matmul(70, 80, 208, (), "int8", rhs=K_MAJOR), schedule("", block_k=128)),
    "e4m3": (Matmul(70, 80, 208, (), "float8_e4m3fn", rhs=K_MAJOR), schedule("", block_k=128)),
    "e5m2": (Matmul(70, 80, 208, (), "float8_e5m2", rhs=K_MAJOR), schedule("", block_k=128)),
    "two rows of k a stage": (Matmul(70, 72, 296), schedule("block_k=128,smem_stages=2")),
    "convolution": (
        Conv2d(3, 9, 10, 72, 72, (3, 3), padding=((1, 1), (1, 0)), epilogue=FULL),
        schedule("persistent_blocks=2"),
    ),
    "strided, dilated convolution": (
        Conv2d(2, 11, 9, 64, 72, (3, 3), (2, 2), ((0, 2), (2, 1)), (2, 1)),
        schedule("block_m=128,consumers=2,cluster_n=2"),
    ),
}


@pytest.mark.parametrize("mode", ADVERSARIAL_MODES, ids=str)
@pytest.mark.parametrize("name", CASES)
def test_every_feature_is_right_and_free_of_hazards(name: str, mode: Mode) -> None:
    assert_right(*CASES[name], mode)


FINISHED = [name for name, (problem, _) in CASES.items() if problem.epilogue == FULL]


@pytest.mark.parametrize("name", FINISHED)
def test_a_residual_before_the_activation_is_right(name: str) -> None:
    problem, how = CASES[name]
    first = replace(FULL, residual_first=True)
    mode = ADVERSARIAL_MODES[FINISHED.index(name) % len(ADVERSARIAL_MODES)]
    assert_right(replace(problem, epilogue=first), how, mode)


@pytest.mark.slow
@pytest.mark.parametrize("point", list(points(300)), ids=lambda p: f"point {p.seed}")
def test_drawn_points_are_right_and_free_of_hazards(point: Point) -> None:
    for mode in ADVERSARIAL_MODES:
        assert_right(point.problem, point.schedule, mode, point.seed)


# ---------------------------------------------------------------- machine code
def assert_sound(problem: Problem, how: GpuSchedule) -> None:
    """No spill, no serialised wgmma, the instructions of the family, no wide fence."""
    kernel = compile_kernel(problem, how, SM_90A)
    g = geometry(problem, how)
    main = next(r for r in kernel.resources if r.entry == "jaxpipe_hopper")
    assert (main.spill_store_bytes, main.spill_load_bytes) == (0, 0)
    assert not [d for d in main.diagnostics if any(code in d for code in SERIALISED)]
    assert 128 * (g.registers.producer + how.consumers * g.registers.consumer) <= 65536
    code = disassemble(kernel.cubin)["jaxpipe_hopper"]
    wanted = {"USETMAXREG"} | ({"UTMASTG"} if g.has_tma_store else set())
    wanted |= {"STSM"} if g.store_dtype in ("bfloat16", "float16") else set()
    if g.k_tiles:
        wanted |= {g.wgmma.sass} | ({"UTMALDG"} if "tma" in (g.a.copy, g.b.copy) else set())
    assert {opcode for opcode in wanted if not code.count(opcode)} == set()
    assert code.count(r"MEMBAR\.ALL\.GPU") == code.count("LDL|STL") == 0
    assert code.count(r"CCTL\.IVALL") <= 2


BIASED = Epilogue(bias="column", activation="silu")
ADDED = Epilogue(bias="row", residual=True)
FIRST = Epilogue(bias="column", activation="relu", residual=True, residual_first=True)
GATES = (
    (Matmul(512, 768, 768, rhs=K_MAJOR), "block_m=128,block_n=256,consumers=2,cluster_m=2"),
    (Matmul(512, 768, 768, epilogue=BIASED), "block_m=128,block_n=256,consumers=2"),
    (Matmul(512, 768, 768, epilogue=ADDED), "block_m=256,block_n=128,consumers=2,cluster_n=2"),
    (Matmul(512, 768, 832, lhs=K_MAJOR), "block_m=128,block_n=128,consumers=2,ping_pong=1"),
    (Matmul(512, 768, 768), "block_m=192,block_n=192,consumers=3,smem_stages=3"),
    (Matmul(512, 771, 768, epilogue=BIASED), "block_m=128,block_n=128,consumers=2,tma=0"),
    (Matmul(32, 768, 3072), "block_m=32,swap_operands=1,smem_stages=8,split_k=3"),
    (Conv2d(8, 28, 28, 64, 128, (3, 3), epilogue=ADDED), "block_m=128,block_n=128,consumers=2"),
    (Conv2d(8, 28, 28, 64, 256, (1, 1), epilogue=FIRST), "block_m=128,block_n=256,consumers=2"),
)


@pytest.mark.parametrize(("problem", "text"), GATES, ids=[t for _, t in GATES])
def test_machine_code_is_what_the_family_promises(problem: Problem, text: str) -> None:
    assert_sound(problem, schedule(text))


@pytest.mark.slow
@pytest.mark.parametrize("point", list(points(130, small=False)), ids=lambda p: f"point {p.seed}")
def test_machine_code_of_drawn_points_is_sound(point: Point) -> None:
    assert_sound(point.problem, point.schedule)


@pytest.mark.parametrize("seed", [881, 886, 1348])
def test_costly_results_wait_for_their_panel(seed: int) -> None:
    """These spilled while ptxas finished the results of all panels at once."""
    point = draw(seed, small=False)
    assert_sound(point.problem, point.schedule)
    assert "one * accumulators" in emit_kernel(point.problem, point.schedule, SM_90A).source


@pytest.mark.parametrize(("block_n", "limit"), [(128, 41), (256, 46)])
@pytest.mark.parametrize("k", [4096, 768, 832])
def test_the_main_loop_is_no_longer_than_the_prototypes(k: int, block_n: int, limit: int) -> None:
    how = schedule(f"block_m=128,block_n={block_n},consumers=2,smem_stages=4")
    kernel = compile_kernel(Matmul(4096, 4096, k, rhs=K_MAJOR), how, SM_90A)
    loop = disassemble(kernel.cubin)["jaxpipe_hopper"].main_loop()
    assert 4 * len(loop) / tensor_instructions(loop) <= limit


def test_the_same_point_gives_the_same_bytes() -> None:
    problem, how = CASES["full epilogue"]
    again = replace(how, raster_group=how.raster_group)
    assert emit_kernel.__wrapped__(problem, how, SM_90A).source == (
        emit_kernel.__wrapped__(problem, again, SM_90A).source
    )


@pytest.mark.parametrize(
    ("name", "family"), [("h200", "hopper"), ("b200", "ampere"), ("rtx5090", "ampere")]
)
def test_the_family_follows_from_the_capabilities(name: str, family: str) -> None:
    problem = Matmul(4096, 4096, 4096)
    chosen = constructed(problem, device(name))[0]
    assert isinstance(chosen, GpuSchedule)
    assert chosen.family == family


def test_operands_that_wgmma_cannot_take_go_to_the_other_family() -> None:
    chosen = constructed(Matmul(512, 768, 768, dtype="int8"), device("h200"))[0]
    assert isinstance(chosen, GpuSchedule)
    assert chosen.family == "ampere"
