// Calls an FFI handler as XLA does, without XLA: builds the call frame of one stage.
//
// Built by tests/cuda/conftest.py into a shared library that the tests load with ctypes.
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "xla/ffi/api/c_api.h"

struct XLA_FFI_Error {
  std::string message;
  XLA_FFI_Error_Code code;
};

namespace {

XLA_FFI_Error* CreateError(XLA_FFI_Error_Create_Args* args) {
  return new XLA_FFI_Error{args->message, args->errc};
}

// The context of a call is its stream.
XLA_FFI_Error* GetStream(XLA_FFI_Stream_Get_Args* args) {
  args->stream = reinterpret_cast<void*>(args->ctx);
  return nullptr;
}

XLA_FFI_Api MakeApi() {
  XLA_FFI_Api api{};
  api.struct_size = XLA_FFI_Api_STRUCT_SIZE;
  api.api_version = {XLA_FFI_Api_Version_STRUCT_SIZE, nullptr, XLA_FFI_API_MAJOR,
                     XLA_FFI_API_MINOR};
  api.XLA_FFI_Error_Create = CreateError;
  api.XLA_FFI_Stream_Get = GetStream;
  return api;
}

const XLA_FFI_Api kApi = MakeApi();

XLA_FFI_CallFrame MakeFrame(XLA_FFI_ExecutionStage stage, void* stream) {
  XLA_FFI_CallFrame frame{};
  frame.struct_size = XLA_FFI_CallFrame_STRUCT_SIZE;
  frame.api = &kApi;
  frame.ctx = reinterpret_cast<decltype(frame.ctx)>(stream);
  frame.stage = stage;
  frame.args.struct_size = XLA_FFI_Args_STRUCT_SIZE;
  frame.rets.struct_size = XLA_FFI_Rets_STRUCT_SIZE;
  frame.attrs.struct_size = XLA_FFI_Attrs_STRUCT_SIZE;
  return frame;
}

struct Buffers {
  std::vector<int64_t> dims;
  std::vector<XLA_FFI_Buffer> buffers;
  std::vector<void*> pointers;

  // Buffers of bytes: one dimension of uint8.
  Buffers(int count, const uint64_t* addresses, const int64_t* bytes) : dims(bytes, bytes + count) {
    for (int i = 0; i < count; ++i) {
      buffers.push_back({XLA_FFI_Buffer_STRUCT_SIZE, nullptr, XLA_FFI_DataType_U8,
                         reinterpret_cast<void*>(addresses[i]), 1, &dims[i]});
    }
    for (XLA_FFI_Buffer& buffer : buffers) pointers.push_back(&buffer);
  }
};

}  // namespace

#define EXPORT extern "C" __attribute__((visibility("default")))

// One call; 0, or the error's code with its text in `message`. `texts` are the string attributes
// cubin, key, names (FFI sorts attributes by name); `words` is the attribute recipe.
EXPORT int fake_call(XLA_FFI_Handler* handler, int stage, void* stream, int arg_count,
                     const uint64_t* arg_addresses, const int64_t* arg_bytes, int ret_count,
                     const uint64_t* ret_addresses, const int64_t* ret_bytes,
                     const char* const* texts, const size_t* text_bytes, const int64_t* words,
                     size_t word_count, char* message, size_t message_bytes) {
  XLA_FFI_CallFrame frame = MakeFrame(static_cast<XLA_FFI_ExecutionStage>(stage), stream);
  Buffers args(arg_count, arg_addresses, arg_bytes), rets(ret_count, ret_addresses, ret_bytes);
  std::vector<XLA_FFI_ArgType> arg_types(arg_count, XLA_FFI_ArgType_BUFFER);
  std::vector<XLA_FFI_RetType> ret_types(ret_count, XLA_FFI_RetType_BUFFER);
  frame.args.size = arg_count;
  frame.args.types = arg_types.data();
  frame.args.args = args.pointers.data();
  frame.rets.size = ret_count;
  frame.rets.types = ret_types.data();
  frame.rets.rets = rets.pointers.data();

  XLA_FFI_ByteSpan names[] = {{"cubin", 5}, {"key", 3}, {"names", 5}, {"recipe", 6}};
  XLA_FFI_ByteSpan strings[3];
  for (int i = 0; i < 3; ++i) strings[i] = {texts[i], text_bytes[i]};
  XLA_FFI_Array array{XLA_FFI_DataType_S64, word_count, const_cast<int64_t*>(words)};
  XLA_FFI_AttrType types[] = {XLA_FFI_AttrType_STRING, XLA_FFI_AttrType_STRING,
                              XLA_FFI_AttrType_STRING, XLA_FFI_AttrType_ARRAY};
  XLA_FFI_ByteSpan* name_pointers[] = {&names[0], &names[1], &names[2], &names[3]};
  void* values[] = {&strings[0], &strings[1], &strings[2], &array};
  frame.attrs.size = 4;
  frame.attrs.types = types;
  frame.attrs.names = name_pointers;
  frame.attrs.attrs = values;

  XLA_FFI_Error* error = handler(&frame);
  if (error == nullptr) return 0;
  std::snprintf(message, message_bytes, "%s", error->message.c_str());
  const int code = error->code;
  delete error;
  return code;
}

// The traits that XLA reads when it compiles a call; -1 when the query fails.
EXPORT int fake_traits(XLA_FFI_Handler* handler) {
  XLA_FFI_CallFrame frame = MakeFrame(XLA_FFI_ExecutionStage_EXECUTE, nullptr);
  XLA_FFI_Metadata metadata{};
  metadata.struct_size = XLA_FFI_Metadata_STRUCT_SIZE;
  XLA_FFI_Metadata_Extension extension{};
  extension.extension_base.struct_size = sizeof(extension);
  extension.extension_base.type = XLA_FFI_Extension_Metadata;
  extension.metadata = &metadata;
  frame.extension_start = &extension.extension_base;
  return handler(&frame) == nullptr ? static_cast<int>(metadata.traits) : -1;
}
