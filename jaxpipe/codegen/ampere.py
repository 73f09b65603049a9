"""CUDA C++ for sm_80 and later: cp.async, ldmatrix, mma.sync.

In: lowered nests of a problem. Out: a Kernel, self-contained. Every line of a main loop follows
from a statement of the nest; this module names what the statements share (rings in shared memory,
copy plans, fragments) and prints the leaves. It must not know devices or JAX.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from jaxpipe import dynamic
from jaxpipe.codegen.copies import CopyPlan, copy_plan
from jaxpipe.codegen.copy_text import Operand, Site, Source, matrix_setup, matrix_source
from jaxpipe.codegen.cuda import (
    Frame,
    Ranges,
    device_file,
    frame_of,
    positions,
    signature,
    statements,
)
from jaxpipe.codegen.epilogue import Results
from jaxpipe.codegen.finish import Finish
from jaxpipe.codegen.fragment_text import (
    Fragments,
    fragments_of,
    load_lines,
    multiply_function,
    multiply_line,
    row_bytes,
    tile_bytes,
)
from jaxpipe.codegen.fragments import Operand as Side
from jaxpipe.codegen.fragments import reader
from jaxpipe.codegen.instructions import MmaInstruction, mma_of
from jaxpipe.codegen.reduce import reduce_lines
from jaxpipe.codegen.swizzle import NONE, swizzle
from jaxpipe.codegen.text import UNROLL, indented
from jaxpipe.codegen.window_text import window_setup, window_source
from jaxpipe.dtypes import DTYPES
from jaxpipe.ir.affine import bounds
from jaxpipe.ir.nodes import (
    Barrier,
    Buffer,
    CommitGroup,
    Copy,
    Fill,
    For,
    If,
    Mma,
    Stmt,
    Store,
    WaitGroup,
)
from jaxpipe.ir.visit import Body, buffers, counter_range, loop_range, refined, walk
from jaxpipe.kernel import Kernel, Launch, Pointer
from jaxpipe.problem import Problem
from jaxpipe.schedule import GpuSchedule, row_vector
from jaxpipe.target import Arch
from jaxpipe.transform.recipe import REDUCE_WARPS, Lowered

ENTRY = "jaxpipe_ampere"
REDUCE_ENTRY = "jaxpipe_reduce"
SIDES: tuple[Side, Side] = ("lhs", "rhs")


def emit_ampere(
    problem: Problem, schedule: GpuSchedule, arch: Arch, lowered: tuple[Lowered, ...]
) -> Kernel:
    """The kernel of lowered nests: one launch each, workspace between them."""
    main, *rest = (launch.func for launch in lowered)
    product = _Product(frame_of(main), problem, schedule, arch)
    body = [*product.kernel()]
    launches = [product.launch()]
    for func in rest:
        frame = frame_of(func)
        body += ["", *_reduce_kernel(frame)]
        launches.append(_launch(frame, REDUCE_ENTRY, 32 * REDUCE_WARPS, 0))
    head = [f"// {problem}", f"// {schedule}", f"// for {arch.name}; emitted by jaxpipe", ""]
    parts = [device_file(name) for name in _device_files("\n".join(body), problem)]
    if product.has_main_loop:
        blocks = schedule.warp_m // 16, schedule.warp_n // 16
        parts += [product.instruction.wrapper(), multiply_function(product.instruction, blocks)]
    source = "\n".join([*head, *parts, *body]) + "\n"
    workspace = sum(_bytes(p) for p in main.params if p.role == "workspace")
    sizes = dynamic.sizes(problem)
    return Kernel(ENTRY, source, arch.name, problem, schedule, tuple(launches), workspace, sizes)


def _bytes(buffer: Buffer) -> int:
    count = DTYPES[buffer.dtype].size_bytes
    for size in buffer.shape:
        count *= size
    return count


def _device_files(body: str, problem: Problem) -> Iterator[str]:
    """Files that the kernels use, in the order of their dependence."""
    epilogue = problem.epilogue
    types = {
        problem.dtype,
        problem.out_dtype,
        problem.bias_dtype if epilogue.bias != "none" else "",
    }
    yield "epilogue_math.cuh"
    if any(t.startswith("float8") for t in types):
        yield "fp8.cuh"
    yield "vector.cuh"
    yield "shared_memory.cuh"
    for words, name in (
        (("copy_async", "commit_group"), "cp_async.cuh"),
        (("load_unaligned",), "copy_unaligned.cuh"),
        (("round_tf32",), "tf32.cuh"),
        (("ldmatrix", "gather_"), "ldmatrix.cuh"),
        (("gather_",), "gather_bytes.cuh"),
    ):
        if any(word in body for word in words):
            yield name


def _launch(frame: Frame, entry: str, threads: int, shared_bytes: int) -> Launch:
    params = tuple(Pointer(p.role) for p in frame.func.params if p.role is not None)
    return Launch(entry, (frame.blocks(), 1, 1), (threads, 1, 1), shared_bytes, params)


def _reduce_kernel(frame: Frame) -> list[str]:
    """The second launch of split-K."""
    return [
        *signature(frame.func, REDUCE_ENTRY, 32 * REDUCE_WARPS, 1),
        *indented([*positions(frame, 1), *reduce_lines(frame)]),
        "}",
    ]


@dataclass(frozen=True, slots=True)
class _Product:
    """The tensor-core kernel: the nest, and what its statements share."""

    frame: Frame
    problem: Problem
    schedule: GpuSchedule
    arch: Arch

    @property
    def instruction(self) -> MmaInstruction:
        return mma_of(self.problem.dtype, self.arch)

    @property
    def has_main_loop(self) -> bool:
        return any(isinstance(s, Mma) for s in walk(self.frame.body))

    @property
    def shared_bytes(self) -> int:
        return self.schedule.shared_bytes(self.problem)

    def launch(self) -> Launch:
        fixed = _launch(self.frame, ENTRY, self.schedule.threads, self.shared_bytes)
        tiles = dynamic.grid(self.problem, self.schedule.block_m)
        left = frozenset({"m0"} if self.frame.rows else ())
        ones = dynamic.LIMIT if "batch0" in self.problem.dynamic else 1
        grid = (self.frame.blocks(left) // ones, 1, 1)
        params = (*fixed.params, *dynamic.parameters(self.problem))
        return replace(fixed, grid=grid, params=params, tiles=tiles)

    def kernel(self) -> list[str]:
        printer = _Printer(self)
        body: list[str] = []
        for heading, part in _sections(self.frame.body):
            body += ["", *heading, *statements(part, printer.leaf, self.frame.ranges)]
        return [
            *signature(
                self.frame.func, ENTRY, self.schedule.threads, self.schedule.min_blocks_per_sm
            ),
            *indented(
                [
                    "extern __shared__ __align__(1024) unsigned char dynamic_shared[];",
                    "const unsigned shared = shared_address(dynamic_shared);",
                    *positions(self.frame, self.schedule.raster_group),
                    *printer.setup(),
                    *body,
                ]
            ),
            "}",
        ]


class _Printer:
    """Prints the leaves of one product's nest."""

    def __init__(self, product: _Product) -> None:
        self.product = product
        self.buffers = buffers(product.frame.func)
        self.operands: dict[str, Operand] = {}
        self.fragments: dict[str, Fragments] = {}
        offset = 0
        for side in SIDES:
            shared = self.buffers.get(f"{side}_shared")
            if shared is None or not product.has_main_loop:
                continue
            self.fragments[side] = self._fragments(side, shared, offset)
            self.operands[side] = self._operand(side, shared, offset)
            offset += shared.stages * tile_bytes(shared)

    def _fragments(self, side: Side, shared: Buffer, offset: int) -> Fragments:
        schedule = self.product.schedule
        source = next(
            s.src
            for s in walk(self.product.frame.body)
            if isinstance(s, Copy) and s.dst.buffer == f"{side}_reg"
        )
        span = schedule.warp_m if side == "lhs" else schedule.warp_n
        return fragments_of(
            side, shared, offset, source, span, (schedule.warps_m, schedule.warps_n)
        )

    def _operand(self, side: Side, shared: Buffer, offset: int) -> Operand:
        frame, source = self.product.frame, self.buffers[side]
        sites = tuple(
            site for site in _sites(frame.body, frame.ranges) if site.copy.src.buffer == side
        )
        is_staged = sites[0].copy.mode != "async"
        plan = _plan(source, shared, self.product.schedule.threads, is_staged=is_staged)
        return Operand(side, source, shared, offset, plan, frame.fixed, is_staged, sites)

    # ------------------------------------------------------------------ set-up
    def setup(self) -> list[str]:
        """Everything that a thread computes once."""
        lines: list[str] = []
        for operand in self.operands.values():
            lines += ["", *operand.setup(), *self._source_setup(operand)]
        if self.fragments:
            lines += ["", "// Fragments and accumulators"]
        for fragments in self.fragments.values():
            lines += fragments.setup()
            stages = self.buffers[fragments.registers].stages
            lines.append(fragments.declaration(stages))
        schedule = self.product.schedule
        kind = "int" if self.product.problem.accumulator == "int32" else "float"
        shape = f"[{schedule.warp_m // 16}][{schedule.warp_n // 8}][4]"
        return [*lines, f"{kind} acc{shape};"]

    def _source_setup(self, operand: Operand) -> list[str]:
        is_window = operand.source.window is not None
        return window_setup(operand) if is_window else matrix_setup(operand)

    # ------------------------------------------------------------------ leaves
    def leaf(self, statement: Stmt, ranges: Ranges) -> list[str]:
        """Lines of one leaf."""
        match statement:
            case Fill(value=0.0):
                return self._clear()
            case Copy():
                return self._copy(statement, ranges)
            case Mma():
                return [multiply_line(statement)]
            case CommitGroup():
                return ["commit_group();"]
            case WaitGroup(pending):
                return [f"wait_group<{pending}>();"]
            case Barrier():
                return ["__syncthreads();"]
            case Store():
                return self._results(statement, ranges).lines()
            case _:
                raise NotImplementedError(f"no CUDA text for {type(statement).__name__}")

    def _clear(self) -> list[str]:
        schedule = self.product.schedule
        return [
            UNROLL,
            f"for (int i = 0; i < {schedule.warp_m // 16}; ++i)",
            UNROLL,
            f"  for (int j = 0; j < {schedule.warp_n // 8}; ++j)",
            UNROLL,
            "    for (int e = 0; e < 4; ++e) acc[i][j][e] = 0;",
        ]

    def _copy(self, copy: Copy, ranges: Ranges) -> list[str]:
        scopes = self.buffers[copy.src.buffer].scope, self.buffers[copy.dst.buffer].scope
        match scopes:
            case "global", "shared" | "staging":
                operand = self.operands[copy.src.buffer]
                site = Site(copy, ranges)
                return operand.issue(site, self._source(operand, site))
            case "staging", "shared":
                return self.operands[copy.dst.buffer.removesuffix("_shared")].put(copy)
            case "shared", "register":
                return load_lines(copy, self.fragments[copy.dst.buffer.removesuffix("_reg")])
            case _:
                raise NotImplementedError(f"no CUDA text for a copy {scopes[0]} -> {scopes[1]}")

    def _source(self, operand: Operand, site: Site) -> Source:
        is_window = operand.source.window is not None
        return window_source(operand, site) if is_window else matrix_source(operand, site)

    def _results(self, store: Store, ranges: Ranges) -> Results:
        out = self.buffers[store.dst.buffer]
        vector = row_vector(out.size("n"), DTYPES[out.dtype].size_bytes)
        at = {a: i for i, a in enumerate(out.axes)}
        inside = {
            a: bounds(store.dst.starts[at[a]], ranges)[1] + store.dst.extents[at[a]] <= out.size(a)
            for a in ("m", "n")
        }
        permuted = [
            side in self.fragments and self.fragments[side].tile.loader == "bytes" for side in SIDES
        ]
        return Results(
            finish=Finish(store, self.buffers, vector),
            warp_m=self.product.schedule.warp_m,
            warp_n=self.product.schedule.warp_n,
            row=store.dst.starts[at["m"]],
            column=store.dst.starts[at["n"]],
            is_permuted=(permuted[0], permuted[1]),
            rows_inside=inside["m"],
            columns_inside=inside["n"],
        )


def _sections(body: Body) -> Iterator[tuple[list[str], Body]]:
    """The block's statements under the headings that a reader looks for."""
    store = next(i for i, s in enumerate(body) if isinstance(s, Store))
    copies = [i for i, s in enumerate(body) if _loads(s)]
    edges = [(0, "")]
    if copies:
        steady = [i for i in copies if isinstance(body[i], For)][:1]
        edges += [(copies[0], "Prologue: fill the pipeline")]
        edges += [(i, "Steady state: load ahead, multiply") for i in steady]
        edges += [(max(steady or copies) + 1, "Drain: what is loaded already")]
    edges.append((store, "Epilogue"))
    ends = [start for start, _ in edges[1:]] + [len(body)]
    for (start, title), end in zip(edges, ends, strict=True):
        if part := body[start:end]:
            yield ([f"// {title}"] if title else []), part


def _loads(statement: Stmt) -> bool:
    """True for a copy from global memory, and for a loop with one."""
    return any(isinstance(s, Copy) and s.src.buffer in SIDES for s in walk((statement,)))


def _plan(source: Buffer, shared: Buffer, threads: int, *, is_staged: bool) -> CopyPlan:
    """Vectors as wide as the alignment of the source's rows allows."""
    size = DTYPES[shared.dtype].size_bytes
    width = row_bytes(shared)
    pattern = swizzle(width, reader(shared.axes[-1] == "k", size)) if shared.swizzle else NONE
    vector_bytes = 16 if is_staged else source.align_bytes
    return copy_plan(shared.shape[0], width, vector_bytes, threads, pattern)


def _sites(body: Body, ranges: Ranges) -> Iterator[Site]:
    """Every Copy with the ranges of the variables around it."""
    for statement in body:
        match statement:
            case For():
                scope = {**ranges, statement.var: loop_range(statement)}
                scope |= {c.name: counter_range(c, statement) for c in statement.counters}
                yield from _sites(statement.body, scope)
            case If(conditions, inner):
                yield from _sites(inner, refined(ranges, conditions))
            case Copy():
                yield Site(statement, ranges)
            case _:
                continue
