"""The CUDA launcher on a stand-in driver: parameters, contexts, threads, and what errors say."""

import struct
from collections import Counter
from dataclasses import replace

import pytest

from jaxpipe.kernel import Launch, Pointer
from tests.cuda import machine
from tests.cuda.machine import EXECUTE, FINISH, INITIALIZE, MAIN, TENSOR, Call

OK = (0, "")
FAILED_PRECONDITION, INVALID_ARGUMENT, INTERNAL = 9, 3, 13


def launches(log: list[str]) -> list[str]:
    return [line for line in log if line.startswith("launch")]


def test_stages_of_one_call_load_then_launch_in_order(child) -> None:
    answers, log = child(machine.run_once, Call())
    assert answers == [OK, OK, OK]
    assert [line.split()[0] for line in log] == ["load", "set", "launch", "launch"]
    assert log[1] == "set main 8 100000"


def test_launch_carries_grid_block_shared_bytes_and_cluster(child) -> None:
    _, log = child(machine.run_once, Call())
    first, second = launches(log)
    expected = "launch main device 0 4x2x1 128x1x1 shared 100000 attribute 4 2x1x1 "
    assert first.startswith(expected)
    assert second.startswith("launch finish device 0 8x1x1 256x1x1 shared 0 ")
    assert "attribute" not in second


def test_parameters_are_addresses_scalars_and_an_encoded_map(child) -> None:
    _, log = child(machine.run_once, Call())
    values = [bytes.fromhex(word) for word in launches(log)[0].split()[-5:]]
    tensor_map, out, int32, int64, float32 = values
    assert struct.unpack("<Q", out) == (0x20000 + 64,)
    assert struct.unpack("<i", int32) == (-3,)
    assert struct.unpack("<q", int64) == (1 << 40,)
    assert struct.unpack("<f", float32) == (0.5,)
    words = struct.unpack("<16Q", tensor_map)
    assert words[0] == 0x10000 + 32
    assert (
        words[1] == 9 | 2 << 8 | 3 << 16 | 2 << 24
    )  # bfloat16, rank 2, swizzle 128, promotion 128
    assert words[2:4] == (64, 128)
    assert words[7] == 128
    assert words[11:13] == (64 | 1 << 32, 32 | 1 << 32)


def test_tensor_maps_follow_the_buffers_from_call_to_call(child) -> None:
    args = [(0x70000, 16384), (0x80000, 8192)]
    _, log = child(machine.run_once, Call(), args=args)
    tensor_map = bytes.fromhex(launches(log)[0].split()[-5])
    assert struct.unpack_from("<Q", tensor_map) == (0x70000 + 32,)


def test_each_context_gets_a_module_of_its_own_and_only_one(child) -> None:
    answers, log = child(machine.on_two_devices, Call(), 3)
    assert set(answers) == {OK}
    assert [line for line in log if line.startswith("load")] == [
        "load sm_90a device 0",
        "load sm_80 device 1",
    ]
    assert Counter(" ".join(line.split()[1:4]) for line in launches(log)) == {
        "main device 0": 3, "finish device 0": 3, "main device 1": 3, "finish device 1": 3,
    }  # fmt: skip


def test_execute_never_loads(child) -> None:
    code, message = child(machine.execute_only, Call(key="never initialised"), 0)
    assert code == FAILED_PRECONDITION
    assert "kernel matmul_test was not loaded in this context" in message


def test_a_new_context_at_a_dead_ones_address_is_not_mistaken_for_it(child) -> None:
    log, unknown = child(machine.second_context_with_a_dead_ones_address, Call(key="dead context"))
    assert unknown[0] == FAILED_PRECONDITION
    assert [line.split()[0] for line in log] == ["load", "set", "launch", "launch"]


def test_handlers_may_be_captured_in_command_buffers(child) -> None:
    assert child(machine.traits, EXECUTE) == 1


def test_eight_threads_share_modules_and_mix_no_parameters(child) -> None:
    answers, log = child(machine.threads, 8, 30)
    assert set(answers) == {OK}
    assert sum(line.startswith("load") for line in log) == 3
    assert len(launches(log)) == 2 * 8 * 30
    for line in launches(log):
        if not line.startswith("launch main"):
            continue
        tensor_map, out = (bytes.fromhex(word) for word in line.split()[-5:-3])
        (lhs,) = struct.unpack_from("<Q", tensor_map)
        assert struct.unpack("<Q", out)[0] - lhs == 0x10000 + 64 - 32


GREEDY = replace(MAIN, shared_bytes=240_000)
SKEWED = replace(MAIN, params=(replace(TENSOR, strides_bytes=(130,)), *MAIN.params[1:]))
DRIVER_ERRORS = {
    "wrong arch": (
        Call(target="sm_80", key="a"),
        INITIALIZE,
        "cuModuleLoadData failed: CUDA_ERROR_NO_BINARY_FOR_GPU (209); kernel matmul_test is for "
        "sm_80, device 0 is Fake sm_90 (sm_90, driver for CUDA 13.0); fake log",
    ),
    "missing entry": (
        Call(entries=("main",), key="b"),
        INITIALIZE,
        "cuModuleGetFunction failed: CUDA_ERROR_NOT_FOUND (500); no entry finish; kernel matmul",
    ),
    "too much shared memory": (
        Call(launches=(GREEDY, FINISH), key="c"),
        INITIALIZE,
        "cuFuncSetAttribute(MAX_DYNAMIC_SHARED_SIZE_BYTES) failed: CUDA_ERROR_INVALID_VALUE (1); "
        "main needs 240000 bytes of shared memory per block",
    ),
    "bad stride": (
        Call(launches=(SKEWED, FINISH), key="d"),
        EXECUTE,
        "cuTensorMapEncodeTiled failed: CUDA_ERROR_INVALID_VALUE (1); dims 64x128, strides 130 "
        "bytes, box 64x32, element strides 1x1, 2-byte elements, swizzle 128",
    ),
}


@pytest.mark.parametrize("name", DRIVER_ERRORS)
def test_a_driver_error_names_call_code_kernel_and_values(child, name) -> None:
    call, stage, text = DRIVER_ERRORS[name]
    answers, _ = child(machine.run_once, call)
    code, message = answers[{INITIALIZE: 1, EXECUTE: 2}[stage]]
    assert code == INTERNAL
    assert message.startswith(text)


RHS, WORKSPACE = (0x20000, 8192), (0x30000, 256)


@pytest.mark.parametrize(
    ("execute", "message"),
    [
        ({"args": [(0x10000, 16384)]}, "was lowered for 2 operands, the call has 1"),
        ({"args": [(0x10000, 16383), RHS]}, "lhs was lowered for 16384 bytes, the call has 16383"),
        ({"args": [(0x10008, 16384), RHS]}, "lhs is at address 65544, kernels need a multiple"),
        ({"rets": [(0x10000, 16384)]}, "was lowered for 2 results, the call has 1"),
        ({"rets": [(0x10001, 16384), WORKSPACE]}, "out is at address 65537"),
    ],
)
def test_buffers_that_do_not_fit_are_refused_not_read(child, execute, message) -> None:
    answers, log = child(machine.run_once, Call(), **execute)
    assert answers[2][0] == INVALID_ARGUMENT
    assert message in answers[2][1]
    assert launches(log) == []


@pytest.mark.parametrize("cubin", [b"", b"not zlib at all", b"\x78\x9c\x01"])
def test_a_damaged_binary_is_refused_with_its_size(child, cubin) -> None:
    code, message = child(machine.initialize_with, Call(key=f"damaged {cubin!r}"), cubin)
    assert code == INVALID_ARGUMENT
    assert "zlib stream" in message
    assert str(len(cubin)) in message


def test_a_recipe_of_another_version_is_refused_when_the_program_is_built(child) -> None:
    bad = Call(launches=(Launch("main", (0, 1, 1), (1, 1, 1), 0, (Pointer("out"),)),))
    answers, log = child(machine.run_once, bad)
    assert [code for code, _ in answers] == [INVALID_ARGUMENT] * 3
    assert log == []


def test_clusters_above_eight_blocks_are_opted_into(child) -> None:
    big = Call(launches=(replace(MAIN, cluster=(16, 1, 1)), FINISH), key="big cluster")
    _, log = child(machine.run_once, big)
    assert "set main 14 1" in log


def test_timing_replays_a_graph_over_rotating_buffers(child) -> None:
    seconds, log = child(machine.timed, Call(key="timed"), launches=6, samples=4, sets=3)
    assert seconds == pytest.approx([2 * 10e-6] * 4)  # two grids a call, 10 us each
    assert len(launches(log)) == (1 + 4) * 6 * 2
    outs = [line.split()[-1] for line in launches(log) if line.startswith("launch finish")]
    assert len(set(outs[:3])) == 3
    assert outs[:3] == outs[3:6]


def test_unloading_frees_modules_and_execute_then_says_so(child) -> None:
    count, (_, live), answer = child(machine.unload_and_execute, Call(key="unloaded"))
    assert (count, live) == (1, 0)
    assert answer[0] == FAILED_PRECONDITION


def test_driver_and_devices_are_told(child) -> None:
    (path, version), devices = child(machine.driver)
    assert path.endswith("libfake_cuda.so")
    assert version == 13000
    assert [d["compute_capability"] for d in devices] == [(9, 0), (8, 0)]
    assert devices[1]["shared_per_block_bytes"] == 166912


def test_a_second_driver_is_refused(child) -> None:
    message = child(machine.set_other_driver)
    assert "already open from" in message
    assert "/nowhere/libcuda.so" in message


def test_a_kernel_that_writes_nothing_is_wrong_not_fast(child) -> None:
    measured, log = child(machine.direct, "sm_90a")
    assert measured.status == "wrong_result"
    assert "nan times its limit" in measured.reason
    assert len(launches(log)) == 2


def test_a_kernel_that_cannot_be_loaded_is_a_status(child) -> None:
    measured, log = child(machine.direct, "sm_80")
    assert measured.status == "launch_failed"
    assert "CUDA_ERROR_NO_BINARY_FOR_GPU" in measured.reason
    assert log == []
