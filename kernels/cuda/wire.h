// File: kernels/cuda/wire.h: the body of a data step whose slots are encoded (tutti/wire.h), on a
// device: what kernels/host/wire_step.cc does on the host, bit for bit.
//
// Model. A unit is four elements of float32, so the eight lanes from a multiple of eight on have a
// block of 32: they find its largest magnitude together, and each encodes its own. In a slot there
// are the scales of all blocks, a byte each, and then the codes (tutti/detail/wire_codec.h). The
// rank's input is rounded where it is read, and a result before it is stored, to whatever target.
//
// In a step that computes, all sources of a unit are loaded before the first is looked at.
#pragma once
#include <type_traits>

#include "kernels/cuda/body.h"
#include "tutti/detail/wire_codec.h"

namespace tutti::cuda {

inline constexpr unsigned kWireUnit = unit_elements(DataType::kFloat32);
inline constexpr unsigned kWireLanes = kernels::kWireBlock / kWireUnit;
static_assert(kWireUnit == 4 && kWireLanes == 8);

/// The codes of a unit as they lie in a slot, and the code of its block's scale.
template <WireFormat format>
struct WireCodes {
  static constexpr unsigned kCodeBytes = wire_bits(format) / 8;
  static constexpr unsigned kWords = kWireUnit * kCodeBytes / 4;
  std::uint32_t word[kWords];
  std::uint32_t scale;
};

/// How a rank's values are rounded.
struct WireRounding {
  bool stochastic;
  kernels::WireKey key;  // The block's. Nearest: not looked at.
};

/// The format's arithmetic for a unit, of which `Values` are the elements.
template <WireFormat format, class Values>
struct WireUnits {
  using Codes = WireCodes<format>;
  static constexpr bool kScaled = has_scales(format);
  static constexpr std::uint32_t kNan = 0x7fc00000u;

  /// All lanes of the warp call; those without data have zeros.
  TUTTI_DEVICE static Codes encode(const Values& values, const WireRounding& rounding) {
    Codes codes = {};
    codes.scale = kScaled ? scale_of_block(values) : 127;
    const bool nan = kScaled && codes.scale == kernels::kNanScale;
    const float inverse = kernels::inverse_scale_of(nan ? 127 : codes.scale);
    const unsigned first = threadIdx.x % kWireLanes * kWireUnit;
#pragma unroll
    for (unsigned e = 0; e < kWireUnit; ++e) {
      const float value = kScaled ? values.of[e] * inverse : values.of[e];
      const std::uint32_t random =
          rounding.stochastic ? kernels::random_bits(rounding.key, first + e) : 0;
      const std::uint32_t code = nan ? 0 : encode_one(value, rounding.stochastic, random);
      constexpr unsigned kPerWord = 4 / Codes::kCodeBytes;
      codes.word[e / kPerWord] |= code << (e % kPerWord * Codes::kCodeBytes * 8);
    }
    return codes;
  }

  TUTTI_DEVICE static Values decode(const Codes& codes) {
    const bool nan = kScaled && codes.scale == kernels::kNanScale;
    const float scale = kernels::scale_of(nan ? 127 : codes.scale);
    Values values;
#pragma unroll
    for (unsigned e = 0; e < kWireUnit; ++e) {
      constexpr unsigned kPerWord = 4 / Codes::kCodeBytes;
      constexpr std::uint32_t kMask = (1u << (Codes::kCodeBytes * 8)) - 1;
      const float value =
          decode_one(codes.word[e / kPerWord] >> (e % kPerWord * Codes::kCodeBytes * 8) & kMask);
      values.of[e] = nan ? kernels::float_of(kNan) : kScaled ? value * scale : value;
    }
    return values;
  }

 private:
  TUTTI_DEVICE static std::uint32_t scale_of_block(const Values& values) {
    using Element = std::conditional_t<format == WireFormat::kInt8, kernels::Int8Element,
                                       kernels::Float8Element>;
    std::uint32_t largest = 0;
#pragma unroll
    for (unsigned e = 0; e < kWireUnit; ++e) {
      const std::uint32_t magnitude = kernels::bits_of(values.of[e]) & 0x7fffffffu;
      largest = magnitude > largest ? magnitude : largest;
    }
#pragma unroll
    for (unsigned apart = kWireLanes / 2; apart > 0; apart /= 2) {
      const std::uint32_t other = __shfl_xor_sync(~0u, largest, static_cast<int>(apart));
      largest = other > largest ? other : largest;
    }
    return kernels::scale_code<Element>(largest);
  }
  TUTTI_DEVICE static std::uint32_t encode_one(float value, bool stochastic, std::uint32_t random) {
    if constexpr (format == WireFormat::kFloat16) {
      return stochastic ? kernels::encode_by_chance<kernels::Float16Format>(value, random)
                        : kernels::Float16Format::encode(value);
    } else if constexpr (format == WireFormat::kBfloat16) {
      return stochastic ? kernels::encode_bfloat16_by_chance(value, random)
                        : kernels::Bfloat16Format::encode(value);
    } else if constexpr (format == WireFormat::kInt8) {
      return kernels::encode_int8(value, stochastic, random);
    } else {
      return kernels::encode_float8(value, stochastic, random);
    }
  }
  TUTTI_DEVICE static float decode_one(std::uint32_t code) {
    if constexpr (format == WireFormat::kFloat16) {
      return kernels::Float16Format::decode(code);
    } else if constexpr (format == WireFormat::kBfloat16) {
      return kernels::Bfloat16Format::decode(code);
    } else if constexpr (format == WireFormat::kInt8) {
      return kernels::decode_int8(code);
    } else {
      return kernels::Float8E4M3Format::decode(code);
    }
  }
};

/// The keys of a call's roundings (kernels::stream_key), alike for all of its blocks.
struct WireStreams {
  std::uint64_t input, result;
};

/// Those of the call that begins: it has the next number. By one thread of each block. The device
/// counts, so that a graph that is replayed rounds anew.
TUTTI_DEVICE WireStreams begin_wire_call(const Arguments& arguments) {
  const std::uint64_t call = load_relaxed(&arguments.states[0].wire_calls) / kWireCall + 1;
  return {kernels::stream_key(call, arguments.rank),
          kernels::stream_key(call, kernels::kResultSource)};
}
/// The block's thread that began it calls this once the block is done; the call is counted with the
/// last of them, when all have read the number.
TUTTI_DEVICE void end_wire_call(const Arguments& arguments) {
  std::uint64_t* const calls = &arguments.states[0].wire_calls;
  const std::uint64_t before = add(calls, 1);
  if (before % kWireCall + 1 == gridDim.x)
    store_relaxed(calls, (before / kWireCall + 1) * kWireCall);
}

/// A step on a wire. All warps of the block call it, whole.
template <WireFormat format, ReduceOp op>
class WireBody {
  using Compute = Arithmetic<DataType::kFloat32, op>;
  using Values = typename Compute::Values;
  using Units = WireUnits<format, Values>;
  using Codes = WireCodes<format>;
  static constexpr std::size_t kUnitBytes = kWireUnit * sizeof(float);

  /// A unit of a source as it was loaded: words of float32, or codes.
  struct Loaded {
    Bits<kUnitBytes> bits;
    std::uint32_t scale;
  };

 public:
  TUTTI_DEVICE WireBody(const Arguments& arguments, const Work& work, const WireStreams& streams)
      : arguments_(arguments), work_(work), streams_(streams) {}

  TUTTI_DEVICE void run() const {
    const bool copies = is_copy();
    for_each_unit<kWireUnit>(work_, 0, [&](const Position& position) {
      if (copies) {
        copy(position);
      } else {
        reduce(position);
      }
    });
  }

 private:
  /// Whether the step computes nothing.
  TUTTI_DEVICE bool is_copy() const {
    const Form form = work_.source(0).form;
    bool differs = work_.source_count != 1 || form == Form::kPartial;
    for (unsigned t = 0; t < work_.target_count; ++t) differs |= work_.target(t).form != form;
    return !differs;
  }

  TUTTI_DEVICE void copy(const Position& position) const {
    const Resolved& source = work_.source(0);
    const Loaded loaded = load(source, position);
    Codes codes;
    if (is_encoded(source)) {
      codes = codes_of(loaded);
    } else {
      const std::uint64_t stream = source.input ? streams_.input : streams_.result;
      codes = Units::encode(plain(source, loaded), rounding(stream, position));
    }
    store(position, codes);
  }

  TUTTI_DEVICE void reduce(const Position& position) const {
    Loaded loaded[kMostSources];
#pragma unroll
    for (unsigned s = 0; s < kMostSources; ++s) {
      loaded[s] = s < work_.source_count ? load(work_.source(s), position) : Loaded{};
    }
    typename Compute::Tree tree;
#pragma unroll
    for (unsigned s = 0; s < kMostSources; ++s) {
      if (s >= work_.source_count) continue;
      tree.add(s, value_of(work_.source(s), loaded[s], position));
    }
    const Values sum = tree.root(work_.source_count);
    bool finished = false;
    for (unsigned t = 0; t < work_.target_count; ++t) {
      const Resolved& target = work_.target(t);
      finished |= target.form != Form::kPartial;
      if (target.form == Form::kPartial) store_plain(target, position, sum);
    }
    if (!finished) return;
    const Values result = Compute::widened(Compute::rounded(arguments_, sum, true));
    store(position, Units::encode(result, rounding(streams_.result, position)));
  }

  TUTTI_DEVICE static bool is_encoded(const Resolved& at) { return at.ring != nullptr; }

  TUTTI_DEVICE Loaded load(const Resolved& source, const Position& position) const {
    Loaded loaded = {};
    if (position.valid == 0) return loaded;
    if (!is_encoded(source)) {
      loaded.bits = load_plain(source, position);
      return loaded;
    }
    const std::byte* const at = codes_at(source, position);
    if constexpr (Codes::kWords == 1) {
      loaded.bits.word[0] = cuda::load<std::uint32_t>(at);
    } else {
      const auto both = cuda::load<Bits<8>>(at);
      loaded.bits.word[0] = both.word[0];
      loaded.bits.word[1] = both.word[1];
    }
    if constexpr (Units::kScaled)
      loaded.scale = cuda::load<std::uint8_t>(source.at + position.unit / kWireLanes);
    return loaded;
  }

  /// Float32, which may be of any alignment.
  TUTTI_DEVICE static Bits<kUnitBytes> load_plain(const Resolved& source,
                                                  const Position& position) {
    const std::byte* const at = source.at + std::size_t{position.unit} * kUnitBytes;
    if (source.aligned && (source.whole || position.valid == kWireUnit))
      return load_whole<kUnitBytes>(at);
    auto bits = zero_bits<kUnitBytes>();
#pragma unroll
    for (unsigned e = 0; e < kWireUnit; ++e) {
      if (e < position.valid) load_element<sizeof(float)>(at + e * sizeof(float), e, bits);
    }
    return bits;
  }

  TUTTI_DEVICE static Codes codes_of(const Loaded& loaded) {
    Codes codes;
#pragma unroll
    for (unsigned w = 0; w < Codes::kWords; ++w) codes.word[w] = loaded.bits.word[w];
    codes.scale = loaded.scale;
    return codes;
  }

  /// What a source that is not encoded has, multiplied where premulsum says so.
  TUTTI_DEVICE Values plain(const Resolved& source, const Loaded& loaded) const {
    const Values values = Compute::widened(loaded.bits);
    return source.scale ? Compute::scaled(arguments_, values) : values;
  }

  TUTTI_DEVICE Values value_of(const Resolved& source, const Loaded& loaded,
                               const Position& position) const {
    if (is_encoded(source)) return Units::decode(codes_of(loaded));
    const Values values = plain(source, loaded);
    if (!source.input) return values;
    return Units::decode(Units::encode(values, rounding(streams_.input, position)));
  }

  TUTTI_DEVICE WireRounding rounding(std::uint64_t stream, const Position& position) const {
    const std::uint64_t first = std::uint64_t{position.unit} / kWireLanes * kernels::kWireBlock;
    const bool stochastic = arguments_.wire_stochastic;
    return {stochastic,
            stochastic ? kernels::block_key(stream, work_.element + first) : kernels::WireKey{}};
  }

  /// A result, to all targets that are not of partial sums.
  TUTTI_DEVICE void store(const Position& position, const Codes& codes) const {
    if (position.valid == 0) return;
    const Values values = Units::decode(codes);
    for (unsigned t = 0; t < work_.target_count; ++t) {
      const Resolved& target = work_.target(t);
      if (target.form == Form::kPartial) continue;
      if (is_encoded(target)) {
        store_codes(target, position, codes);
      } else {
        store_plain(target, position, values);
      }
    }
  }

  TUTTI_DEVICE void store_codes(const Resolved& target, const Position& position,
                                const Codes& codes) const {
    std::byte* const at = codes_at(target, position);
    if constexpr (Codes::kWords == 1) {
      cuda::store(at, codes.word[0]);
    } else {
      cuda::store(at, Bits<8>{{codes.word[0], codes.word[1]}});
    }
    if (Units::kScaled && position.lane % kWireLanes == 0)
      cuda::store(target.at + position.unit / kWireLanes, static_cast<std::uint8_t>(codes.scale));
  }

  TUTTI_DEVICE static void store_plain(const Resolved& target, const Position& position,
                                       const Values& values) {
    if (position.valid == 0) return;
    store_unit<kUnitBytes, kWireUnit, Where::kPlain>(target, position, Compute::stored(values));
  }

  /// Where a unit's codes are in a slot, which has whole units.
  TUTTI_DEVICE std::byte* codes_at(const Resolved& at, const Position& position) const {
    return at.at + kernels::scale_bytes(format, work_.elements) +
           std::size_t{position.unit} * (kWireUnit * Codes::kCodeBytes);
  }

  const Arguments& arguments_;
  const Work& work_;
  const WireStreams& streams_;
};

}  // namespace tutti::cuda
