// File: kernels/cuda/body.h: the body of a data step on a device: n sources, reduced in canonical
// order, to m targets.
#pragma once
#include "kernels/cuda/arithmetic.h"
#include "kernels/cuda/unit.h"

namespace tutti::cuda {

/// Units of a run, of 16 bytes most often. Where blocks went through memory far from each other,
/// one contiguous share each, an H100 took 10 % longer for a sum of 8 sources and 6 % for one of 2.
/// Runs of 8 KiB to 512 KiB took the same time (docs/PERFORMANCE.md#blocks-side-by-side).
inline constexpr unsigned kRunUnits = 2048;

/// A block's work, in its shared memory: a step whose locations were looked up.
struct Work {
  Resolved locations[kMostLocations];  // Sources, then targets.
  unsigned source_count, target_count;
  unsigned elements;      // In the tile.
  std::uint64_t element;  // The index in the message of the first one.
  unsigned scaled;        // Sources that are multiplied first: a bit for each.
  bool lined;             // A location is a slot of lines: units are in rows, warps stay together.
  bool plain;  // All is in plain memory, aligned and of the message's type, and all targets
               // are of one form.
  bool copy;   // Bits are moved, nothing is computed.
  unsigned first_thread;  // Takes the first unit; the first thread of a warp. Moves that run side
                          // by side begin with different warps.
  // Several blocks, `shares` of them, may share the tile if all of it is plain memory. They go
  // through it side by side: this block takes run `share` of each `shares` runs of `run_units`
  // units.
  unsigned share, shares, run_units;

  /// The calling thread's number among those that take units. Its lane stays what it is.
  TUTTI_DEVICE unsigned thread() const {
    const unsigned after = threadIdx.x - first_thread;
    return threadIdx.x >= first_thread ? after : after + blockDim.x;
  }
  /// Has the block take a share of `elements`, which are set.
  TUTTI_DEVICE void take_share(unsigned of, unsigned blocks, unsigned unit_elements) {
    const unsigned units = (elements + unit_elements - 1) / unit_elements;
    share = of;
    shares = blocks;
    // Whole rows of warps, so that each block writes whole lines.
    const unsigned even =
        ((units + blocks - 1) / blocks + kWarpLanes - 1) / kWarpLanes * kWarpLanes;
    run_units = even < kRunUnits ? even : kRunUnits;
  }
  TUTTI_DEVICE const Resolved& source(unsigned index) const { return locations[index]; }
  TUTTI_DEVICE const Resolved& target(unsigned index) const {
    return locations[source_count + index];
  }
};

/// Loads of a thread that are under way at a time, of 16 bytes most often: with kMostThreads
/// threads 64 KiB of a multiprocessor, which needs some 30 for its share of an H200's memory
/// (docs/kernels-predicted.md).
///
/// Threads set to zero what they don't load: else values are kept from one turn of a loop to the
/// next, in registers that nothing else can have.
inline constexpr unsigned kInFlight = 8;

/// Calls `visit(begin, end)` for the block's runs of the first `units` units.
template <class Visit>
TUTTI_DEVICE void for_each_run(const Work& work, unsigned units, Visit visit) {
  const unsigned run = work.shares == 1 ? units : work.run_units;
#pragma unroll 1
  for (unsigned begin = work.share * run; begin < units; begin += work.shares * run) {
    const unsigned end = begin + run;
    visit(begin, end < units ? end : units);
  }
}

/// Calls `visit(position)` for the thread's units, but the first `done` of all, which are none in
/// lined steps. In these all lanes of a warp get as many.
template <unsigned kElements, class Visit>
TUTTI_DEVICE void for_each_unit(const Work& work, unsigned done, Visit visit) {
  const unsigned units = (work.elements + kElements - 1) / kElements;
  const unsigned lane = threadIdx.x % kWarpLanes;
  const unsigned per_row = work.lined ? kWarpUnits : kWarpLanes;
  const unsigned in_row =
      work.lined ? lane / kLineLanes * (kLineLanes - 1) + lane % kLineLanes : lane;
  const bool has_data = !work.lined || lane % kLineLanes != kLineLanes - 1;
  const unsigned warps = blockDim.x / kWarpLanes, done_rows = done / kWarpLanes;
  const unsigned rows = (units + per_row - 1) / per_row;
  // A tile that is shared is in plain memory, and its runs are whole rows.
  const unsigned run_rows = work.shares == 1 ? rows : work.run_units / kWarpLanes;
#pragma unroll 1
  for (unsigned begin = work.share * run_rows; begin < rows; begin += work.shares * run_rows) {
    const unsigned end = begin + run_rows < rows ? begin + run_rows : rows;
    const unsigned first = begin < done_rows ? done_rows : begin;
#pragma unroll 1
    for (unsigned row = first + work.thread() / kWarpLanes; row < end; row += warps) {
      const unsigned unit = row * per_row + in_row;
      unsigned valid = 0;
      if (has_data && unit >= done && unit < units) {
        const unsigned left = work.elements - unit * kElements;
        valid = left < kElements ? left : kElements;
      }
      visit(Position{unit, valid, row, lane});
    }
  }
}

/// The units from `begin` up to `end` of plain memory, to plain memory: all loads of several before
/// the first store.
template <std::size_t kBytes>
TUTTI_DEVICE void copy_run(const Work& work, unsigned begin, unsigned end) {
  constexpr unsigned kUnits = kInFlight / 2;  // Half of what a copy moves is stored.
  const std::byte* from = work.source(0).at;
#pragma unroll 1
  for (unsigned first = begin + work.thread(); first < end; first += kUnits * blockDim.x) {
    Bits<kBytes> bits[kUnits];
#pragma unroll
    for (unsigned u = 0; u < kUnits; ++u) {
      const unsigned unit = first + u * blockDim.x;
      bits[u] =
          unit < end ? load_whole<kBytes>(from + std::size_t{unit} * kBytes) : zero_bits<kBytes>();
    }
#pragma unroll 1
    for (unsigned t = 0; t < work.target_count; ++t) {
      std::byte* to = work.target(t).at;
      // A copy onto itself (in place) is left out: peers may be reading there.
      if (to == from) continue;
#pragma unroll
      for (unsigned u = 0; u < kUnits; ++u) {
        const unsigned unit = first + u * blockDim.x;
        if (unit < end) store_whole<kBytes>(to + std::size_t{unit} * kBytes, bits[u]);
      }
    }
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
      // As in copy_run.
      if (target.at != source.at) store_unit<kBytes, kElements>(target, position, bits);
    }
  };
  unsigned done = 0;
  if (work.plain) {
    done = work.elements / kElements;
    for_each_run(work, done,
                 [&](unsigned begin, unsigned end) { copy_run<kBytes>(work, begin, end); });
  }
  for_each_unit<kElements>(work, done, [&](const Position& position) {
    store_all(position, load_unit<kBytes, kElements>(source, position, watch, failed));
  });
}

/// A step that computes, of one type and operation.
template <DataType type, ReduceOp op, Where where = Where::kAnywhere>
class Body {
  using Traits = TypeTraits<type>;
  using Compute = Arithmetic<type, op>;
  using Values = typename Compute::Values;
  static constexpr unsigned kElements = Traits::kElements;
  static constexpr std::size_t kBytes = Traits::kBytes;
  static constexpr std::size_t kPartialBytes = Traits::kPartialBytes;

 public:
  TUTTI_DEVICE Body(const Arguments& arguments, const Work& work, Watch& watch, bool& failed)
      : arguments_(arguments), work_(work), watch_(watch), failed_(failed) {}

  TUTTI_DEVICE void run() {
    unsigned done = 0;
    if (work_.plain) {
      done = work_.elements / kElements;
      for_each_run(work_, done, [&](unsigned begin, unsigned end) {
        if (work_.source_count <= 2) {
          reduce_run<2>(begin, end);
        } else if (work_.source_count <= 4) {
          reduce_run<4>(begin, end);
        } else {
          reduce_run<kMostSources>(begin, end);
        }
      });
    }
    for_each_unit<kElements>(
        work_, done, [&](const Position& position) { store_all(position, reduce_any(position)); });
  }

  /// All sources of a unit.
  TUTTI_DEVICE Values reduce(const Position& position) const {
    return work_.plain && position.valid == kElements ? reduce_plain(position)
                                                      : reduce_any(position);
  }

  /// A unit, to all targets.
  TUTTI_DEVICE void store_all(const Position& position, const Values& values) const {
    Form form = Form::kPartial;
    auto bits = zero_bits<kBytes>();
#pragma unroll 1
    for (unsigned t = 0; t < work_.target_count; ++t) {
      const Resolved& target = work_.target(t);
      if (where == Where::kAnywhere && target.form == Form::kPartial) {
        store_unit<kPartialBytes, kElements>(target, position, Compute::partial(values));
        continue;
      }
      // Most often all targets have one form, and are rounded once.
      if (form != target.form) {
        bits = Compute::rounded(arguments_, values, target.form == Form::kResult);
      }
      form = target.form;
      store_unit<kBytes, kElements, where>(target, position, bits);
    }
  }

 private:
  /// The units from `begin` up to `end`, of up to kMost sources, all in plain memory: all loads of
  /// several before the first addition.
  template <unsigned kMost>
  TUTTI_DEVICE void reduce_run(unsigned begin, unsigned end) const {
    constexpr unsigned kUnits = kInFlight / kMost;
    const bool result = work_.target(0).form == Form::kResult;
#pragma unroll 1
    for (unsigned first = begin + work_.thread(); first < end; first += kUnits * blockDim.x) {
      Bits<kBytes> bits[kUnits][kMost];
#pragma unroll
      for (unsigned s = 0; s < kMost; ++s) {
        const bool is_source = s < work_.source_count;
        const std::byte* at = is_source ? work_.source(s).at : nullptr;
#pragma unroll
        for (unsigned u = 0; u < kUnits; ++u) {
          const unsigned unit = first + u * blockDim.x;
          bits[u][s] = is_source && unit < end ? load_whole<kBytes>(at + std::size_t{unit} * kBytes)
                                               : zero_bits<kBytes>();
        }
      }
      Bits<kBytes> sums[kUnits];
#pragma unroll
      for (unsigned u = 0; u < kUnits; ++u) {
        sums[u] = Compute::rounded(arguments_, sum_of<kMost>(bits[u]), result);
      }
#pragma unroll 1
      for (unsigned t = 0; t < work_.target_count; ++t) {
        std::byte* to = work_.target(t).at;
#pragma unroll
        for (unsigned u = 0; u < kUnits; ++u) {
          const unsigned unit = first + u * blockDim.x;
          if (unit < end) store_whole<kBytes>(to + std::size_t{unit} * kBytes, sums[u]);
        }
      }
    }
  }

  /// All loads before the first addition.
  TUTTI_DEVICE Values reduce_plain(const Position& position) const {
    Bits<kBytes> bits[kMostSources];
#pragma unroll
    for (unsigned s = 0; s < kMostSources; ++s) {
      bits[s] = s < work_.source_count
                    ? load_whole<kBytes>(work_.source(s).at + std::size_t{position.unit} * kBytes)
                    : zero_bits<kBytes>();
    }
    return sum_of<kMostSources>(bits);
  }

  template <unsigned kMost>
  TUTTI_DEVICE Values sum_of(const Bits<kBytes> (&bits)[kMost]) const {
    typename Compute::Tree tree;
#pragma unroll
    for (unsigned s = 0; s < kMost; ++s) {
      if (s >= work_.source_count) continue;
      tree.add(s, prepared(Compute::widened(bits[s]), s));
    }
    return tree.root(work_.source_count);
  }

  /// One source after the other, as each may have to be waited for.
  TUTTI_DEVICE Values reduce_any(const Position& position) const {
    typename Compute::Tree tree;
#pragma unroll 1
    for (unsigned s = 0; s < work_.source_count; ++s) {
      tree.add(s, prepared(load_any(work_.source(s), position), s));
    }
    return tree.root(work_.source_count);
  }

  TUTTI_DEVICE Values load_any(const Resolved& source, const Position& position) const {
    if (where == Where::kAnywhere && source.form == Form::kPartial) {
      return Compute::of_partial(
          load_unit<kPartialBytes, kElements>(source, position, watch_, failed_));
    }
    return Compute::widened(load_unit<kBytes, kElements, where>(source, position, watch_, failed_));
  }

  TUTTI_DEVICE Values prepared(const Values& values, unsigned source) const {
    return (work_.scaled >> source & 1) != 0 ? Compute::scaled(arguments_, values) : values;
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
