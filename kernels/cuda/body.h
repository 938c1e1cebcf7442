// File: kernels/cuda/body.h: the body of a data step on a device: n sources, reduced in canonical
// order, to m targets.
//
// The order. Sums of 1, 2, 4, ... neighbours join like the digits of a binary counter, and what is
// left at the end joins from the right. That is the canonical tree (kernels/reduce_op.h: it splits
// at the largest power of two below n) for every n, with log2(n) values at a time.
#pragma once
#include "kernels/cuda/unit.h"
#include "kernels/reduce_op.h"

namespace tutti::cuda {

/// What a block works on, in its shared memory: a step whose locations were looked up.
struct Work {
  Resolved locations[kMostLocations];  // Sources, then targets.
  unsigned source_count, target_count;
  unsigned elements;  // Of the tile.
  bool lined;         // A location is a slot of lines: units are in rows, warps stay together.
  bool plain;         // All sources are plain, aligned and of the message's type.
  bool copy;          // Bits are moved, nothing is computed.

  TUTTI_DEVICE const Resolved& source(unsigned index) const { return locations[index]; }
  TUTTI_DEVICE const Resolved& target(unsigned index) const {
    return locations[source_count + index];
  }
};

template <DataType type>
struct TypeTraits {
  using Element = kernels::Element<type>;
  using Storage = typename Element::Storage;
  using Accumulator = typename Element::Accumulator;
  static constexpr unsigned kElements = unit_elements(type);
  static constexpr std::size_t kBytes = kElements * sizeof(Storage);
  static constexpr std::size_t kPartialBytes = kElements * sizeof(Accumulator);
};

/// How many units of a thread are under way at a time, in steps of one or two plain sources.
inline constexpr unsigned kBatch = 4;

/// Calls `visit(positions)` with kBatch of the thread's units at a time, as long as there are as
/// many whole ones. For steps that are not lined. The row at which the warp has to go on.
template <unsigned kElements, class Visit>
TUTTI_DEVICE unsigned for_each_batch(const Work& work, Visit visit) {
  const unsigned whole_rows = work.elements / kElements / kWarpLanes;
  const unsigned lane = threadIdx.x % kWarpLanes, warps = blockDim.x / kWarpLanes;
  unsigned row = threadIdx.x / kWarpLanes;
#pragma unroll 1
  for (; row + (kBatch - 1) * warps < whole_rows; row += kBatch * warps) {
    Position positions[kBatch];
#pragma unroll
    for (unsigned i = 0; i < kBatch; ++i) {
      const unsigned at = row + i * warps;
      positions[i] = {at * kWarpLanes + lane, kElements, at, lane};
    }
    visit(positions);
  }
  return row;
}

/// Calls `visit(position)` for the thread's units, from a row on. In lined steps all lanes of a
/// warp get as many.
template <unsigned kElements, class Visit>
TUTTI_DEVICE void for_each_unit(const Work& work, unsigned first_row, Visit visit) {
  const unsigned units = (work.elements + kElements - 1) / kElements;
  const unsigned lane = threadIdx.x % kWarpLanes;
  const unsigned per_row = work.lined ? kWarpUnits : kWarpLanes;
  const unsigned in_row =
      work.lined ? lane / kLineLanes * (kLineLanes - 1) + lane % kLineLanes : lane;
  const bool has_data = !work.lined || lane % kLineLanes != kLineLanes - 1;
  const unsigned warps = blockDim.x / kWarpLanes;
#pragma unroll 1
  for (unsigned row = first_row; row * per_row < units; row += warps) {
    const unsigned unit = row * per_row + in_row;
    unsigned valid = 0;
    if (has_data && unit < units) {
      const unsigned left = work.elements - unit * kElements;
      valid = left < kElements ? left : kElements;
    }
    visit(Position{unit, valid, row, lane});
  }
}

/// Moves bits: `kBytes` in a unit.
template <std::size_t kBytes, unsigned kElements>
TUTTI_DEVICE void copy_units(const Work& work, Watch& watch, bool& failed) {
  const Resolved& source = work.source(0);
  const auto store_all = [&](const Position& position, const Bits<kBytes>& bits) {
#pragma unroll 1
    for (unsigned t = 0; t < work.target_count; ++t) {
      const Resolved& target = work.target(t);
      // A copy onto itself (in place) is left out: peers may be reading there.
      if (target.at != source.at) store_unit<kBytes, kElements>(target, position, bits);
    }
  };
  unsigned row = threadIdx.x / kWarpLanes;
  if (work.plain && !work.lined) {
    row = for_each_batch<kElements>(work, [&](const Position(&positions)[kBatch]) {
      Bits<kBytes> bits[kBatch];
#pragma unroll
      for (unsigned i = 0; i < kBatch; ++i) {
        bits[i] = load_whole<kBytes>(source.at + std::size_t{positions[i].unit} * kBytes);
      }
#pragma unroll
      for (unsigned i = 0; i < kBatch; ++i) store_all(positions[i], bits[i]);
    });
  }
  for_each_unit<kElements>(work, row, [&](const Position& position) {
    store_all(position, load_unit<kBytes, kElements>(source, position, watch, failed));
  });
}

/// The arithmetic of one type and operation. The sum stands for avg and premulsum too, which differ
/// in what is done to leaves and results.
template <DataType type, ReduceOp op, Where where = Where::kAnywhere>
class Body {
  using Traits = TypeTraits<type>;
  using Element = typename Traits::Element;
  using Storage = typename Traits::Storage;
  using Accumulator = typename Traits::Accumulator;
  static constexpr unsigned kElements = Traits::kElements;
  static constexpr std::size_t kBytes = Traits::kBytes;
  static constexpr std::size_t kPartialBytes = Traits::kPartialBytes;

 public:
  /// A unit on its way through the arithmetic.
  struct Values {
    Accumulator of[kElements];
  };

  TUTTI_DEVICE Body(const Arguments& arguments, const Work& work, Watch& watch, bool& failed)
      : arguments_(arguments), work_(work), watch_(watch), failed_(failed) {}

  TUTTI_DEVICE void run() {
    unsigned row = threadIdx.x / kWarpLanes;
    if (work_.plain && !work_.lined && work_.source_count <= 2) {
      row = for_each_batch<kElements>(
          work_, [&](const Position(&positions)[kBatch]) { reduce_batch(positions); });
    }
    for_each_unit<kElements>(
        work_, row, [&](const Position& position) { store_all(position, reduce(position)); });
  }

  /// All sources of a unit.
  TUTTI_DEVICE Values reduce(const Position& position) const {
    return work_.plain && position.valid == kElements ? reduce_plain(position)
                                                      : reduce_any(position);
  }

  /// A unit, to all targets.
  TUTTI_DEVICE void store_all(const Position& position, const Values& values) const {
    Form form = Form::kPartial;
    Bits<kBytes> bits;
#pragma unroll 1
    for (unsigned t = 0; t < work_.target_count; ++t) {
      const Resolved& target = work_.target(t);
      if (where == Where::kAnywhere && target.form == Form::kPartial) {
        Bits<kPartialBytes> partial;
        std::memcpy(partial.word, values.of, sizeof values.of);
        store_unit<kPartialBytes, kElements>(target, position, partial);
        continue;
      }
      // Most often all targets have one form, and are rounded once.
      if (form != target.form) bits = rounded(values, target.form == Form::kResult);
      form = target.form;
      store_unit<kBytes, kElements, where>(target, position, bits);
    }
  }

  TUTTI_DEVICE static Values widened(const Bits<kBytes>& bits) {
    Storage stored[kElements];
    std::memcpy(stored, bits.word, sizeof stored);
    Values values;
#pragma unroll
    for (unsigned e = 0; e < kElements; ++e) values.of[e] = Element::widen(stored[e]);
    return values;
  }

  /// Rounded, as they lie in memory.
  TUTTI_DEVICE static Bits<kBytes> stored(const Values& values) {
    Storage storage[kElements];
#pragma unroll
    for (unsigned e = 0; e < kElements; ++e) storage[e] = Element::round(values.of[e]);
    Bits<kBytes> bits;
    std::memcpy(bits.word, storage, sizeof storage);
    return bits;
  }

 private:
  TUTTI_DEVICE void scale(Values& values) const {
    const auto factor = kernels::scale_as<Accumulator>(arguments_.scale, arguments_.integer_scale);
#pragma unroll
    for (unsigned e = 0; e < kElements; ++e) {
      values.of[e] = kernels::multiply(factor, values.of[e]);
    }
  }

  TUTTI_DEVICE static void combine(const Values& left, const Values& right, Values& to) {
#pragma unroll
    for (unsigned e = 0; e < kElements; ++e) {
      to.of[e] = kernels::combine<op>(left.of[e], right.of[e]);
    }
  }

  /// The canonical tree of values that come one after the other. level[l] is the sum of 2^l
  /// neighbours; they join like the digits of a binary counter.
  struct Tree {
    static constexpr unsigned kLevels = 3;
    static_assert(kMostSources == 1u << kLevels);
    Values level[kLevels];  // All kMostSources together: in the first.

    /// Value number `index`, from 0.
    TUTTI_DEVICE void add(unsigned index, Values value) {
      bool carried = true;
#pragma unroll
      for (unsigned l = 0; l < kLevels; ++l) {
        if (!carried) continue;
        carried = (index >> l & 1) != 0;
        if (carried) {
          combine(level[l], value, value);
        } else {
          level[l] = value;
        }
      }
      if (carried) level[0] = value;
    }

    TUTTI_DEVICE Values root(unsigned count) const {
      if (count == kMostSources) return level[0];
      Values sum;
      bool any = false;
#pragma unroll
      for (unsigned l = 0; l < kLevels; ++l) {
        if ((count >> l & 1) == 0) continue;
        if (any) {
          combine(level[l], sum, sum);
        } else {
          sum = level[l];
        }
        any = true;
      }
      return sum;
    }
  };

  /// All loads before the first addition.
  TUTTI_DEVICE Values reduce_plain(const Position& position) const {
    Bits<kBytes> bits[kMostSources];
#pragma unroll
    for (unsigned s = 0; s < kMostSources; ++s) {
      if (s < work_.source_count) {
        bits[s] = load_whole<kBytes>(work_.source(s).at + std::size_t{position.unit} * kBytes);
      }
    }
    Tree tree;
#pragma unroll
    for (unsigned s = 0; s < kMostSources; ++s) {
      if (s >= work_.source_count) continue;
      Values value = widened(bits[s]);
      if (op == ReduceOp::kSum && work_.source(s).scale) scale(value);
      tree.add(s, value);
    }
    return tree.root(work_.source_count);
  }

  /// One or two sources of several units: as many loads in flight as with eight of one.
  TUTTI_DEVICE void reduce_batch(const Position (&positions)[kBatch]) const {
    Bits<kBytes> bits[kBatch][2];
#pragma unroll
    for (unsigned i = 0; i < kBatch; ++i) {
#pragma unroll
      for (unsigned s = 0; s < 2; ++s) {
        if (s >= work_.source_count) continue;
        bits[i][s] =
            load_whole<kBytes>(work_.source(s).at + std::size_t{positions[i].unit} * kBytes);
      }
    }
#pragma unroll
    for (unsigned i = 0; i < kBatch; ++i) {
      Values values[2];
#pragma unroll
      for (unsigned s = 0; s < 2; ++s) {
        if (s >= work_.source_count) continue;
        values[s] = widened(bits[i][s]);
        if (op == ReduceOp::kSum && work_.source(s).scale) scale(values[s]);
      }
      if (work_.source_count == 2) combine(values[0], values[1], values[0]);
      store_all(positions[i], values[0]);
    }
  }

  /// One source after the other, as each may have to be waited for.
  TUTTI_DEVICE Values reduce_any(const Position& position) const {
    Tree tree;
#pragma unroll 1
    for (unsigned s = 0; s < work_.source_count; ++s) {
      tree.add(s, load_any(work_.source(s), position));
    }
    return tree.root(work_.source_count);
  }

  TUTTI_DEVICE Values load_any(const Resolved& source, const Position& position) const {
    Values values;
    if (where == Where::kAnywhere && source.form == Form::kPartial) {
      const auto bits = load_unit<kPartialBytes, kElements>(source, position, watch_, failed_);
      std::memcpy(values.of, bits.word, sizeof values.of);
    } else {
      values = widened(load_unit<kBytes, kElements, where>(source, position, watch_, failed_));
    }
    if (op == ReduceOp::kSum && source.scale) scale(values);
    return values;
  }

  TUTTI_DEVICE Bits<kBytes> rounded(Values values, bool result) const {
    if (op == ReduceOp::kSum && result && arguments_.op == ReduceOp::kAvg) {
#pragma unroll
      for (unsigned e = 0; e < kElements; ++e) {
        values.of[e] =
            kernels::finish<ReduceOp::kAvg>(values.of[e], static_cast<int>(arguments_.ranks));
      }
    }
    return stored(values);
  }

  const Arguments& arguments_;
  const Work& work_;
  Watch& watch_;
  bool& failed_;
};

/// Does the work of a step.
template <DataType type, ReduceOp op>
TUTTI_DEVICE void do_work(const Arguments& arguments, const Work& work, Watch& watch,
                          bool& failed) {
  using Traits = TypeTraits<type>;
  if (!work.copy) return Body<type, op>(arguments, work, watch, failed).run();
  if (Traits::kPartialBytes != Traits::kBytes && work.source(0).form == Form::kPartial) {
    return copy_units<Traits::kPartialBytes, Traits::kElements>(work, watch, failed);
  }
  copy_units<Traits::kBytes, Traits::kElements>(work, watch, failed);
}

}  // namespace tutti::cuda
