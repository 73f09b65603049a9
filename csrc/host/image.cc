#include "host/image.h"

#include <algorithm>
#include <cstring>

namespace jaxpipe::host {
namespace {

// Copies `count` elements of the image, or zeros, to consecutive terms of a row.
class RowWriter {
 public:
  RowWriter(const Gemm& gemm, const Kernels& kernels, WordKind kind)
      : image_(static_cast<const char*>(gemm.lhs.data)), size_(SizeOf(gemm.lhs.dtype)) {
    const bool widens = kind == WordKind::kF32 && gemm.lhs.dtype != DType::kF32;
    out_size_ = widens ? 4 : size_;
    if (widens) widen_ = kernels.lhs_rows[0][static_cast<int>(gemm.lhs.dtype)];
  }

  void Start(char* row) { out_ = row; }
  void Zeros(int64_t count) {
    std::memset(out_, 0, count * out_size_);
    out_ += count * out_size_;
  }
  void Elements(int64_t first, int64_t count) {
    const char* src = image_ + first * size_;
    if (widen_ == nullptr) {
      std::memcpy(out_, src, count * size_);
    } else {
      CopyArgs args;
      args.src = src;
      args.rows = 1;
      args.cols = count;
      args.dst = out_;
      widen_(args);
    }
    out_ += count * out_size_;
  }

 private:
  const char* image_;
  int64_t size_, out_size_;
  CopyFn widen_ = nullptr;
  char* out_ = nullptr;
};

// Terms first..last of one filter row: `x0` is the image column of its first tap. `line` is the
// element where the image line starts.
void WriteDenseTaps(const Image& image, int64_t line, int64_t x0, int64_t first, int64_t last,
                    RowWriter* writer) {
  const int64_t begin = std::clamp<int64_t>(-x0 * image.channels, first, last);
  const int64_t end = std::clamp<int64_t>((image.width - x0) * image.channels, begin, last);
  if (begin > first) writer->Zeros(begin - first);
  if (end > begin) writer->Elements(line + x0 * image.channels + begin, end - begin);
  if (last > end) writer->Zeros(last - end);
}

void WriteDilatedTaps(const Image& image, int64_t line, int64_t x0, int64_t first, int64_t last,
                      RowWriter* writer) {
  for (int64_t t = first; t < last;) {
    const int64_t tap = t / image.channels, c = t % image.channels;
    const int64_t count = std::min(last - t, image.channels - c);
    const int64_t x = x0 + tap * image.dilation_w;
    if (x >= 0 && x < image.width) {
      writer->Elements(line + x * image.channels + c, count);
    } else {
      writer->Zeros(count);
    }
    t += count;
  }
}

// Terms k0..k1 of result pixel m.
void WriteRow(const Image& image, int64_t m, int64_t k0, int64_t k1, RowWriter* writer) {
  const int64_t ox = m % image.out_width, oy = m / image.out_width % image.out_height;
  const int64_t b = m / image.out_width / image.out_height;
  const int64_t x0 = ox * image.stride_w - image.pad_left;
  const int64_t per_line = image.kernel_w * image.channels;
  for (int64_t k = k0; k < k1;) {
    const int64_t tap = k / per_line, first = k % per_line;
    const int64_t last = std::min(per_line, first + k1 - k);
    const int64_t y = oy * image.stride_h - image.pad_top + tap * image.dilation_h;
    const int64_t line = (b * image.height + y) * image.width * image.channels;
    if (y < 0 || y >= image.height) {
      writer->Zeros(last - first);
    } else if (image.dilation_w == 1) {
      WriteDenseTaps(image, line, x0, first, last, writer);
    } else {
      WriteDilatedTaps(image, line, x0, first, last, writer);
    }
    k += last - first;
  }
}

}  // namespace

void GatherImage(const Gemm& gemm, const Kernels& kernels, WordKind kind, const ImageRect& rect,
                 int64_t row_bytes, char* dst) {
  RowWriter writer(gemm, kernels, kind);
  for (int64_t m = rect.m0; m < rect.m1; ++m) {
    writer.Start(dst + (m - rect.m0) * row_bytes);
    WriteRow(*gemm.image, m, rect.k0, rect.k1, &writer);
  }
}

}  // namespace jaxpipe::host
