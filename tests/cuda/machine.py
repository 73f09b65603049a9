"""What happens in the child: the extension's handlers called as XLA calls them, on a fake GPU.

Device 0 is an sm_90, device 1 an sm_80. Every function here is run in a process of its own that
opened csrc/tests/fake_cuda.cc as its driver; results are plain data.
"""

import ctypes
import itertools
import threading
import zlib
from dataclasses import dataclass, replace

from jaxpipe import _native
from jaxpipe.kernel import CompiledKernel, Kernel, Launch, Pointer, Scalar, Size, TensorMap
from jaxpipe.problem import Matmul
from jaxpipe.runtime import recipe
from jaxpipe.runtime.recipe import Buffer
from jaxpipe.schedule import GpuSchedule

INSTANTIATE, INITIALIZE, EXECUTE = 0, 2, 3
_STATE: dict[str, ctypes.CDLL] = {}
_KEYS = itertools.count()


def start(cuda_library: str, xla_library: str) -> None:
    """Runs once in the child."""
    _STATE["cuda"] = ctypes.CDLL(cuda_library)
    _STATE["cuda"].fake_stream.restype = ctypes.c_void_p
    _STATE["xla"] = ctypes.CDLL(xla_library)
    _native.cuda_set_driver(cuda_library)


def reset() -> None:
    _native.cuda_unload()
    _STATE["cuda"].fake_reset()


def log() -> list[str]:
    size = _STATE["cuda"].fake_log(None, 0)
    text = ctypes.create_string_buffer(size)
    _STATE["cuda"].fake_log(text, size)
    return text.value.decode().splitlines()


def stream(device: int) -> int:
    return _STATE["cuda"].fake_stream(device)


TENSOR = TensorMap(
    "lhs", "bfloat16", (64, 128), (128,), (64, 32), (1, 1), swizzle_bytes=128, offset_bytes=32
)
SCALARS = (Scalar("int32", -3), Scalar("int64", 1 << 40), Scalar("float32", 0.5))
PARAMS = (TENSOR, Pointer("out", 64), *SCALARS)
MAIN = Launch("main", (4, 2, 1), (128, 1, 1), 100_000, PARAMS, (2, 1, 1))
FINISH = Launch("finish", (8, 1, 1), (256, 1, 1), 0, (Pointer("workspace"), Pointer("out")))
PARAM_BYTES = {"main": (128, 8, 4, 8, 4), "finish": (8, 8), "sized": (128, 8, 4)}


@dataclass(frozen=True)
class Call:
    """One custom call: its kernel's launches, its buffers, what its binary is for."""

    launches: tuple[Launch, ...] = (MAIN, FINISH)
    operands: tuple[tuple, ...] = (("lhs", 16384), ("rhs", 8192))
    results: tuple[tuple, ...] = (("out", 16384), ("workspace", 256))
    target: str = "sm_90a"
    image_target: str = ""
    entries: tuple[str, ...] = ("main", "finish")
    key: str = "key"
    sizes: tuple[Size, ...] = ()

    def attributes(self) -> tuple[recipe.Recipe, bytes]:
        operands = [Buffer(*operand) for operand in self.operands]
        results = [Buffer(*result) for result in self.results]
        kernel = Kernel(
            "matmul_test", "", self.target, Matmul(128, 64, 64), GpuSchedule(), self.launches, 256,
            self.sizes,
        )  # fmt: skip
        lines = [f"{e} {' '.join(map(str, PARAM_BYTES[e]))}" for e in self.entries]
        image = "\n".join([self.image_target or self.target, *lines]) + "\n"
        return recipe.encode(kernel, operands, results), zlib.compress(image.encode())


def addresses(buffers, base: int) -> list[tuple[int, int]]:
    return [(base + 0x1000 * i, buffer[1]) for i, buffer in enumerate(buffers)]


def handler(stage: int) -> int:
    names = {INSTANTIATE: "instantiate", INITIALIZE: "initialize", EXECUTE: "execute"}
    capsule = _native.ffi_targets()["jaxpipe_cuda_launch"][names[stage]]
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    return get(capsule, b"xla._CUSTOM_CALL_TARGET")


def traits(stage: int) -> int:
    return _STATE["xla"].fake_traits(ctypes.c_void_p(handler(stage)))


def invoke(
    stage: int, call: Call, stream_: int, args=None, rets=None, cubin: bytes | None = None
) -> tuple[int, str]:
    """One stage of one call: (error code or 0, message)."""
    encoded, compressed = call.attributes()
    args = addresses(call.operands, 0x10000) if args is None else args
    rets = addresses(call.results, 0x20000) if rets is None else rets
    if stage == INSTANTIATE:
        args, rets = [], []
    compressed = compressed if cubin is None else cubin
    texts = [compressed, call.key.encode(), encoded.names.encode()]
    message = ctypes.create_string_buffer(4096)
    code = _STATE["xla"].fake_call(
        ctypes.c_void_p(handler(stage)), stage, ctypes.c_void_p(stream_),
        *_buffers(args), *_buffers(rets),
        (ctypes.c_char_p * 3)(*texts), (ctypes.c_size_t * 3)(*map(len, texts)),
        (ctypes.c_int64 * len(encoded.words))(*encoded.words), ctypes.c_size_t(len(encoded.words)),
        message, ctypes.c_size_t(len(message)),
    )  # fmt: skip
    return code, message.value.decode()


def _buffers(buffers):
    count = len(buffers)
    return (
        ctypes.c_int(count),
        (ctypes.c_uint64 * count)(*(address for address, _ in buffers)),
        (ctypes.c_int64 * count)(*(size for _, size in buffers)),
    )


# ------------------------------------------------------------------ scenarios
def run_once(call: Call, device: int = 0, **execute) -> tuple[list[tuple[int, str]], list[str]]:
    """instantiate, initialize, execute on one stream: their answers, and the driver's log."""
    stream_ = stream(device)
    answers = [
        invoke(INSTANTIATE, call, 0),
        invoke(INITIALIZE, call, stream_),
        invoke(EXECUTE, call, stream_, **execute),
    ]
    assert _STATE["cuda"].fake_current_contexts() == 0, "a context stayed current"
    return answers, log()


def run_several(
    call: Call, calls: list[tuple[list, list]]
) -> tuple[list[tuple[int, str]], list[str]]:
    """One program executed on each pair of operands and results: answers, and the driver's log."""
    stream_ = stream(0)
    answers = [invoke(INITIALIZE, call, stream_)]
    answers += [invoke(EXECUTE, call, stream_, args, rets) for args, rets in calls]
    return answers, log()


def execute_only(call: Call, device: int) -> tuple[int, str]:
    return invoke(EXECUTE, call, stream(device))


def initialize_with(call: Call, cubin: bytes) -> tuple[int, str]:
    return invoke(INITIALIZE, call, stream(0), cubin=cubin)


def on_two_devices(call: Call, repeats: int) -> tuple[list[tuple[int, str]], list[str]]:
    """The same content on both devices, each stage several times, interleaved."""
    both = replace(call, target="sm_80", image_target="sm_80")
    streams = [stream(0), stream(1)]
    answers = [invoke(INITIALIZE, call, streams[0]), invoke(INITIALIZE, both, streams[1])]
    for _ in range(repeats):
        answers += [invoke(EXECUTE, call, streams[0]), invoke(EXECUTE, both, streams[1])]
        answers += [invoke(INITIALIZE, call, streams[0]), invoke(INITIALIZE, both, streams[1])]
    return answers, log()


def second_context_with_a_dead_ones_address(call: Call) -> tuple[list[str], tuple[int, str]]:
    """The device is reset between two runs: the context's address stays, its id does not."""
    stream_ = stream(0)
    invoke(INITIALIZE, call, stream_)
    _STATE["cuda"].fake_reset()
    unknown = invoke(EXECUTE, call, stream_)
    invoke(INITIALIZE, call, stream_)
    invoke(EXECUTE, call, stream_)
    return log(), unknown


def threads(count: int, repeats: int) -> tuple[list[tuple[int, str]], list[str]]:
    """`count` threads, each with a stream and addresses of its own, over three kernels at once."""
    calls = [Call(key=f"threads {next(_KEYS)}") for _ in range(3)]
    answers: list[tuple[int, str]] = []
    barrier = threading.Barrier(count)

    def work(thread: int) -> None:
        stream_ = stream(0)
        barrier.wait()
        for i in range(repeats):
            call = calls[(thread + i) % len(calls)]
            base = 0x100000 * (1 + thread)
            args, rets = addresses(call.operands, base), addresses(call.results, base + 0x10000)
            answers.append(invoke(INITIALIZE, call, stream_, args, rets))
            answers.append(invoke(EXECUTE, call, stream_, args, rets))

    workers = [threading.Thread(target=work, args=(t,)) for t in range(count)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return answers, log()


def timed(call: Call, launches: int, samples: int, sets: int):
    encoded, compressed = call.attributes()
    bases = [0x100000 * (i + 1) for i in range(sets)]
    calls = [
        (addresses(call.operands, base), addresses(call.results, base + 0x10000)) for base in bases
    ]
    seconds = _native.cuda_time(
        0, encoded.words, encoded.names, call.key, compressed, calls, launches, samples
    )
    return seconds, log()


def driver() -> tuple[tuple[str, int], list[dict]]:
    return _native.cuda_driver(), _native.cuda_devices()


def set_other_driver() -> str:
    try:
        _native.cuda_set_driver("/nowhere/libcuda.so")
    except RuntimeError as error:
        return str(error)
    return ""


def modules() -> tuple[int, int]:
    return _native.cuda_modules()


def unload_and_execute(call: Call) -> tuple[int, tuple[int, int], tuple[int, str]]:
    stream_ = stream(0)
    invoke(INITIALIZE, call, stream_)
    return _native.cuda_unload(), _native.cuda_modules(), invoke(EXECUTE, call, stream_)


def direct(target: str):
    """A kernel that writes nothing, measured outside of XLA: Measurement, and the driver's log."""
    from jaxpipe.runtime.direct import DirectBench
    from jaxpipe.runtime.timing import Plan

    problem = Matmul(32, 16, 64)
    params = (Pointer("lhs"), Pointer("rhs"), Pointer("out"))
    kernel = Kernel(
        "idle", "", target, problem, GpuSchedule(),
        (Launch("idle", (1, 1, 1), (32, 1, 1), 0, params),),
    )  # fmt: skip
    image = f"{target}\nidle 8 8 8\n".encode()
    compiled = CompiledKernel(kernel, f"idle {target}", "", image, (), "fake")
    bench = DirectBench(problem, plan=Plan(rotate_bytes=1, max_sets=2))
    return bench.measure(compiled), log()
