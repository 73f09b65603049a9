#include "ptx/bindings.h"

#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <array>
#include <cstring>
#include <memory>
#include <stdexcept>

#include "ptx/grid.h"
#include "ptx/serial.h"

namespace py = pybind11;

namespace jaxpipe::ptx {
namespace {

using Dim3 = std::array<uint32_t, 3>;

// Errors cross into Python as ValueError; jaxpipe/ptx/run.py turns them into PtxError.
void ThrowIfError(const Status& status) {
  if (!status.ok()) throw std::invalid_argument(status.message());
}

void Copy(const Dim3& from, uint32_t (&to)[3]) { std::copy(from.begin(), from.end(), to); }

std::vector<Instruction> InstructionsOf(const py::bytes& bytes) {
  const std::string_view raw = bytes;
  if (raw.size() % sizeof(Instruction) != 0)
    throw std::invalid_argument("instructions are not a multiple of their size");
  std::vector<Instruction> code(raw.size() / sizeof(Instruction));
  std::memcpy(code.data(), raw.data(), raw.size());
  return code;
}

std::shared_ptr<Program> MakeProgram(
    const py::bytes& instructions, std::vector<int32_t> lists, std::vector<uint64_t> constants,
    std::vector<uint8_t> constant_is_wide, int32_t register_slots, int32_t predicate_slots,
    uint32_t static_shared_bytes, uint32_t local_bytes, uint32_t param_bytes,
    uint32_t max_registers, const std::vector<std::array<int32_t, 3>>& lines,
    std::vector<std::string> texts, std::vector<std::string> files) {
  auto program = std::make_shared<Program>();
  program->code = InstructionsOf(instructions);
  program->lists = std::move(lists);
  program->constants = std::move(constants);
  program->constant_is_wide = std::move(constant_is_wide);
  program->register_slots = register_slots;
  program->predicate_slots = predicate_slots;
  program->static_shared_bytes = static_shared_bytes;
  program->local_bytes = local_bytes;
  program->param_bytes = param_bytes;
  program->max_registers = max_registers;
  for (const auto& line : lines) program->lines.push_back({line[0], line[1], line[2]});
  program->texts = std::move(texts);
  program->files = std::move(files);
  ThrowIfError(program->Validate());
  return program;
}

// Buffers: (bytes, written bytes or None, writable, misalignment) each.
using BufferTuple = std::tuple<py::buffer, py::object, bool, uint32_t>;

void AddBuffers(const std::vector<BufferTuple>& buffers, std::vector<py::buffer_info>* keep,
                GlobalMemory* global) {
  for (const auto& [array, written, writable, misalignment] : buffers) {
    Buffer buffer;
    keep->push_back(array.request(writable));
    buffer.data = static_cast<uint8_t*>(keep->back().ptr);
    buffer.size = static_cast<uint64_t>(keep->back().size * keep->back().itemsize);
    if (!written.is_none()) {
      keep->push_back(written.cast<py::buffer>().request(true));
      buffer.written = static_cast<uint8_t*>(keep->back().ptr);
    }
    buffer.writable = writable;
    buffer.misalignment = misalignment;
    global->Add(buffer);
  }
}

py::dict AsDict(const Program& program, const Hazard& hazard) {
  const SourceLine none;
  const SourceLine& at = hazard.pc >= 0 ? program.lines[hazard.pc] : none;
  py::dict out;
  out["kind"] = HazardName(hazard.kind);
  out["text"] = DescribeHazard(program, hazard);
  out["instruction"] = hazard.pc;
  out["other_instruction"] = hazard.other_pc;
  out["ptx_line"] = at.ptx_line;
  out["file"] = at.file >= 0 ? program.files[at.file] : "";
  out["line"] = at.line;
  out["block"] = hazard.block;
  out["warp"] = hazard.warp;
  out["lane"] = hazard.lane;
  out["address"] = hazard.address;
  out["count"] = hazard.count;
  out["detail"] = hazard.detail;
  return out;
}

py::array_t<uint64_t> AsArray(const std::vector<Counters>& counters) {
  static_assert(sizeof(Counters) == kCounterFields * sizeof(uint64_t));
  py::array_t<uint64_t> out(
      {static_cast<py::ssize_t>(counters.size()), static_cast<py::ssize_t>(kCounterFields)});
  std::memcpy(out.mutable_data(), counters.data(), counters.size() * sizeof(Counters));
  return out;
}

py::tuple RunProgram(const Program& program, const std::vector<BufferTuple>& buffers,
                     const py::bytes& params, const Dim3& grid, const Dim3& block,
                     const Dim3& cluster, uint32_t dynamic_shared_bytes, int landing, int order,
                     uint64_t seed, bool check, uint64_t max_steps, int threads) {
  Launch launch;
  Copy(grid, launch.grid);
  Copy(block, launch.block);
  Copy(cluster, launch.cluster);
  launch.dynamic_shared_bytes = dynamic_shared_bytes;
  const std::string_view raw = params;
  launch.params.assign(raw.begin(), raw.end());
  launch.landing = static_cast<When>(landing);
  launch.order = static_cast<Order>(order);
  launch.seed = seed;
  launch.check = check;
  launch.max_steps = max_steps;
  std::vector<py::buffer_info> keep;
  GlobalMemory global;
  AddBuffers(buffers, &keep, &global);
  Outcome outcome;
  Status status;
  {
    const py::gil_scoped_release release;
    status = RunGrid(program, launch, global, threads, &outcome);
  }
  ThrowIfError(status);
  py::list hazards;
  for (const Hazard& hazard : outcome.hazards) hazards.append(AsDict(program, hazard));
  return py::make_tuple(hazards, AsArray(outcome.counters));
}

py::dict Operations() {
  py::dict operations;
  for (int op = 0; op < kOpCount; ++op) operations[OpName(static_cast<Op>(op))] = op;
  return operations;
}

}  // namespace

void Bind(py::module_& module) {
  module.def("ptx_operations", &Operations);
  module.attr("PTX_SPECIAL_SLOTS") = static_cast<int>(kSpecialSlots);
  module.attr("PTX_SHARED_BASE") = kSharedBase;
  module.attr("PTX_FIRST_BUFFER") = kFirstBuffer;
  module.attr("PTX_BUFFER_SHIFT") = kBufferShift;
  py::class_<Program, std::shared_ptr<Program>>(module, "PtxProgram")
      .def(py::init(&MakeProgram), py::arg("instructions"), py::arg("lists"), py::arg("constants"),
           py::arg("constant_is_wide"), py::arg("register_slots"), py::arg("predicate_slots"),
           py::arg("static_shared_bytes"), py::arg("local_bytes"), py::arg("param_bytes"),
           py::arg("max_registers"), py::arg("lines"), py::arg("texts"), py::arg("files"))
      .def("serialize", [](const Program& program) { return py::bytes(Serialize(program)); })
      .def("run", &RunProgram, py::arg("buffers"), py::arg("params"), py::arg("grid"),
           py::arg("block"), py::arg("cluster"), py::arg("dynamic_shared_bytes"),
           py::arg("landing"), py::arg("order"), py::arg("seed"), py::arg("check"),
           py::arg("max_steps"), py::arg("threads"));
}

}  // namespace jaxpipe::ptx
