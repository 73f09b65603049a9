#include "inflate.h"

#include <array>
#include <cstdint>

namespace jaxpipe {
namespace {

constexpr int kMaxCodeBits = 15;
constexpr int kMaxLiterals = 288, kMaxDistances = 32;

// Bits of the stream, least significant first. Reading past the end gives zeros and sets `ended`.
class BitReader {
 public:
  explicit BitReader(std::string_view bytes) : bytes_(bytes) {}

  uint32_t Bits(int count) {
    while (held_ < count) {
      uint64_t byte = 0;
      if (at_ < bytes_.size()) {
        byte = static_cast<unsigned char>(bytes_[at_]);
      } else {
        ended_ = true;
      }
      ++at_;
      buffer_ |= byte << held_;
      held_ += 8;
    }
    const uint32_t value = static_cast<uint32_t>(buffer_ & ((uint64_t{1} << count) - 1));
    buffer_ >>= count;
    held_ -= count;
    return value;
  }

  void SkipToByte() { (void)Bits(held_ % 8); }
  bool ended() const { return ended_; }

 private:
  std::string_view bytes_;
  size_t at_ = 0;
  uint64_t buffer_ = 0;
  int held_ = 0;
  bool ended_ = false;
};

// A canonical Huffman code: how many codes of each length, and the symbols in code order.
class Huffman {
 public:
  // False when the lengths oversubscribe the code space.
  bool Build(const uint8_t* lengths, int count) {
    counts_.fill(0);
    for (int i = 0; i < count; ++i) ++counts_[lengths[i]];
    counts_[0] = 0;
    int left = 1;
    std::array<int, kMaxCodeBits + 2> offsets{};
    for (int bits = 1; bits <= kMaxCodeBits; ++bits) {
      left = 2 * left - counts_[bits];
      if (left < 0) return false;
      offsets[bits + 1] = offsets[bits] + counts_[bits];
    }
    for (int i = 0; i < count; ++i) {
      if (lengths[i]) symbols_[offsets[lengths[i]]++] = static_cast<uint16_t>(i);
    }
    return true;
  }

  // The next symbol, or -1 where no code matches.
  int Decode(BitReader* in) const {
    int code = 0, first = 0, index = 0;
    for (int bits = 1; bits <= kMaxCodeBits; ++bits) {
      code |= static_cast<int>(in->Bits(1));
      const int count = counts_[bits];
      if (code - first < count) return symbols_[index + code - first];
      index += count;
      first = (first + count) << 1;
      code <<= 1;
    }
    return -1;
  }

 private:
  std::array<int, kMaxCodeBits + 1> counts_{};
  std::array<uint16_t, kMaxLiterals> symbols_{};
};

struct Codes {
  Huffman literals, distances;
};

void FixedCodes(Codes* codes) {
  std::array<uint8_t, kMaxLiterals> lengths;
  for (int i = 0; i < kMaxLiterals; ++i) lengths[i] = i < 144 ? 8 : i < 256 ? 9 : i < 280 ? 7 : 8;
  codes->literals.Build(lengths.data(), kMaxLiterals);
  lengths.fill(5);
  codes->distances.Build(lengths.data(), 30);
}

// Code lengths of a dynamic block, themselves Huffman coded (RFC 1951, 3.2.7).
bool DynamicCodes(BitReader* in, Codes* codes) {
  static constexpr uint8_t kOrder[19] = {16, 17, 18, 0, 8,  7, 9,  6, 10, 5,
                                         11, 4,  12, 3, 13, 2, 14, 1, 15};
  const int literals = static_cast<int>(in->Bits(5)) + 257;
  const int distances = static_cast<int>(in->Bits(5)) + 1;
  const int length_codes = static_cast<int>(in->Bits(4)) + 4;
  if (literals > 286 || distances > 30) return false;
  uint8_t lengths[kMaxLiterals + kMaxDistances] = {};
  for (int i = 0; i < length_codes; ++i) lengths[kOrder[i]] = static_cast<uint8_t>(in->Bits(3));
  Huffman length_code;
  if (!length_code.Build(lengths, 19)) return false;
  std::fill_n(lengths, 19, uint8_t{0});
  for (int at = 0; at < literals + distances;) {
    const int symbol = length_code.Decode(in);
    if (symbol < 0 || in->ended()) return false;
    if (symbol < 16) {
      lengths[at++] = static_cast<uint8_t>(symbol);
      continue;
    }
    if (symbol == 16 && at == 0) return false;
    const uint8_t value = symbol == 16 ? lengths[at - 1] : uint8_t{0};
    int repeat = symbol == 16   ? 3 + static_cast<int>(in->Bits(2))
                 : symbol == 17 ? 3 + static_cast<int>(in->Bits(3))
                                : 11 + static_cast<int>(in->Bits(7));
    if (at + repeat > literals + distances) return false;
    while (repeat-- > 0) lengths[at++] = value;
  }
  return codes->literals.Build(lengths, literals) &&
         codes->distances.Build(lengths + literals, distances);
}

// Length and distance of a match (RFC 1951, 3.2.5), copied from what was written so far.
bool CopyMatch(int symbol, const Codes& codes, BitReader* in, size_t limit, std::string* out) {
  static constexpr uint16_t kLength[29] = {3,  4,  5,  6,   7,   8,   9,   10,  11, 13,
                                           15, 17, 19, 23,  27,  31,  35,  43,  51, 59,
                                           67, 83, 99, 115, 131, 163, 195, 227, 258};
  static constexpr uint8_t kLengthBits[29] = {0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2,
                                              2, 3, 3, 3, 3, 4, 4, 4, 4, 5, 5, 5, 5, 0};
  static constexpr uint16_t kDistance[30] = {
      1,   2,   3,   4,   5,   7,    9,    13,   17,   25,   33,   49,   65,    97,    129,
      193, 257, 385, 513, 769, 1025, 1537, 2049, 3073, 4097, 6145, 8193, 12289, 16385, 24577};
  static constexpr uint8_t kDistanceBits[30] = {0, 0, 0,  0,  1,  1,  2,  2,  3,  3,
                                                4, 4, 5,  5,  6,  6,  7,  7,  8,  8,
                                                9, 9, 10, 10, 11, 11, 12, 12, 13, 13};
  if (symbol > 285) return false;
  size_t length = kLength[symbol - 257] + in->Bits(kLengthBits[symbol - 257]);
  const int code = codes.distances.Decode(in);
  if (code < 0 || code > 29) return false;
  const size_t distance = kDistance[code] + in->Bits(kDistanceBits[code]);
  if (distance > out->size() || out->size() + length > limit) return false;
  for (size_t from = out->size() - distance; length > 0; --length) out->push_back((*out)[from++]);
  return true;
}

bool CompressedBlock(const Codes& codes, BitReader* in, size_t limit, std::string* out) {
  for (;;) {
    const int symbol = codes.literals.Decode(in);
    if (symbol < 0 || in->ended()) return false;
    if (symbol == 256) return true;
    if (symbol > 256) {
      if (!CopyMatch(symbol, codes, in, limit, out)) return false;
    } else if (out->size() < limit) {
      out->push_back(static_cast<char>(symbol));
    } else {
      return false;
    }
  }
}

bool StoredBlock(BitReader* in, size_t limit, std::string* out) {
  in->SkipToByte();
  const uint32_t length = in->Bits(16), complement = in->Bits(16);
  if (length != (~complement & 0xffff) || out->size() + length > limit) return false;
  for (uint32_t i = 0; i < length && !in->ended(); ++i) {
    out->push_back(static_cast<char>(in->Bits(8)));
  }
  return !in->ended();
}

bool Block(uint32_t type, BitReader* in, size_t limit, std::string* out) {
  Codes codes;
  switch (type) {
    case 0:
      return StoredBlock(in, limit, out);
    case 1:
      FixedCodes(&codes);
      return CompressedBlock(codes, in, limit, out);
    case 2:
      return DynamicCodes(in, &codes) && CompressedBlock(codes, in, limit, out);
    default:
      return false;
  }
}

uint32_t Adler32(std::string_view bytes) {
  uint32_t low = 1, high = 0;
  for (const char byte : bytes) {
    low = (low + static_cast<unsigned char>(byte)) % 65521;
    high = (high + low) % 65521;
  }
  return high << 16 | low;
}

}  // namespace

Status InflateZlib(std::string_view compressed, size_t limit_bytes, std::string* output) {
  output->clear();
  BitReader in(compressed);
  const uint32_t method = in.Bits(8), flags = in.Bits(8);
  if (compressed.size() < 6 || (method & 15) != 8 || (flags & 32) || (method << 8 | flags) % 31) {
    return InvalidArgument("not a zlib stream (" + std::to_string(compressed.size()) + " bytes)");
  }
  for (bool is_last = false; !is_last;) {
    is_last = in.Bits(1) != 0;
    if (!Block(in.Bits(2), &in, limit_bytes, output)) {
      return InvalidArgument("zlib stream of " + std::to_string(compressed.size()) +
                             " bytes is damaged after " + std::to_string(output->size()) +
                             " bytes of output, or gives more than " + std::to_string(limit_bytes));
    }
  }
  in.SkipToByte();
  uint32_t checksum = 0;
  for (int i = 0; i < 4; ++i) checksum = checksum << 8 | in.Bits(8);
  if (in.ended() || checksum != Adler32(*output)) {
    return InvalidArgument("zlib stream of " + std::to_string(compressed.size()) +
                           " bytes has the wrong checksum: the binary was damaged on its way");
  }
  return Status();
}

}  // namespace jaxpipe
