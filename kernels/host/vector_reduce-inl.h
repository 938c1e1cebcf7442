// File: kernels/host/vector_reduce-inl.h: a data step in vectors, in one pass over memory.
//
// Model. Elements are independent, so a step is cut into blocks of a few vectors. For each block
// the canonical tree over all sources is worked out in registers, and its root is stored to all
// targets; every input byte is read once and every output byte written once. A range shorter than
// a vector goes through a quarter as wide a vector, down to single elements, so that no byte
// outside the range is touched.
//
// Invariant, for targets in the memory of a source: a block's sources are all loaded before its
// targets are stored, and no element is loaded after it was stored. The last vector of a range
// overlaps the one before it, and is therefore worked out first and stored last.
#if defined(TUTTI_VECTOR_REDUCE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TUTTI_VECTOR_REDUCE_INL_H_
#undef TUTTI_VECTOR_REDUCE_INL_H_
#else
#define TUTTI_VECTOR_REDUCE_INL_H_
#endif

#include <hwy/cache_control.h>

#include <bit>

#include "kernels/host/kernel_table.h"
#include "kernels/host/vector_element-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tutti::kernels::HWY_NAMESPACE {

/// Vectors that are worked on together, to hide the latency of one behind the others.
template <class D, int kVectors>
struct Block {
  hn::Vec<D> at[kVectors];
};

/// A step for one type and operation. Without kPartials, no source and no target is a partial.
template <class Vector, ReduceOp op, bool kPartials>
class Reducer {
 public:
  using Lane = typename Vector::Lane;
  using Stored = typename Vector::Stored;
  using Full = hn::ScalableTag<Lane>;
  static constexpr std::size_t kLanes = hn::MaxLanes(Full());
  static constexpr int kUnroll = 4;
  static constexpr bool kPlain = std::is_same_v<Lane, Stored>;
  // Whether a partial differs from a result in any way.
  static constexpr bool kTwoForms = kPartials && !(kPlain && op != ReduceOp::kAvg);

  Reducer(const Arithmetic& arithmetic, std::span<const Source> sources,
          std::span<const Target> targets)
      : sources_(sources.data()),
        source_count_(sources.size()),
        targets_(targets),
        rank_count_(arithmetic.rank_count),
        scale_(scale_as<Lane>(arithmetic.scale, arithmetic.integer_scale)) {}

  /// All elements. kSources is the source count where that is a constant, else 0.
  template <int kSources>
  HWY_INLINE void run(std::size_t count, Stores stores) const {
    const Full d;
    std::size_t i = 0;
    if (stores == Stores::kStreaming) i = run_streaming<kSources>(count);
    if (count - i < kLanes) return run_short<Quarter<Full>>(i, count);
    const auto last = tree<kSources, 1>(d, count - kLanes);
    for (; i + kUnroll * kLanes <= count; i += kUnroll * kLanes) {
      emit<false>(d, tree<kSources, kUnroll>(d, i), i);
    }
    for (; i + kLanes < count; i += kLanes) emit<false>(d, tree<kSources, 1>(d, i), i);
    if (i < count) emit<false>(d, last, count - kLanes);
  }

  /// Elements [begin, end), at most about a vector of them.
  template <class D>
  HWY_NOINLINE void run_short(std::size_t begin, std::size_t end) const {
    const D d;
    constexpr std::size_t kStep = hn::MaxLanes(D());
    if (end - begin < kStep) {
      if constexpr (kStep > 1) run_short<Quarter<D>>(begin, end);
      return;
    }
    const auto last = tree<0, 1>(d, end - kStep);
    for (std::size_t i = begin; i + kStep < end; i += kStep) {
      emit<false>(d, tree<0, 1>(d, i), i);
    }
    emit<false>(d, last, end - kStep);
  }

 private:
  template <class D>
  using Quarter = hn::CappedTag<Lane, (hn::MaxLanes(D()) > 4 ? hn::MaxLanes(D()) / 4 : 1)>;
  template <class D>
  using StoredTag = hn::Rebind<Stored, D>;
  template <int kVectors>
  static constexpr bool kPaired = Vector::kPairs && kVectors % 2 == 0;

  /// Stores what it can past the cache and returns where that ends.
  template <int kSources>
  HWY_INLINE std::size_t run_streaming(std::size_t count) const {
    constexpr std::size_t kStep = kUnroll * kLanes;
    const std::size_t head = first_aligned();
    if (head > count || count - head < kStep) return 0;
    run_short<Full>(0, head);
    const Full d;
    std::size_t i = head;
    for (; i + kStep <= count; i += kStep) emit<true>(d, tree<kSources, kUnroll>(d, i), i);
    hwy::FlushStream();
    return i;
  }

  /// The first element that lies at the beginning of a cache line in all targets; more than any
  /// count if there is none.
  std::size_t first_aligned() const {
    constexpr std::size_t kLine = 64;
    const std::size_t bytes = bytes_of(targets_[0]);
    const std::size_t offset = (0 - reinterpret_cast<std::uintptr_t>(targets_[0].data)) % kLine;
    bool possible = offset % bytes == 0;
    for (const Target& target : targets_) {
      const auto address = reinterpret_cast<std::uintptr_t>(target.data);
      possible = possible && bytes_of(target) == bytes && (address + offset) % kLine == 0;
    }
    return possible ? offset / bytes : ~std::size_t{0};
  }

  static std::size_t bytes_of(const Target& target) {
    return target.form == Form::kPartial ? sizeof(Lane) : sizeof(Stored);
  }

  // ---- reading

  template <int kVectors, class D>
  HWY_INLINE Block<D, kVectors> leaf(D d, const Source& source, std::size_t index) const {
    auto block = kPlain || (kPartials && source.form == Form::kPartial)
                     ? read_partial<kVectors>(d, source.data + index * sizeof(Lane))
                     : read_stored<kVectors>(d, source.data + index * sizeof(Stored));
    if constexpr (op == ReduceOp::kPreMulSum) {
      const auto factor = hn::Set(d, source.scale ? scale_ : Lane{1});
      for (auto& vector : block.at) vector = multiply_vectors(d, factor, vector);
    }
    return block;
  }

  template <int kVectors, class D>
  static HWY_INLINE Block<D, kVectors> read_partial(D d, const std::byte* from) {
    Block<D, kVectors> block;
    if constexpr (kPaired<kVectors>) {
      for (int v = 0; v < kVectors; v += 2) {
        load_pair(d, from + v * kBytes<D>, block.at[v], block.at[v + 1]);
      }
    } else {
      for (int v = 0; v < kVectors; ++v) block.at[v] = load(d, from + v * kBytes<D>);
    }
    return block;
  }

  template <int kVectors, class D>
  static HWY_INLINE Block<D, kVectors> read_stored(D d, const std::byte* from) {
    Block<D, kVectors> block;
    if constexpr (kPaired<kVectors>) {
      const hn::RebindToUnsigned<D> words;
      for (int v = 0; v < kVectors; v += 2) {
        const auto pairs = load(words, from + v / 2 * kBytes<decltype(words)>);
        block.at[v] = Vector::widen_even(d, pairs);
        block.at[v + 1] = Vector::widen_odd(d, pairs);
      }
    } else {
      const StoredTag<D> stored;
      for (int v = 0; v < kVectors; ++v) {
        block.at[v] = Vector::widen(d, load(stored, from + v * kBytes<StoredTag<D>>));
      }
    }
    return block;
  }

  template <int kVectors, class D>
  static HWY_INLINE Block<D, kVectors> combined(D d, const Block<D, kVectors>& left,
                                                const Block<D, kVectors>& right) {
    Block<D, kVectors> block;
    for (int v = 0; v < kVectors; ++v) {
      block.at[v] = combine_vectors<op>(d, left.at[v], right.at[v]);
    }
    return block;
  }

  template <int kSources, int kVectors, class D>
  HWY_INLINE Block<D, kVectors> tree(D d, std::size_t index) const {
    if constexpr (kSources == 0) {
      if (source_count_ == 2) return fixed_tree<2, kVectors>(d, sources_, index);
      return any_tree<kVectors>(d, sources_, source_count_, index);
    } else {
      return fixed_tree<kSources, kVectors>(d, sources_, index);
    }
  }

  template <int kSources, int kVectors, class D>
  HWY_INLINE Block<D, kVectors> fixed_tree(D d, const Source* sources, std::size_t index) const {
    if constexpr (kSources == 1) {
      return leaf<kVectors>(d, *sources, index);
    } else {
      constexpr int kLeft = static_cast<int>(left_part(kSources));
      const auto left = fixed_tree<kLeft, kVectors>(d, sources, index);
      const auto right = fixed_tree<kSources - kLeft, kVectors>(d, sources + kLeft, index);
      return combined(d, left, right);
    }
  }

  /// The call stack holds the open nodes: log2(n) blocks, in the first-level cache.
  template <int kVectors, class D>
  HWY_NOINLINE Block<D, kVectors> any_tree(D d, const Source* sources, std::size_t n,
                                           std::size_t index) const {
    switch (n) {
      case 1: return fixed_tree<1, kVectors>(d, sources, index);
      case 2: return fixed_tree<2, kVectors>(d, sources, index);
      case 4: return fixed_tree<4, kVectors>(d, sources, index);
      default: break;
    }
    const std::size_t left_count = std::bit_floor(n - 1);
    const auto left = any_tree<kVectors>(d, sources, left_count, index);
    const auto right = any_tree<kVectors>(d, sources + left_count, n - left_count, index);
    return combined(d, left, right);
  }

  // ---- writing

  template <bool kStreaming, class D, int kVectors>
  HWY_INLINE void emit(D d, const Block<D, kVectors>& root, std::size_t index) const {
    const auto result = rounded(d, root);
    for (const Target& target : targets_) {
      if (kTwoForms && target.form == Form::kPartial) {
        write_partial<kStreaming>(d, root, target.data + index * sizeof(Lane));
      } else {
        write<kStreaming>(tag_of(result), result, target.data + index * sizeof(Stored));
      }
    }
  }

  template <class D, int kVectors>
  HWY_INLINE auto rounded(D d, const Block<D, kVectors>& root) const {
    if constexpr (kPaired<kVectors>) {
      // A scale can be any NaN, and so can its products.
      constexpr bool kAnyNan = kPartials || op == ReduceOp::kPreMulSum;
      Block<hn::RebindToUnsigned<D>, kVectors / 2> result;
      for (int v = 0; v < kVectors; v += 2) {
        result.at[v / 2] = Vector::template round_pair<kAnyNan>(d, finished(d, root.at[v]),
                                                                finished(d, root.at[v + 1]));
      }
      return result;
    } else {
      Block<StoredTag<D>, kVectors> result;
      for (int v = 0; v < kVectors; ++v) result.at[v] = Vector::round(d, finished(d, root.at[v]));
      return result;
    }
  }

  template <class D>
  HWY_INLINE hn::Vec<D> finished(D d, hn::Vec<D> value) const {
    if constexpr (op == ReduceOp::kAvg) {
      return divide_vector(d, value, rank_count_);
    } else {
      return value;
    }
  }

  template <bool kStreaming, class D, int kVectors>
  static HWY_INLINE void write(D d, const Block<D, kVectors>& block, std::byte* to) {
    for (int v = 0; v < kVectors; ++v) {
      if constexpr (kStreaming) {
        stream(d, block.at[v], to + v * kBytes<D>);
      } else {
        store(d, block.at[v], to + v * kBytes<D>);
      }
    }
  }

  template <bool kStreaming, class D, int kVectors>
  static HWY_INLINE void write_partial(D d, const Block<D, kVectors>& block, std::byte* to) {
    if constexpr (kPaired<kVectors>) {
      for (int v = 0; v < kVectors; v += 2) {
        store_pair(d, block.at[v], block.at[v + 1], to + v * kBytes<D>);
      }
    } else {
      write<kStreaming>(d, block, to);
    }
  }

  template <class D, int kVectors>
  static constexpr D tag_of(const Block<D, kVectors>&) {
    return {};
  }

  template <class D>
  static constexpr std::size_t kBytes = hn::MaxLanes(D()) * sizeof(hn::TFromD<D>);

  const Source* sources_;
  std::size_t source_count_;
  std::span<const Target> targets_;
  int rank_count_;
  Lane scale_;
};

inline bool any_partial(std::span<const Source> sources, std::span<const Target> targets) {
  for (const Source& source : sources) {
    if (source.form == Form::kPartial) return true;
  }
  for (const Target& target : targets) {
    if (target.form == Form::kPartial) return true;
  }
  return false;
}

/// A Kernel for any number of sources. kHot: with the usual numbers known to the compiler.
template <class Vector, ReduceOp op, bool kHot = false>
void reduce_vectors(const Arithmetic& arithmetic, std::span<const Source> sources,
                    std::span<const Target> targets, std::size_t count, Stores stores) {
  using General = Reducer<Vector, op, true>;
  if constexpr (kHot) {
    using Hot = Reducer<Vector, op, !General::kTwoForms>;
    if (!General::kTwoForms || !any_partial(sources, targets)) {
      const Hot reducer(arithmetic, sources, targets);
      switch (sources.size()) {
        case 1: return reducer.template run<1>(count, stores);
        case 2: return reducer.template run<2>(count, stores);
        case 3: return reducer.template run<3>(count, stores);
        case 4: return reducer.template run<4>(count, stores);
        case 8: return reducer.template run<8>(count, stores);
        default: return reducer.template run<0>(count, stores);
      }
    }
  }
  General(arithmetic, sources, targets).template run<0>(count, stores);
}

/// All operations of a floating-point type; sums are what training asks for.
template <DataType type, class Vector, bool kHot = true>
void add_float_operations(KernelTable& table) {
  table.at(type, ReduceOp::kSum) = reduce_vectors<Vector, ReduceOp::kSum, kHot>;
  table.at(type, ReduceOp::kAvg) = reduce_vectors<Vector, ReduceOp::kAvg, kHot>;
  table.at(type, ReduceOp::kProd) = reduce_vectors<Vector, ReduceOp::kProd>;
  table.at(type, ReduceOp::kMax) = reduce_vectors<Vector, ReduceOp::kMax>;
  table.at(type, ReduceOp::kMin) = reduce_vectors<Vector, ReduceOp::kMin>;
  table.at(type, ReduceOp::kPreMulSum) = reduce_vectors<Vector, ReduceOp::kPreMulSum>;
}

}  // namespace tutti::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
