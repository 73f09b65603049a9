"""What explain says: parts, bounds, verdicts, alternatives; for the command line and functions."""

import argparse
from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

import jaxpipe
from jaxpipe.epilogue import Epilogue
from jaxpipe.errors import ProblemError, ScheduleError
from jaxpipe.explain import add_arguments, explain, problem_of, run
from jaxpipe.explain_plot import timeline
from jaxpipe.explain_report import MEANING, lines, report
from jaxpipe.model.loop import BOUNDS
from jaxpipe.model.pipeline import makespan
from jaxpipe.problem import Matmul
from jaxpipe.schedule import GpuSchedule
from jaxpipe.target import DEVICES, HostDevice

A100 = DEVICES["a100"]
HOST = HostDevice("test_cpu", "avx2", 2, 3e9)
PROBLEM = Matmul(1024, 64, 2048)
SHAPE = jax.ShapeDtypeStruct
HEADINGS = ("where the time goes", "occupancy", "waves", "roofline", "pipelining", "next best")


def parsed(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    return parser.parse_args(words)


def test_every_bound_has_a_meaning() -> None:
    assert {*BOUNDS, "launch", "epilogue"} <= set(MEANING)


@pytest.mark.parametrize("name", list(DEVICES))
def test_a_report_covers_time_occupancy_roofline_and_alternatives(name: str) -> None:
    text = "\n".join(lines(report(PROBLEM, DEVICES[name])))
    assert [heading for heading in HEADINGS if heading not in text] == []


def test_a_report_gives_a_verdict_on_every_pipelined_buffer() -> None:
    found = report(PROBLEM, A100).verdicts
    assert {v.buffer for v in found} >= {"lhs_shared", "rhs_shared"}
    text = "\n".join(lines(report(PROBLEM, A100)))
    assert "lhs_shared (shared): " in text


def test_the_parts_of_a_report_add_up() -> None:
    found = report(PROBLEM, A100)
    assert sum(s for _, s in found.choice.prediction.parts) == pytest.approx(found.seconds)


def test_a_worse_schedule_is_told_what_would_help() -> None:
    poor = GpuSchedule(block_m=64, block_n=64, block_k=64, smem_stages=1, reg_stages=1)
    helped = report(PROBLEM, A100, poor).would_help
    assert any(c.what.startswith("smem_stages=2") for c in helped)
    assert [c.seconds for c in helped] == sorted(c.seconds for c in helped)


def test_an_illegal_schedule_is_refused() -> None:
    with pytest.raises(ScheduleError, match="illegal"):
        report(PROBLEM, A100, GpuSchedule(block_m=24))


def test_no_report_is_above_the_roofline() -> None:
    found = report(PROBLEM, A100)
    assert found.flops_hz <= found.ceiling_flops_hz


def test_the_host_report_tells_items_and_threads() -> None:
    text = "\n".join(lines(report(Matmul(512, 768, 768, dtype="float32"), HOST)))
    assert "threads of avx2" in text
    assert "multiply" in text


def test_the_command_prints_and_draws(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    picture = tmp_path / "x.png"
    words = ["matmul", "1024", "64", "2048", "--target", "a100", "--plot", str(picture)]
    assert run(parsed(*words)) == 0
    assert "predicted" in capsys.readouterr().out
    assert picture.read_bytes()[:4] == b"\x89PNG"


def test_the_command_lays_fields_over_the_chosen_schedule(
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = ["matmul", "512", "768", "768", "--target", "a100", "--schedule", "smem_stages=2"]
    assert run(parsed(*words)) == 0
    out = capsys.readouterr().out
    assert "smem_stages=2" in out
    assert "source     explicit" in out


@pytest.mark.parametrize(
    "words",
    [
        "conv2d 8 28 28 128 128 3 3 --padding 1 --target h200",
        "matmul 512 512 64 --batch 12 --layout nt --target h200",
        "matmul 512 768 768 --bias column --activation gelu_erf --residual",
        "conv 1 14 14 64 64 3 3 --bias column --activation relu --residual-first",
        "matmul 8 768 768 --dtype float32 --target host",
    ],
)
def test_the_command_takes_every_kind_of_problem(
    words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(parsed(*words.split())) == 0
    assert capsys.readouterr().out.startswith(words.split()[0])


def test_a_residual_comes_before_the_activation_when_told_so() -> None:
    words = "matmul 8 8 8 --activation relu --residual-first"
    assert problem_of(parsed(*words.split())).epilogue.describe() == "residual_first+relu"


def test_missing_sizes_are_named() -> None:
    with pytest.raises(ProblemError, match="matmul takes 3 sizes, got 2: m n k"):
        run(parsed("matmul", "8", "8"))


def test_a_functions_products_are_explained_with_their_epilogues() -> None:
    def layer(x: jax.Array, w: jax.Array, b: jax.Array) -> jax.Array:
        y = jaxpipe.dot(x, w, bias=b, activation="relu")
        return jax.lax.fori_loop(0, 3, lambda _, z: jax.nn.tanh(z @ w.T @ w), y)

    shapes = [SHAPE((512, 768), jnp.bfloat16), SHAPE((768, 768), jnp.bfloat16)]
    text = explain(jax.jit(layer), *shapes, SHAPE((768,), jnp.bfloat16), target="a100")
    assert text.count("predicted") == 3
    assert "bias+relu on a100" in text


def test_a_function_without_products_says_so() -> None:
    assert explain(jnp.sin, 1.0) == "no products and no convolutions"


def test_a_product_that_no_kernel_takes_is_named_with_the_reason() -> None:
    text = explain(lambda a: a @ a, SHAPE((4, 4), jnp.complex64), target="a100")
    assert "goes to XLA" in text


@pytest.mark.parametrize("stages", [1, 2, 3, 5])
@pytest.mark.parametrize("load", [0.5, 2.0, 9.0])
def test_the_drawn_timeline_ends_when_the_latency_model_says(load: float, stages: int) -> None:
    *_, last = timeline(load, 1.0, stages, 12)
    assert last.use_end == pytest.approx(float(makespan(load, 1.0, stages, 1, 12)))


def test_an_epilogue_shows_in_the_prediction() -> None:
    plain = Matmul(4096, 4096, 512)
    heavy = replace(plain, epilogue=Epilogue(bias="column", activation="gelu_erf", residual=True))
    assert report(heavy, A100).seconds > report(plain, A100).seconds
