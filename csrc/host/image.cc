#include "host/image.h"

#include <algorithm>
#include <cstring>

#include "host/parallel.h"
#include "host/plan.h"
#include "host/scratch.h"

namespace jaxpipe::host {
namespace {

constexpr int64_t kWidenChunk = 16384;  // elements that one item widens

// Copies `count` elements of the image, or zeros, to consecutive terms of a row.
class RowWriter {
 public:
  explicit RowWriter(const Gemm& gemm)
      : image_(static_cast<const char*>(gemm.lhs.data)), size_(SizeOf(gemm.lhs.dtype)) {}

  void Start(char* row) { out_ = row; }
  void Zeros(int64_t count) {
    std::memset(out_, 0, count * size_);
    out_ += count * size_;
  }
  void Elements(int64_t first, int64_t count) {
    std::memcpy(out_, image_ + first * size_, count * size_);
    out_ += count * size_;
  }

 private:
  const char* image_;
  int64_t size_;
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

void GatherImage(const Gemm& gemm, const ImageRect& rect, int64_t row_bytes, char* dst) {
  RowWriter writer(gemm);
  for (int64_t m = rect.m0; m < rect.m1; ++m) {
    writer.Start(dst + (m - rect.m0) * row_bytes);
    WriteRow(*gemm.image, m, rect.k0, rect.k1, &writer);
  }
}

Status WidenImage(const Kernels& kernels, int threads, TaskPool* pool, Gemm* gemm) {
  const Image& image = *gemm->image;
  const int64_t images = gemm->m / (image.out_height * image.out_width);
  const int64_t elements = images * image.height * image.width * image.channels;
  char* wide = static_cast<char*>(ThreadScratch(ScratchSlot::kImage, elements * sizeof(float)));
  if (wide == nullptr) return Internal("the host executor could not allocate its widened image");
  const Operand narrow = gemm->lhs;
  const CopyFn widen = kernels.lhs_rows[0][static_cast<int>(narrow.dtype)];
  Phases phases;
  phases.count = 1;
  phases.items[0] = CeilDiv(elements, kWidenChunk);
  RunPhases(pool, threads, phases, [&](int, int64_t index) {
    const int64_t first = index * kWidenChunk;
    CopyArgs args;
    args.src = static_cast<const char*>(narrow.data) + first * SizeOf(narrow.dtype);
    args.rows = 1;
    args.cols = std::min(kWidenChunk, elements - first);
    args.dst = wide + first * sizeof(float);
    widen(args);
  });
  gemm->lhs.data = wide;
  gemm->lhs.dtype = DType::kF32;
  return Status();
}

}  // namespace jaxpipe::host
