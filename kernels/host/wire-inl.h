// File: kernels/host/wire-inl.h: wire formats in vectors, a block of 32 elements at a time.
// Compiled once for each instruction set; has to agree with tutti/detail/wire_codec.h bit for bit
// (NaN payloads apart).
#if defined(TUTTI_WIRE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TUTTI_WIRE_INL_H_
#undef TUTTI_WIRE_INL_H_
#else
#define TUTTI_WIRE_INL_H_
#endif

#include <hwy/highway.h>

#include <cstring>

#include "kernels/host/vector_element-inl.h"
#include "kernels/host/wire_table.h"

HWY_BEFORE_NAMESPACE();
namespace tutti::kernels::HWY_NAMESPACE {

using WireTag = hn::ScalableTag<float>;
using WireBits = hn::RebindToUnsigned<WireTag>;
using WireInts = hn::RebindToSigned<WireTag>;
using WireVector = hn::Vec<WireTag>;
using WireWords = hn::Vec<WireBits>;
constexpr std::size_t kWireLanes = hn::MaxLanes(WireTag());
constexpr std::size_t kWireVectors = kWireBlock / kWireLanes;
constexpr std::size_t kVectorBytes = kWireLanes * sizeof(float);
static_assert(kWireBlock % kWireLanes == 0);

/// As round_up_by_chance. `value` is from 0 to 2^22.
HWY_INLINE WireWords up_by_chance(WireVector value, WireWords random) {
  const WireTag d;
  const WireInts di;
  const auto whole = hn::ConvertTo(di, value);
  const auto rest = hn::Sub(value, hn::ConvertTo(d, whole));
  const auto drawn = hn::ConvertTo(d, hn::BitCast(di, hn::ShiftRight<8>(random)));
  const auto up = hn::Lt(hn::Mul(drawn, hn::Set(d, 0x1p-24F)), rest);
  // A true lane is -1.
  return hn::BitCast(WireBits(), hn::Sub(whole, hn::VecFromMask(di, hn::RebindMask(di, up))));
}

struct Int8Codec {
  using Scaling = Int8Element;
  using Stored = std::int8_t;
  template <bool kByChance>
  static HWY_INLINE WireWords encode(WireVector value, WireWords random) {
    const WireTag d;
    const WireInts di;
    const auto magnitude = hn::Min(hn::Abs(value), hn::Set(d, 127.0F));
    auto whole = hn::Zero(di);
    if constexpr (kByChance) {
      whole = hn::BitCast(di, up_by_chance(magnitude, random));
    } else {
      whole = hn::NearestInt(magnitude);
    }
    return hn::BitCast(WireBits(),
                       hn::IfNegativeThenElse(hn::BitCast(di, value), hn::Neg(whole), whole));
  }
  static HWY_INLINE WireVector decode(WireWords code) {
    return hn::ConvertTo(WireTag(), hn::BitCast(WireInts(), code));
  }
  static HWY_INLINE void store(WireWords code, std::byte* to) {
    const hn::Rebind<Stored, WireTag> stored;
    tutti::kernels::HWY_NAMESPACE::store(stored,
                                         hn::DemoteTo(stored, hn::BitCast(WireInts(), code)), to);
  }
  static HWY_INLINE WireWords load(const std::byte* from) {
    const hn::Rebind<Stored, WireTag> stored;
    return hn::BitCast(
        WireBits(), hn::PromoteTo(WireInts(), tutti::kernels::HWY_NAMESPACE::load(stored, from)));
  }
};

/// Formats whose codes are unsigned.
template <class StoredType>
struct UnsignedCodec {
  using Stored = StoredType;
  static HWY_INLINE void store(WireWords code, std::byte* to) {
    const hn::Rebind<Stored, WireTag> stored;
    tutti::kernels::HWY_NAMESPACE::store(stored,
                                         hn::DemoteTo(stored, hn::BitCast(WireInts(), code)), to);
  }
  static HWY_INLINE WireWords load(const std::byte* from) {
    const hn::Rebind<Stored, WireTag> stored;
    return hn::PromoteTo(WireBits(), tutti::kernels::HWY_NAMESPACE::load(stored, from));
  }
  template <class Vector>
  static HWY_INLINE WireWords rounded(WireVector value) {
    return hn::PromoteTo(WireBits(), Vector::round(WireTag(), value));
  }
  template <class Vector>
  static HWY_INLINE WireVector widened(WireWords code) {
    const hn::Rebind<Stored, WireTag> stored;
    return Vector::widen(WireTag(), hn::DemoteTo(stored, hn::BitCast(WireInts(), code)));
  }
};

/// As encode_by_chance.
template <class Format, int kToSign>
HWY_INLINE WireWords small_by_chance(WireVector value, WireWords random) {
  const WireTag d;
  const WireBits du;
  const auto bits = hn::BitCast(du, value);
  const auto magnitude = hn::AndNot(hn::Set(du, 0x80000000u), bits);
  const auto sign = hn::ShiftRight<kToSign>(hn::And(hn::Set(du, 0x80000000u), bits));
  const auto drawn = hn::Add(magnitude, hn::ShiftRight<32 - Format::kDropped>(random));
  const auto normal =
      hn::Min(hn::Sub(hn::ShiftRight<Format::kDropped>(drawn), hn::Set(du, Format::kRebias)),
              hn::Set(du, Format::kOverflow));
  const auto places = hn::Set(du, (254u << 23) - Format::kSmallest);
  const auto small = hn::Lt(magnitude, hn::Set(du, Format::kSmallestNormal));
  // Large values don't fit an integer here.
  const auto tiny = hn::IfThenElseZero(hn::RebindMask(d, small), hn::BitCast(d, magnitude));
  const auto subnormal = up_by_chance(hn::Mul(tiny, hn::BitCast(d, places)), random);
  const auto code = hn::IfThenElse(small, subnormal, normal);
  const auto nan = hn::Gt(magnitude, hn::Set(du, 0x7f800000u));
  return hn::Or(hn::IfThenElse(nan, hn::Set(du, Format::kNan), code), sign);
}

struct Float16Codec : UnsignedCodec<std::uint16_t> {
  using Scaling = void;
  template <bool kByChance>
  static HWY_INLINE WireWords encode(WireVector value, WireWords random) {
    if constexpr (kByChance) return small_by_chance<Float16Format, 16>(value, random);
    return rounded<SmallVector<Float16Format, std::uint16_t>>(value);
  }
  static HWY_INLINE WireVector decode(WireWords code) { return widened<Float16Vector>(code); }
};

struct Bfloat16Codec : UnsignedCodec<std::uint16_t> {
  using Scaling = void;
  template <bool kByChance>
  static HWY_INLINE WireWords encode(WireVector value, WireWords random) {
    const WireBits du;
    const auto bits = hn::BitCast(du, value);
    auto noise = hn::ShiftRight<16>(random);
    if constexpr (!kByChance)
      noise = hn::Add(hn::Set(du, 0x7fff), hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1)));
    const auto nan = hn::Or(bits, hn::Set(du, 0x7fffffffu));
    const auto word = hn::IfThenElse(hn::RebindMask(du, is_nan(value)), nan, hn::Add(bits, noise));
    return hn::ShiftRight<16>(word);
  }
  static HWY_INLINE WireVector decode(WireWords code) {
    return hn::BitCast(WireTag(), hn::ShiftLeft<16>(code));
  }
};

struct Float8Codec : UnsignedCodec<std::uint8_t> {
  using Scaling = Float8Element;
  template <bool kByChance>
  static HWY_INLINE WireWords encode(WireVector value, WireWords random) {
    const WireTag d;
    const auto cut = hn::Clamp(value, hn::Set(d, -448.0F), hn::Set(d, 448.0F));
    if constexpr (kByChance) return small_by_chance<Float8E4M3Format, 24>(cut, random);
    return rounded<Float8E4M3Vector>(cut);
  }
  static HWY_INLINE WireVector decode(WireWords code) { return widened<Float8E4M3Vector>(code); }
};

/// Encodes one whole block.
template <class Codec, bool kByChance>
class BlockEncoder {
 public:
  static constexpr bool kScaled = !std::is_void_v<typename Codec::Scaling>;
  static constexpr std::size_t kBytes = sizeof(typename Codec::Stored);

  BlockEncoder() {
    for (std::size_t v = 0; v < kWireVectors; ++v) {
      const auto index = hn::Iota(WireBits(), static_cast<std::uint32_t>(v * kWireLanes));
      hn::Store(hn::Mul(index, hn::Set(WireBits(), 0x9e3779b9u)), WireBits(),
                spread_ + v * kWireLanes);
    }
  }

  /// `to` and `decoded` may be null. Returns the scale's code.
  HWY_INLINE std::uint32_t run(const std::byte* from, WireKey key, std::byte* to,
                               std::byte* decoded) const {
    const WireTag d;
    const WireBits du;
    WireVector value[kWireVectors];
    for (std::size_t v = 0; v < kWireVectors; ++v) value[v] = load(d, from + v * kVectorBytes);
    [[maybe_unused]] std::uint32_t scale = 127;
    if constexpr (kScaled) {
      auto largest = hn::Zero(du);
      for (const auto& vector : value)
        largest = hn::Max(largest, hn::AndNot(hn::Set(du, 0x80000000u), hn::BitCast(du, vector)));
      scale = scale_code<typename Codec::Scaling>(hn::GetLane(hn::MaxOfLanes(du, largest)));
      if (scale == kNanScale) return fill_nan(to, decoded);
    }
    for (std::size_t v = 0; v < kWireVectors; ++v) {
      auto scaled = value[v];
      if constexpr (kScaled) scaled = hn::Mul(scaled, hn::Set(d, inverse_scale_of(scale)));
      const WireWords code =
          Codec::template encode<kByChance>(scaled, kByChance ? random(key, v) : hn::Zero(du));
      if (to != nullptr) Codec::store(code, to + v * kWireLanes * kBytes);
      if (decoded == nullptr) continue;
      auto back = Codec::decode(code);
      if constexpr (kScaled) back = hn::Mul(back, hn::Set(d, scale_of(scale)));
      store(d, back, decoded + v * kVectorBytes);
    }
    return scale;
  }

 private:
  /// As random_bits.
  HWY_INLINE WireWords random(WireKey key, std::size_t vector) const {
    const WireBits du;
    auto hash = hn::Add(hn::Load(du, spread_ + vector * kWireLanes), hn::Set(du, key.first));
    hash = hn::Mul(hn::Xor(hash, hn::ShiftRight<16>(hash)), hn::Set(du, 0x7feb352du));
    hash = hn::Xor(hn::Xor(hash, hn::ShiftRight<15>(hash)), hn::Set(du, key.second));
    hash = hn::Mul(hash, hn::Set(du, 0x846ca68bu));
    return hn::Xor(hash, hn::ShiftRight<16>(hash));
  }
  static HWY_NOINLINE std::uint32_t fill_nan(std::byte* to, std::byte* decoded) {
    if (to != nullptr) std::memset(to, 0, kWireBlock * kBytes);
    for (std::size_t v = 0; decoded != nullptr && v < kWireVectors; ++v)
      store(WireTag(), hn::Set(WireTag(), float_of(0x7fc00000u)), decoded + v * kVectorBytes);
    return kNanScale;
  }

  alignas(64) std::uint32_t spread_[kWireBlock];
};

template <class Codec, bool kByChance>
HWY_NOINLINE void encode_part(const Encoding& part) {
  const BlockEncoder<Codec, kByChance> encoder;
  constexpr std::size_t kBytes = sizeof(typename Codec::Stored);
  const auto note = [&](std::size_t at, std::uint32_t scale) {
    if constexpr (BlockEncoder<Codec, kByChance>::kScaled) {
      if (part.scales != nullptr) part.scales[at / kWireBlock] = static_cast<std::byte>(scale);
    }
  };
  const auto key_at = [&](std::size_t at) {
    return kByChance ? block_key(part.stream, part.element + at) : WireKey{};
  };
  std::size_t at = 0;
  for (; at + kWireBlock <= part.count; at += kWireBlock) {
    note(at, encoder.run(part.from + at * sizeof(float), key_at(at),
                         part.to == nullptr ? nullptr : part.to + at * kBytes,
                         part.decoded == nullptr ? nullptr : part.decoded + at * sizeof(float)));
  }
  if (at == part.count) return;
  std::byte values[kWireBlock * sizeof(float)] = {}, codes[kWireBlock * kBytes];
  const std::size_t left = part.count - at;
  std::memcpy(values, part.from + at * sizeof(float), left * sizeof(float));
  note(at, encoder.run(values, key_at(at), codes, values));
  if (part.to != nullptr) std::memcpy(part.to + at * kBytes, codes, left * kBytes);
  if (part.decoded != nullptr)
    std::memcpy(part.decoded + at * sizeof(float), values, left * sizeof(float));
}

template <class Codec>
HWY_NOINLINE void decode_part(const Decoding& part) {
  const WireTag d;
  constexpr bool kScaled = !std::is_void_v<typename Codec::Scaling>;
  constexpr std::size_t kBytes = sizeof(typename Codec::Stored);
  const auto run = [&](const std::byte* from, std::size_t at, std::byte* to) HWY_ATTR {
    std::uint32_t scale = 127;
    if constexpr (kScaled) scale = std::to_integer<std::uint32_t>(part.scales[at / kWireBlock]);
    const auto factor = hn::Set(d, scale == kNanScale ? float_of(0x7fc00000u) : scale_of(scale));
    for (std::size_t v = 0; v < kWireBlock; v += kWireLanes) {
      auto value = Codec::decode(Codec::load(from + v * kBytes));
      if constexpr (kScaled) value = hn::Mul(value, factor);
      store(d, value, to + v * sizeof(float));
    }
  };
  std::size_t at = 0;
  for (; at + kWireBlock <= part.count; at += kWireBlock)
    run(part.from + at * kBytes, at, part.to + at * sizeof(float));
  if (at == part.count) return;
  std::byte codes[kWireBlock * kBytes] = {}, values[kWireBlock * sizeof(float)];
  const std::size_t left = part.count - at;
  std::memcpy(codes, part.from + at * kBytes, left * kBytes);
  run(codes, at, values);
  std::memcpy(part.to + at * sizeof(float), values, left * sizeof(float));
}

template <class Codec>
void add_codec(WireTable& table, WireFormat format) {
  const auto at = static_cast<std::size_t>(format);
  table.encode[at] = {encode_part<Codec, false>, encode_part<Codec, true>};
  table.decode[at] = decode_part<Codec>;
}

}  // namespace tutti::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
