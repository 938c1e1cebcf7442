// Steps of a call with a wire: its slots are encoded, all else is float32.
#include "exec/lane.h"

namespace tutti::exec {

using plan::Place;

void BoundLane::move_encoded(const plan::Step& step, const plan::Range& range) {
  kernels::WireWork& work = *context_->wire_work;
  const BoundLocation* const first = &locations_[step.first];
  const BoundLocation* const first_target = first + step.source_count;
  const auto in_ring = [](const BoundLocation& at) {
    return at.place == Place::kSlot || at.place == Place::kMulticast;
  };
  using Kind = kernels::WireSource::Kind;
  for (std::uint32_t i = 0; i < step.source_count; ++i) {
    const Kind kind = in_ring(first[i])                 ? Kind::kEncoded
                      : first[i].place == Place::kInput ? Kind::kInput
                                                        : Kind::kValue;
    work.step_sources[i] = {source_at(first[i], range), kind, first[i].form,
                            context_->scaled && kind == Kind::kInput};
  }
  for (std::uint32_t i = 0; i < step.target_count; ++i) {
    work.step_targets[i] = {target_at(first_target[i], range), in_ring(first_target[i]),
                            first_target[i].form};
  }
  // By its place in the message, so that it does not matter which step rounds an element.
  const std::uint64_t block = step.chunk / pieces_;
  kernels::run(
      {.arithmetic = context_->arithmetic,
       .wire = context_->wire,
       .sources = std::span(work.step_sources).first(step.source_count),
       .targets = std::span(work.step_targets).first(step.target_count),
       .count = range.count,
       .element = block * context_->count + range.offset,
       .input_stream = kernels::stream_key(context_->wire_call, static_cast<std::uint32_t>(me_)),
       .result_stream = kernels::stream_key(context_->wire_call, kernels::kResultSource)},
      work);
  const std::size_t bytes = kernels::encoded_bytes(context_->wire.format, range.count);
  for (std::uint32_t i = 0; i < step.target_count; ++i) {
    if (first_target[i].outbox != nullptr) first_target[i].outbox->commit(bytes);
  }
  for (std::uint32_t i = 0; i < step.source_count; ++i) {
    if (first[i].inbox != nullptr) first[i].inbox->release();
  }
}

}  // namespace tutti::exec
