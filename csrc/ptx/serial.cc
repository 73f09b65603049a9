#include "ptx/serial.h"

#include <cstring>

namespace jaxpipe::ptx {
namespace {

constexpr uint32_t kFormat = 0x70747832;  // changes with the layout of Program

class Writer {
 public:
  template <typename T>
  void Number(T value) {
    out_.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  template <typename T>
  void Vector(const std::vector<T>& values) {
    Number<uint64_t>(values.size());
    out_.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
  }
  void Strings(const std::vector<std::string>& values) {
    Number<uint64_t>(values.size());
    for (const std::string& value : values) {
      Number<uint64_t>(value.size());
      out_.append(value);
    }
  }
  std::string Take() { return std::move(out_); }

 private:
  std::string out_;
};

// Reads what Writer wrote; once something is missing, everything reads as empty and `bad` is set.
class Reader {
 public:
  explicit Reader(std::string_view bytes) : rest_(bytes) {}

  template <typename T>
  T Number() {
    T value{};
    if (!Has(sizeof value)) return value;
    std::memcpy(&value, rest_.data(), sizeof value);
    rest_.remove_prefix(sizeof value);
    return value;
  }
  template <typename T>
  void Vector(std::vector<T>* values) {
    const uint64_t count = Number<uint64_t>();
    if (count > rest_.size() / sizeof(T)) bad_ = true;
    if (bad_) return;
    values->resize(count);
    std::memcpy(values->data(), rest_.data(), count * sizeof(T));
    rest_.remove_prefix(count * sizeof(T));
  }
  void Strings(std::vector<std::string>* values) {
    const uint64_t count = Number<uint64_t>();
    for (uint64_t i = 0; i < count && !bad_; ++i) {
      const uint64_t size = Number<uint64_t>();
      if (!Has(size)) return;
      values->emplace_back(rest_.substr(0, size));
      rest_.remove_prefix(size);
    }
  }
  bool bad() const { return bad_; }
  std::string_view rest() const { return rest_; }

 private:
  bool Has(uint64_t size) {
    bad_ = bad_ || size > rest_.size();
    return !bad_;
  }
  std::string_view rest_;
  bool bad_ = false;
};

}  // namespace

std::string Serialize(const Program& p) {
  Writer out;
  out.Number(kFormat);
  out.Vector(p.code);
  out.Vector(p.lists);
  out.Vector(p.constants);
  out.Vector(p.constant_is_wide);
  out.Number(p.register_slots - kSlackSlots);
  out.Number(p.predicate_slots);
  out.Number(p.static_shared_bytes);
  out.Number(p.local_bytes);
  out.Number(p.param_bytes);
  out.Number(p.max_registers);
  out.Vector(p.lines);
  out.Strings(p.texts);
  out.Strings(p.files);
  return out.Take();
}

Status Deserialize(std::string_view* bytes, Program* p) {
  Reader in(*bytes);
  if (in.Number<uint32_t>() != kFormat)
    return InvalidArgument("an interpreted kernel has a format of another version of jaxpipe");
  in.Vector(&p->code);
  in.Vector(&p->lists);
  in.Vector(&p->constants);
  in.Vector(&p->constant_is_wide);
  p->register_slots = in.Number<int32_t>();
  p->predicate_slots = in.Number<int32_t>();
  p->static_shared_bytes = in.Number<uint32_t>();
  p->local_bytes = in.Number<uint32_t>();
  p->param_bytes = in.Number<uint32_t>();
  p->max_registers = in.Number<uint32_t>();
  in.Vector(&p->lines);
  in.Strings(&p->texts);
  in.Strings(&p->files);
  if (in.bad()) return InvalidArgument("an interpreted kernel is cut short");
  *bytes = in.rest();
  return p->Validate();
}

}  // namespace jaxpipe::ptx
