"""The words that carry a launch: what Python writes, csrc/recipe.cc reads."""

import re
from dataclasses import replace

import pytest

from jaxpipe import _native
from jaxpipe.errors import UnsupportedError
from jaxpipe.kernel import Kernel, Launch, Pointer, Scalar, Size, SizeOf, TensorMap, Tiles
from jaxpipe.problem import Matmul
from jaxpipe.runtime import recipe
from jaxpipe.runtime.recipe import Buffer
from jaxpipe.schedule import GpuSchedule

TENSOR = TensorMap("lhs", "bfloat16", (64, 128, 1), (128, 16384), (64, 128, 1), (1, 1, 1))
PARAMS = (
    TENSOR,
    Pointer("out", 64),
    Scalar("int32", -3),
    Scalar("int64", 1 << 40),
    Scalar("float32", 0.5),
)
OPERANDS = (Buffer("lhs", 16384), Buffer("rhs", 8192))
RESULTS = (Buffer("out", 16384), Buffer("workspace", 256))


def kernel(*launches: Launch) -> Kernel:
    return Kernel("k", "source", "sm_90a", Matmul(128, 64, 64), GpuSchedule(), launches, 256)


def launch(*params: object, **fields: object) -> Launch:
    values = {"entry": "main", "grid": (4, 2, 1), "block": (128, 1, 1), "shared_bytes": 49152}
    return Launch(params=params, **(values | fields))


def tensor(dims: tuple[int, ...], strides: tuple[int, ...], box: tuple[int, ...]) -> TensorMap:
    return TensorMap("lhs", "bfloat16", dims, strides, box, (1,) * len(dims))


def encode(*launches: Launch) -> recipe.Recipe:
    return recipe.encode(kernel(*launches), OPERANDS, RESULTS)


def describe(encoded: recipe.Recipe) -> str:
    return _native.describe_recipe(list(encoded.words), encoded.names)


def test_the_decoder_reads_what_the_encoder_wrote() -> None:
    text = describe(
        encode(launch(*PARAMS, cluster=(2, 1, 1)), launch(Pointer("workspace"), entry="sum"))
    )
    assert text == (
        "k for sm_90a\n"
        "lhs 16384, rhs 8192 -> out 16384, workspace 256\n"
        "main<<<(4,2,1), (128,1,1), 49152, cluster (2,1,1)>>>"
        "(map lhs, out+64, -3, 1099511627776, 0.5f)\n"
        "sum<<<(4,2,1), (128,1,1), 49152>>>(workspace)\n"
    )


@pytest.mark.parametrize("cut", range(1, len(encode(launch(*PARAMS)).words)))
def test_a_truncated_recipe_is_refused(cut: int) -> None:
    encoded = encode(launch(*PARAMS))
    with pytest.raises(ValueError, match=r"recipe ends at word|version none"):
        _native.describe_recipe(list(encoded.words[:cut]), encoded.names)


SIZED = recipe.encode(
    replace(
        kernel(
            launch(replace(TENSOR, sized=((1, "m"),)), SizeOf("m", 3), tiles=(Tiles("m", 3, 32),))
        ),
        sizes=(Size("m", "out", 1000),),
    ),
    (Buffer("lhs", 128, ("m",)), Buffer("rhs", 8192)),
    (Buffer("out", 128, ("m",)),),
)


def test_sizes_that_a_call_brings_are_read() -> None:
    assert SIZED.words[:4] == (2, 1, recipe.ROLE_WORD["out"], 1000)
    assert "(map lhs, size 0 * 3)" in describe(SIZED)


@pytest.mark.parametrize("cut", range(1, len(SIZED.words)))
def test_a_truncated_recipe_with_sizes_is_refused(cut: int) -> None:
    with pytest.raises(ValueError, match=r"recipe ends at word"):
        _native.describe_recipe(list(SIZED.words[:cut]), SIZED.names)


def test_trailing_words_are_refused() -> None:
    encoded = encode(launch())
    with pytest.raises(ValueError, match="1 words too many"):
        _native.describe_recipe([*encoded.words, 0], encoded.names)


def test_an_old_version_names_both_versions() -> None:
    encoded = encode(launch())
    with pytest.raises(ValueError, match="recipe version 0, this jaxpipe reads versions 1 and 2"):
        _native.describe_recipe([0, *encoded.words[1:]], encoded.names)


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (launch(grid=(0, 1, 1)), "(grid) is 0, limits are 1 to"),
        (launch(block=(2048, 1, 1)), "(block) is 2048, limits are 1 to 1024"),
        (launch(Pointer("bias")), "points into bias at byte 0, the call has no such buffer"),
        (launch(Pointer("out", 16385)), "points into out at byte 16385"),
        (launch(tensor((0,), (), (64,))), "(tensor dim) is 0"),
        (launch(tensor((64, 2), (8,), (64, 2))), "(tensor stride) is 8"),
        (launch(tensor((512,), (), (512,))), "(tensor box) is 512"),
    ],
)  # fmt: skip
def test_an_impossible_launch_is_refused_with_its_value(bad: Launch, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        describe(encode(bad))


@pytest.mark.parametrize(
    ("launches", "message"),
    [
        ([launch()] * 5, "5 launches, the launcher takes 4"),
        ([launch(*[Pointer("lhs")] * 25)], "25 parameters of main, the launcher takes 24"),
        ([launch(*[TENSOR] * 7)], "7 tensor maps of main, the launcher takes 6"),
    ],
)
def test_more_than_the_decoder_holds_is_refused_when_encoding(
    launches: list[Launch], message: str
) -> None:
    with pytest.raises(UnsupportedError, match=message):
        encode(*launches)
