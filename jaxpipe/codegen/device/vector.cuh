// kCount neighbouring elements of a row as float or int values, in the widest accesses that their
// common alignment (kCount * sizeof(element) bytes, a power of two) allows.

template <int kBytes>
struct Access {
  using type = uint4;
};
template <>
struct Access<8> {
  using type = uint2;
};
template <>
struct Access<4> {
  using type = unsigned;
};
template <>
struct Access<2> {
  using type = unsigned short;
};
template <>
struct Access<1> {
  using type = unsigned char;
};

__device__ __forceinline__ float to_float(signed char x) { return (float)x; }
template <class T>
__device__ __forceinline__ void convert(float& to, T from) {
  to = to_float(from);
}
__device__ __forceinline__ void convert(float& to, float from) { to = from; }
__device__ __forceinline__ void convert(int& to, int from) { to = from; }
__device__ __forceinline__ void convert(int& to, signed char from) { to = from; }
template <class T>
__device__ __forceinline__ void convert(T& to, float from) {
  to = round_to<T>(from);
}
__device__ __forceinline__ void convert(signed char& to, int from) { to = (signed char)from; }

template <int kCount, class T, class V>
__device__ __forceinline__ void load_vector(V (&to)[kCount], const T* from) {
  using Word = typename Access<kCount * sizeof(T)>::type;
  constexpr int kWords = kCount * sizeof(T) / sizeof(Word);
  union {
    Word words[kWords];
    T elements[kCount];
  } u;
#pragma unroll
  for (int i = 0; i < kWords; ++i) u.words[i] = __ldg((const Word*)from + i);
#pragma unroll
  for (int i = 0; i < kCount; ++i) convert(to[i], u.elements[i]);
}

template <int kCount, class T, class V>
__device__ __forceinline__ void store_vector(T* to, const V (&from)[kCount]) {
  using Word = typename Access<kCount * sizeof(T)>::type;
  constexpr int kWords = kCount * sizeof(T) / sizeof(Word);
  union {
    Word words[kWords];
    unsigned pairs[kCount * sizeof(T) / 4 + 1];
    T elements[kCount];
  } u;
  if constexpr (sizeof(T) == 2 && kCount % 2 == 0) {
#pragma unroll
    for (int i = 0; i < kCount; i += 2) u.pairs[i / 2] = pack_pair<T>(from[i], from[i + 1]);
  } else {
#pragma unroll
    for (int i = 0; i < kCount; ++i) convert(u.elements[i], from[i]);
  }
#pragma unroll
  for (int i = 0; i < kWords; ++i) ((Word*)to)[i] = u.words[i];
}
