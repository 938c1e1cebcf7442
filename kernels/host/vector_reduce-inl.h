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

#include <utility>

#include "kernels/host/kernel_table.h"
#include "kernels/host/vector_element-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tutti::kernels::HWY_NAMESPACE {

/// Vectors that are worked on together, to hide the latency of one behind the others.
template <class D, int kVectors>
struct Block {
  hn::Vec<D> at[kVectors];
};

/// A step for one type and operation. Without kMixed, no step that is_mixed.
/// It has more than 20 functions: one for each shape of loop and kind of arithmetic.
template <class Vector, ReduceOp op, bool kMixed>
class Reducer {
 public:
  using Lane = typename Vector::Lane;
  using Stored = typename Vector::Stored;
  using Full = hn::ScalableTag<Lane>;
  static constexpr std::size_t kLanes = hn::MaxLanes(Full());
  // Conversions of 8-bit floats are long enough to overlap by themselves.
  static constexpr int kUnroll = sizeof(Stored) == 1 && sizeof(Lane) != 1 ? 2 : 4;
  static constexpr std::size_t kBlock = kUnroll * kLanes;
  static constexpr std::size_t kMostLevels = 64;  // One for each bit of the source count.
  static constexpr bool kPlain = std::is_same_v<Lane, Stored>;
  // Whether targets of one step can get different bits.
  static constexpr bool kTwoForms = kMixed && !(kPlain && op != ReduceOp::kAvg);

  explicit Reducer(const Step& step) : step_(step) {}

  /// All elements. kSources is the source count where that is a constant, else 0.
  template <int kSources>
  HWY_INLINE void run() const {
    const Full d;
    const std::size_t count = step_.count;
    std::size_t i = 0;
    bool streaming = false;
    if (step_.stores == Stores::kStreaming) {
      const std::size_t head = first_aligned();
      streaming = head < count && count - head >= kBlock;
      if (streaming && head != 0) run_short<Full>(std::exchange(i, head), head);
    }
    for (; i + kBlock <= count; i += kBlock) {
      const auto root = tree<kSources, kUnroll>(d, i);
      if (streaming) {
        emit<true>(d, root, i);
      } else {
        emit<false>(d, root, i);
      }
    }
    if (streaming) hwy::FlushStream();
    if (i < count) run_short<Full>(i, count);
  }

  /// All elements, fewer than kBlock.
  HWY_INLINE void run_few() const {
    using Small = Quarter<Full>;
    const std::size_t count = step_.count;
    if (count < hn::MaxLanes(Small())) return run_short<Quarter<Small>>(0, count);
    if (count < kLanes) return run_short<Small>(0, count);
    run_short<Full>(0, count);
  }

 private:
  template <class D>
  using Quarter = hn::CappedTag<Lane, (hn::MaxLanes(D()) > 4 ? hn::MaxLanes(D()) / 4 : 1)>;
  template <class D>
  using StoredTag = hn::Rebind<Stored, D>;
  template <int kVectors>
  static constexpr bool kPaired = Vector::kPairs&& kVectors % 2 == 0;

  /// Elements [begin, end), of which there is at least one.
  template <class D>
  HWY_NOINLINE void run_short(std::size_t begin, std::size_t end) const {
    const D d;
    constexpr std::size_t kStep = hn::MaxLanes(D());
    if (end - begin < kStep) {
      if constexpr (kStep > 1) run_short<Quarter<D>>(begin, end);
      return;
    }
    const auto last = vector_tree(d, end - kStep);
    for (std::size_t i = begin; i + kStep < end; i += kStep) {
      emit<false>(d, vector_tree(d, i), i);
    }
    emit<false>(d, last, end - kStep);
  }

  /// The first element that lies at the beginning of a cache line in all targets; more than any
  /// count if there is none.
  std::size_t first_aligned() const {
    constexpr std::size_t kLine = 64;
    const std::size_t bytes = bytes_of(step_.targets[0]);
    const std::size_t offset =
        (0 - reinterpret_cast<std::uintptr_t>(step_.targets[0].data)) % kLine;
    bool possible = offset % bytes == 0;
    for (const Target& target : step_.targets) {
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
    auto block = kPlain || (kMixed && source.form == Form::kPartial)
                     ? read_partial<kVectors>(d, source.data + index * sizeof(Lane))
                     : read_stored<kVectors>(d, source.data + index * sizeof(Stored));
    if constexpr (op == ReduceOp::kPreMulSum) {
      const auto scale = scale_as<Lane>(step_.arithmetic.scale, step_.arithmetic.integer_scale);
      const auto factor = hn::Set(d, source.scale ? scale : Lane{1});
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
      return any_tree<kVectors>(d, index);
    } else {
      return fixed_tree<kSources, kVectors>(d, step_.sources.data(), index);
    }
  }

  template <class D>
  HWY_INLINE Block<D, 1> vector_tree(D d, std::size_t index) const {
    // Two ranks, a few elements: the time of the call counts.
    if (step_.sources.size() == 2) return fixed_tree<2, 1>(d, step_.sources.data(), index);
    return any_vector_tree(d, index);
  }
  template <class D>
  HWY_NOINLINE Block<D, 1> any_vector_tree(D d, std::size_t index) const {
    return any_tree<1>(d, index);
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

  /// The canonical tree is a binary counter: from left to right, full subtrees of equal size
  /// merge; what is left over has descending sizes and is folded from the right.
  template <int kVectors, class D>
  HWY_INLINE Block<D, kVectors> any_tree(D d, std::size_t index) const {
    const Source* sources = step_.sources.data();
    const std::size_t n = step_.sources.size();
    Block<D, kVectors> open[kMostLevels];  // In the first-level cache.
    std::size_t depth = 0;
    std::size_t first = 0;
    for (; first + 4 <= n; first += 4) {
      auto node = fixed_tree<4, kVectors>(d, sources + first, index);
      for (std::size_t done = first / 4; (done & 1) != 0; done >>= 1) {
        node = combined(d, open[--depth], node);
      }
      open[depth++] = node;
    }
    if ((n & 2) != 0) {
      open[depth++] = fixed_tree<2, kVectors>(d, sources + first, index);
      first += 2;
    }
    if ((n & 1) != 0) open[depth++] = fixed_tree<1, kVectors>(d, sources + first, index);
    auto node = open[--depth];
    while (depth != 0) node = combined(d, open[--depth], node);
    return node;
  }

  // ---- writing

  template <bool kStreaming, class D, int kVectors>
  HWY_INLINE void emit(D d, const Block<D, kVectors>& root, std::size_t index) const {
    const auto result = rounded(d, finished(d, root));
    for (const Target& target : step_.targets) {
      if (kTwoForms && target.form == Form::kPartial) {
        write_partial<kStreaming>(d, root, target.data + index * sizeof(Lane));
      } else if (kTwoForms && op == ReduceOp::kAvg && target.form == Form::kContribution) {
        write<kStreaming>(tag_of(result), rounded(d, root), target.data + index * sizeof(Stored));
      } else {
        write<kStreaming>(tag_of(result), result, target.data + index * sizeof(Stored));
      }
    }
  }

  template <class D, int kVectors>
  static HWY_INLINE auto rounded(D d, const Block<D, kVectors>& root) {
    if constexpr (kPaired<kVectors>) {
      // A scale can be any NaN, and so can its products.
      constexpr bool kAnyNan = kMixed || op == ReduceOp::kPreMulSum;
      Block<hn::RebindToUnsigned<D>, kVectors / 2> result;
      for (int v = 0; v < kVectors; v += 2) {
        result.at[v / 2] = Vector::template round_pair<kAnyNan>(d, root.at[v], root.at[v + 1]);
      }
      return result;
    } else {
      Block<StoredTag<D>, kVectors> result;
      for (int v = 0; v < kVectors; ++v) result.at[v] = Vector::round(d, root.at[v]);
      return result;
    }
  }

  template <class D, int kVectors>
  HWY_INLINE Block<D, kVectors> finished(D d, Block<D, kVectors> root) const {
    if constexpr (op == ReduceOp::kAvg) {
      for (auto& vector : root.at) vector = divide_vector(d, vector, step_.arithmetic.rank_count);
    }
    return root;
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

  // Not copied: a 16-byte load of a span that was just stored in halves is slow.
  const Step& step_;
};

/// Whether a step has other forms than contributions (or results) as sources and, as targets,
/// what a result looks like.
template <ReduceOp op>
bool is_mixed(const Step& step) {
  for (const Source& source : step.sources) {
    if (source.form == Form::kPartial) return true;
  }
  for (const Target& target : step.targets) {
    if (target.form == Form::kPartial) return true;
    if (op == ReduceOp::kAvg && target.form == Form::kContribution) return true;
  }
  return false;
}

// Functions of their own, so that each has only the frame that it needs.
template <class SomeReducer, int kSources>
HWY_NOINLINE void reduce_with(const Step& step) {
  SomeReducer(step).template run<kSources>();
}
template <class SomeReducer>
HWY_NOINLINE void reduce_few(const Step& step) {
  SomeReducer(step).run_few();
}

/// A Kernel for any number of sources. kHot: with the usual numbers known to the compiler.
template <class Vector, ReduceOp op, bool kHot = false>
void reduce_vectors(const Step& step) {
  using General = Reducer<Vector, op, true>;
  if (step.count < General::kBlock) return reduce_few<General>(step);
  if constexpr (kHot) {
    using Hot = Reducer<Vector, op, !General::kTwoForms>;
    if (!General::kTwoForms || !is_mixed<op>(step)) {
      switch (step.sources.size()) {
        case 1: return reduce_with<Hot, 1>(step);
        case 2: return reduce_with<Hot, 2>(step);
        case 3: return reduce_with<Hot, 3>(step);
        case 4: return reduce_with<Hot, 4>(step);
        case 8: return reduce_with<Hot, 8>(step);
        default: return reduce_with<Hot, 0>(step);
      }
    }
  }
  reduce_with<General, 0>(step);
}

}  // namespace tutti::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
