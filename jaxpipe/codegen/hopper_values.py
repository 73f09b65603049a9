"""Finished values of a Hopper epilogue as CUDA text: steps of the store on accumulators.

In: the nest, whose Store carries the steps, and its Geometry. Out: text that computes `v[4]`, the
results of the four accumulators that a thread holds for every 8 columns of b: 0 and 1 in row
lane/4 of a, 2 and 3 eight rows further. Source: PTX ISA, wgmma accumulator fragments.
"""

from __future__ import annotations

from dataclasses import dataclass

from jaxpipe.codegen.finish import DERIVATIVES, FUNCTIONS
from jaxpipe.codegen.hopper_nest import Nest, Results
from jaxpipe.codegen.hopper_source import is_gated
from jaxpipe.codegen.text import expression
from jaxpipe.geometry_hopper import Geometry
from jaxpipe.ir.nodes import Buffer, Region, Step


@dataclass(frozen=True, slots=True)
class Output:
    """One result: where it goes, its buffer, and the steps that lead to it, from the accumulator
    or (`follows`) from the output before it, which leaves its values in the accumulators."""

    region: Region
    buffer: Buffer
    steps: tuple[Step, ...]
    follows: bool

    @property
    def function(self) -> str:
        """Name of the device function that applies the steps."""
        return f"finish_{self.buffer.name}"

    @property
    def is_costly(self) -> bool:
        """True when a step is more than an addition, a product or a comparison."""
        return any(step.op not in ("scale", "add", "relu") for step in self.steps)


def outputs(results: Results) -> tuple[Output, ...]:
    """What the store writes, in order: saved values, then the result."""
    found: list[Output] = []
    steps: list[Step] = []
    for step in (*results.store.steps, Step("save", results.store.dst)):
        if step.op != "save":
            steps.append(step)
            continue
        assert step.operand is not None
        buffer = results.buffers[step.operand.buffer]
        found.append(Output(step.operand, buffer, tuple(steps), bool(found)))
        steps = []
    return tuple(found)


def operands(results: Results) -> tuple[Buffer, ...]:
    """Buffers that the steps read, in order: bias, residual."""
    steps = [s for s in results.store.steps if s.op != "save"]
    return tuple(results.buffers[s.operand.buffer] for s in steps if s.operand is not None)


def value_type(g: Geometry, stored: str = "") -> str:
    """C++ type in which results of dtype `stored` (default: this kernel's) are finished: sums of
    integers that stay integers are never turned into floats."""
    exact = g.wgmma.accumulator == "s32" and (stored or g.store_dtype) == "int32"
    return "int" if exact else "float"


# ---------------------------------------------------------------- one element
def finish_functions(kind: str, results: Results) -> str:
    """A device function an output: its steps on one element of C++ type `kind`."""
    return "\n".join(_finish(kind, results, output) for output in outputs(results))


def _finish(kind: str, results: Results, output: Output) -> str:
    read = [results.buffers[s.operand.buffer] for s in output.steps if s.operand is not None]
    parameters = [f"{kind} x", *(f"{kind} {b.name}" for b in read)]
    lines = [f"  x = {_step(results, step)};\n" for step in output.steps]
    words = ", ".join(step.op for step in output.steps) or "the sum itself"
    return f"""\
// {output.buffer.name}: {words}
__device__ __forceinline__ {kind} {output.function}({", ".join(parameters)}) {{
{"".join(lines)}  return x;
}}
"""


def _step(results: Results, step: Step) -> str:
    match step.op:
        case "scale":
            return f"x * {float_text(step.scalar)}"
        case "add":
            assert step.operand is not None
            return f"x + {results.buffers[step.operand.buffer].name}"
        case op if op in DERIVATIVES:
            assert step.operand is not None
            return f"x * {DERIVATIVES[op]}({results.buffers[step.operand.buffer].name})"
        case _:
            return f"{FUNCTIONS.get(step.op, step.op)}(x)"


def float_text(value: float) -> str:
    """A float literal."""
    literal = repr(float(value))
    return (literal if "." in literal or "e" in literal else literal + ".0") + "f"


# ---------------------------------------------------------------- where a thread's results lie
def first_of(nest: Nest, axis: str) -> str:
    """First row or column of the tile."""
    return expression(nest.starts(nest.store.dst)[axis])


def positions(g: Geometry, nest: Nest, text_after: str) -> str:
    """Row of a of the thread's first accumulator, and the patch of a convolution."""
    own = "" if g.schedule.ping_pong else "consumer * kGroupRows + "
    lines = f"const int a_row = {own}atom * 64 + quarter * 16 + lane / 4;\n"
    lines = lines if "a_row" in text_after else ""
    if g.patch is not None:
        offset = "" if g.schedule.ping_pong else " + consumer * kAtoms"
        first = expression(nest.starts(nest.store.dst)["m"] // 64)
        lines += f"const Patch patch = patch_at({first}{offset} + atom);\n"
    return lines


def pixel(row: str) -> tuple[str, str]:
    """Linear pixel of row `row` of a patch, and whether it exists."""
    x = f"(patch.x + ({row}) % kPatchWidth)"
    y = f"(patch.y + ({row}) / kPatchWidth % kPatchHeight)"
    image = f"(patch.image + ({row}) / (kPatchWidth * kPatchHeight))"
    inside = f"({x} < kOutWidth && {y} < kOutHeight && {image} < kImages)"
    return f"(({image} * kOutHeight + {y}) * kOutWidth + {x})", inside


def offset_text(nest: Nest, region: Region, row: str, column: str) -> str:
    """Element offset of a result row and column, 64-bit: the batch is the region's."""
    buffer = nest.buffers[region.buffer]
    terms = [
        f"({expression(start)}) * {stride}ll"
        for start, stride in zip(region.starts[:-2], buffer.strides, strict=False)
    ]
    return " + ".join([*terms, f"({row}) * {buffer.strides[-2]}ll", column])


def _operand_step(nest: Nest, axes: tuple[str, ...]) -> Step | None:
    """The step that reads a buffer with these axes."""
    for step in nest.store.steps:
        if step.op != "save" and step.operand is not None:
            own = tuple(a for a in nest.buffers[step.operand.buffer].axes if a in ("m", "n"))
            if own == axes:
                return step
    return None


def across(g: Geometry, nest: Nest) -> str:
    """What is fixed along an atom: the two lines of a, their bounds, and the bias along them."""
    swapped = g.schedule.swap_operands
    bias = _operand_step(nest, ("n",) if swapped else ("m",))
    residual = _operand_step(nest, ("m", "n"))
    if bias is None and residual is None:
        return ""
    if swapped:
        lines = _two_lines(f"{first_of(nest, 'n')} + a_row", str(g.problem.n), g.is_ragged_n)
    elif g.patch is not None:
        lines = []
        for i in range(2):
            index, inside = pixel(f"quarter * 16 + lane / 4 + {8 * i}")
            lines += [f"const int line{i} = {index};", f"const bool inside{i} = {inside};"]
    else:
        lines = _two_lines(f"{first_of(nest, 'm')} + a_row", g.rows, g.is_ragged_m)
    if bias is not None:
        lines += [
            f"const {value_type(g)} bias{i} = {_load(g, f'bias + line{i}', f'inside{i}')};"
            for i in range(2)
        ]
    return "".join(f"{line}\n" for line in lines)


def _two_lines(first: str, limit: str, is_ragged: bool) -> list[str]:
    inside = [f"line{i} < {limit}" if is_ragged else "true" for i in range(2)]
    return [
        f"const int line0 = {first}, line1 = line0 + 8;",
        f"const bool inside0 = {inside[0]}, inside1 = {inside[1]};",
    ]


def _load(g: Geometry, pointer: str, inside: str) -> str:
    exact = value_type(g) == "int"
    return f"{inside} ? *({pointer}) : 0" if exact else f"load_or_zero({pointer}, {inside})"


# ---------------------------------------------------------------- values
def values(g: Geometry, nest: Nest, output: Output, block: str) -> str:
    """`v[4]`: the finished results of the four accumulators of `block` (8 columns of b). Values
    that another output goes on from are left in the accumulators."""
    lines = [f"const int first = ({block}) * 4;"]
    arguments: list[list[str]] = []
    for step in output.steps:
        if step.operand is not None:
            loads, names = _operand_values(g, nest, step.operand)
            lines += loads
            arguments.append(names)
    lines.append(f"{value_type(g)} v[4];")
    is_last = output.buffer.name == outputs(nest.results)[-1].buffer.name
    take, keep = _held(g, output)
    for i in range(4):
        held = f"accumulators[atom][first + {i}]"
        inputs = [take.format(held), *(names[i] for names in arguments)]
        lines.append(f"v[{i}] = {output.function}({', '.join(inputs)});")
        lines += [] if is_last else [f"{held} = {keep.format(f'v[{i}]')};"]
    return "".join(f"{line}\n" for line in lines)


def _held(g: Geometry, output: Output) -> tuple[str, str]:
    """How a value comes out of an accumulator and how it is left there."""
    gate = "one * " if is_gated(g) and output.is_costly else ""
    if value_type(g) == "int" or g.wgmma.accumulator == "f32":
        return gate + "{}", "{}"
    take = "__int_as_float({})" if output.follows else "(float){}"
    return gate + take, "__float_as_int({})"


def _operand_values(g: Geometry, nest: Nest, region: Region) -> tuple[list[str], list[str]]:
    """Loads of an operand for the four accumulators of a block, and the names of the values."""
    buffer = nest.buffers[region.buffer]
    along = "m" if g.schedule.swap_operands else "n"  # the axis on which `column` counts
    match tuple(a for a in buffer.axes if a in ("m", "n")):
        case (axis,) if axis == along:
            return _pair(g, "along", buffer.name, "column", axis), ["along.x", "along.y"] * 2
        case (_,):
            return [], ["bias0", "bias0", "bias1", "bias1"]
        case _ if g.schedule.swap_operands:
            return _swapped_residual(g, nest, region)
        case _:
            return _residual(g, nest, region)


def _bounds(g: Geometry, axis: str) -> tuple[str, str]:
    """Whether elements `column` and `column + 1` along m or n exist."""
    size, is_ragged = {
        "m": (g.rows, g.is_ragged_m),
        "n": (str(g.problem.n), g.is_ragged_n),
    }[axis]
    if not is_ragged:
        return "true", "true"
    return f"column < {size}", f"column + 1 < {size}"


def _pair(
    g: Geometry, name: str, pointer: str, index: str, axis: str, guard: str = ""
) -> list[str]:
    """Two neighbours along `axis` as `name.x` and `name.y`."""
    first, second = (f"{guard} && {b}" if guard else b for b in _bounds(g, axis))
    if value_type(g) == "int":
        return [
            f"const int2 {name} = make_int2({first} ? {pointer}[{index}] : 0, "
            f"{second} ? {pointer}[{index} + 1] : 0);"
        ]
    even = (g.problem.m if axis == "m" else g.problem.n) % 2 == 0
    return [
        f"const float2 {name} = load_pair_or_zero<{str(even).lower()}>("
        f"{pointer} + {index}, {first}, {second});"
    ]


def _residual(g: Geometry, nest: Nest, region: Region) -> tuple[list[str], list[str]]:
    name = nest.buffers[region.buffer].name
    lines = []
    for i in range(2):
        offset = offset_text(nest, region, f"line{i}", "column")
        lines.append(f"const auto* {name}_line{i} = {name} + ({offset});")
        lines += _pair(g, f"{name}{i}", f"{name}_line{i}", "0", "n", f"inside{i}")
    return lines, [f"{name}0.x", f"{name}0.y", f"{name}1.x", f"{name}1.y"]


def _swapped_residual(g: Geometry, nest: Nest, region: Region) -> tuple[list[str], list[str]]:
    name = nest.buffers[region.buffer].name
    bounds, lines, names = _bounds(g, "m"), [], []
    for i in range(4):
        line, step = i // 2, i % 2
        pointer = f"{name} + ({offset_text(nest, region, f'column + {step}', f'line{line}')})"
        load = _load(g, pointer, f"inside{line} && {bounds[step]}")
        lines.append(f"const {value_type(g)} {name}{i} = {load};")
        names.append(f"{name}{i}")
    return lines, names
