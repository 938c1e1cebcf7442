// File: kernels/host/wire_step.cc: a data step whose slots are encoded, in parts that fit the
// cache.
#include <algorithm>
#include <cstring>

#include "kernels/host/wire.h"

namespace tutti::kernels {
namespace {

// Elements of a part: 2 KiB as float32, so that those of eight sources fit a first-level cache.
constexpr std::size_t kPart = 512;
constexpr std::size_t kPartBytes = kPart * sizeof(float);
static_assert(kPart % kWireBlock == 0);

/// A run of elements of a step.
class Part {
 public:
  Part(const WireStep& step, WireWork& work, std::size_t at)
      : step_(step),
        work_(work),
        at_(at),
        count_(std::min(kPart, step.count - at)),
        code_bytes_(static_cast<std::size_t>(wire_bits(step.wire.format)) / 8) {}

  /// For one source and nothing to compute. A source that is encoded is copied as it is.
  void copy() const {
    const WireSource& source = step_.sources[0];
    switch (source.kind) {
      case WireSource::Kind::kInput:
        return round_to_all(input(source, room(0)), step_.input_stream);
      case WireSource::Kind::kValue: return round_to_all(values(source.data), step_.result_stream);
      case WireSource::Kind::kEncoded: break;
    }
    const std::byte* decoded = nullptr;
    for (const WireTarget& target : step_.targets) {
      if (target.encoded) {
        copy_code(source.data, target.data);
      } else if (decoded == nullptr) {
        decode_to(source.data, values(target.data));
        decoded = values(target.data);
      } else {
        std::memcpy(values(target.data), decoded, count_ * sizeof(float));
      }
    }
  }

  void reduce_all() const {
    const std::size_t n = step_.sources.size();
    for (std::size_t i = 0; i < n; ++i) {
      const WireSource& from = step_.sources[i];
      work_.sources[i] = {room(i), Form::kPartial, false};
      switch (from.kind) {
        case WireSource::Kind::kEncoded: decode_to(from.data, room(i)); break;
        case WireSource::Kind::kInput:
          encode(step_.wire, {.from = input(from, room(i)),
                              .count = count_,
                              .stream = step_.input_stream,
                              .element = step_.element + at_,
                              .decoded = room(i)});
          break;
        case WireSource::Kind::kValue: work_.sources[i].data = values(from.data); break;
      }
    }
    std::byte* const root = room(n);
    reduce_to(std::span(work_.sources).first(n), {root, Form::kPartial});
    bool finished = false;
    for (const WireTarget& target : step_.targets) {
      finished = finished || target.form != Form::kPartial;
      if (target.form == Form::kPartial)
        std::memcpy(values(target.data), root, count_ * sizeof(float));
    }
    if (!finished) return;
    if (step_.arithmetic.op == ReduceOp::kAvg) {
      const Source sum{root, Form::kPartial, false};
      reduce_to(std::span(&sum, 1), {root, Form::kResult});
    }
    round_to_all(root, step_.result_stream);
  }

 private:
  std::byte* room(std::size_t index) const { return work_.values.data() + index * kPartBytes; }
  // Where this part begins in float32 data, and in an encoded tile.
  template <class Byte>
  Byte* values(Byte* data) const {
    return data + at_ * sizeof(float);
  }
  template <class Byte>
  Byte* scales(Byte* tile) const {
    return tile + at_ / kWireBlock;
  }
  template <class Byte>
  Byte* elements(Byte* tile) const {
    return tile + scale_bytes(step_.wire.format, step_.count) + at_ * code_bytes_;
  }

  void decode_to(const std::byte* tile, std::byte* to) const {
    decode(step_.wire, {scales(tile), elements(tile), count_, to});
  }
  void copy_code(const std::byte* from, std::byte* to) const {
    if (has_scales(step_.wire.format))
      std::memcpy(scales(to), scales(from), (count_ + kWireBlock - 1) / kWireBlock);
    std::memcpy(elements(to), elements(from), count_ * code_bytes_);
  }
  void reduce_to(std::span<const Source> sources, const Target& target) const {
    reduce(step_.arithmetic, sources, std::span(&target, 1), count_);
  }
  /// Where an input's values are: in `product`, if they have to be multiplied.
  const std::byte* input(const WireSource& source, std::byte* product) const {
    if (!source.scale) return values(source.data);
    const Source own{values(source.data), Form::kContribution, true};
    reduce_to(std::span(&own, 1), {product, Form::kPartial});
    return product;
  }

  /// Rounds values to the format and writes them to all targets but partial ones.
  void round_to_all(const std::byte* from, std::uint64_t stream) const {
    std::byte *tile = nullptr, *decoded = nullptr;
    for (const WireTarget& target : step_.targets) {
      if (target.form == Form::kPartial) continue;
      std::byte*& first = target.encoded ? tile : decoded;
      if (first == nullptr) first = target.data;
    }
    encode(step_.wire, {.from = from,
                        .count = count_,
                        .stream = stream,
                        .element = step_.element + at_,
                        .scales = tile == nullptr ? nullptr : scales(tile),
                        .to = tile == nullptr ? nullptr : elements(tile),
                        .decoded = decoded == nullptr ? nullptr : values(decoded)});
    for (const WireTarget& target : step_.targets) {
      if (target.form == Form::kPartial || target.data == tile || target.data == decoded) continue;
      if (target.encoded)
        copy_code(tile, target.data);
      else
        std::memcpy(values(target.data), values(decoded), count_ * sizeof(float));
    }
  }

  const WireStep& step_;
  WireWork& work_;
  std::size_t at_, count_, code_bytes_;
};

/// Whether a step computes nothing.
bool copies(const WireStep& step) {
  const Form form = step.sources[0].form;
  return step.sources.size() == 1 && form != Form::kPartial &&
         std::all_of(step.targets.begin(), step.targets.end(),
                     [form](const auto& to) { return to.form == form; });
}

}  // namespace

WireWork::WireWork(std::size_t most_sources, std::size_t most_targets)
    : values((most_sources + 1) * kPartBytes),
      sources(most_sources),
      step_sources(most_sources),
      step_targets(most_targets) {}

void run(const WireStep& step, WireWork& work) {
  if (step.targets.empty()) return;
  const bool copy = copies(step);
  for (std::size_t at = 0; at < step.count; at += kPart) {
    const Part part(step, work, at);
    if (copy)
      part.copy();
    else
      part.reduce_all();
  }
}

}  // namespace tutti::kernels
