// A position in a ring of kStages slots. slot and phase run on across tiles and are never reset:
// the parity of a slot's barriers flips each time the ring wraps.

template <int kStages>
struct RingPosition {
  unsigned slot = 0;
  unsigned phase = 0;

  __device__ __forceinline__ void advance() {
    if (++slot == kStages) {
      slot = 0;
      phase ^= 1;
    }
  }

  // Past `steps` slots that somebody else consumes.
  __device__ __forceinline__ void skip(unsigned steps) {
    const unsigned position = slot + steps;
    phase ^= (position / kStages) & 1;
    slot = position % kStages;
  }
};
