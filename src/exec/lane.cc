#include "exec/lane.h"

#include <cstring>

#include "base/check.h"
#include "plan/structure.h"

namespace tutti::exec {

using plan::Place;
using plan::Range;
using plan::Step;
using plan::StepKind;

namespace {

// A slot of fewer bytes is as well written as sent from the user's memory.
constexpr std::size_t kLeastZeroCopyBytes = 4096;

bool in_library_memory(Place place) {
  return place == Place::kSlot || place == Place::kMulticast || place == Place::kScratch;
}

/// By chunk of this rank's input, whether a peer writes over it if the call is in place.
std::vector<bool> overwritten_inputs(const plan::Plan& plan, int me) {
  const auto rank = static_cast<std::uint32_t>(me);
  std::vector<bool> written(plan::output_chunks(plan)), inputs(plan::input_chunks(plan));
  for (const plan::RankPlan& other : plan.ranks) {
    for (const plan::Lane& lane : other.lanes) {
      for (const plan::Location& at : lane.locations) {
        if (at.place == Place::kPeerOutput && at.peer == rank) written[at.chunk] = true;
      }
    }
  }
  for (std::uint32_t chunk = 0; chunk < inputs.size(); ++chunk) {
    const std::uint32_t same = plan::in_place_output(plan, rank, chunk);
    inputs[chunk] = same != plan::kNoChunk && written[same];
  }
  return inputs;
}

}  // namespace

bool is_tiled(const plan::Plan& plan) {
  return any_location(plan, [](const plan::Location& at) { return in_library_memory(at.place); });
}

BoundLane::BoundLane(const plan::Plan& plan, int me, std::size_t lane, Links& links,
                     std::byte* scratch, std::size_t slot_bytes)
    : lane_(plan.ranks[static_cast<std::size_t>(me)].lanes[lane]),
      me_(me),
      pieces_(plan.pieces),
      reduces_(reduces(plan.shape.collective)),
      links_(links),
      lane_index_(lane),
      scratch_(scratch),
      slot_bytes_(slot_bytes) {
  std::size_t most_sources = 0, most_targets = 0;
  std::vector<bool> overwritten;
  if (links.remote() != nullptr) overwritten = overwritten_inputs(plan, me);
  locations_.resize(lane_.locations.size());
  for (const Step& step : lane_.steps) {
    chunks_.push_back(
        {step.chunk % pieces_,
         plan::known_as(plan.shape, static_cast<std::uint32_t>(me), step.chunk / pieces_), false});
    if (step.kind != StepKind::kMove) continue;
    most_sources = std::max<std::size_t>(most_sources, step.source_count);
    most_targets = std::max<std::size_t>(most_targets, step.target_count);
    for (std::uint32_t i = 0; i < std::uint32_t{step.source_count} + step.target_count; ++i) {
      const plan::Location& from = lane_.locations[step.first + i];
      BoundLocation& to = locations_[step.first + i];
      const bool user = !in_library_memory(from.place);
      to = {from.place, from.form, from.peer, user ? from.chunk / pieces_ : from.chunk,
            nullptr,    nullptr,   false};
      const bool source = i < step.source_count;
      if (from.place == Place::kSlot && source) to.inbox = &links.from(from.peer, lane);
      if (from.place == Place::kSlot && !source) to.outbox = &links.to(from.peer, lane);
      if (from.place == Place::kMulticast && source)
        to.inbox = &links.multicast_from(from.peer, lane);
      if (from.place == Place::kMulticast && !source) to.outbox = &links.multicast(lane);
      if (to.outbox == nullptr || links.remote() == nullptr) continue;
      const plan::Location& first = lane_.locations[step.first];
      // This rank would not know when a peer writes there.
      const bool stays = first.place != Place::kInput || !overwritten[first.chunk];
      to.allows_zero_copy = stays && links.remote()->allows_zero_copy(
                                         from.place == Place::kSlot ? from.peer : RemoteLink::kAll);
    }
  }
  sources_.resize(most_sources);
  targets_.resize(most_targets);
  find_early();
}

/// Whether a step takes parts of this rank's input to rings, and at most to its output besides.
bool BoundLane::only_sends(const Step& step) const {
  if (step.kind != StepKind::kMove) return false;
  const auto first = locations_.begin() + step.first;
  const auto targets = first + step.source_count, end = targets + step.target_count;
  const auto is_input = [](const auto& at) { return at.place == Place::kInput; };
  const auto is_sent = [](const auto& to) { return to.outbox != nullptr; };
  const auto is_output = [](const auto& to) { return to.place == Place::kOutput; };
  return std::all_of(first, targets, is_input) && std::any_of(targets, end, is_sent) &&
         std::all_of(targets, end, [&](const auto& to) { return is_sent(to) || is_output(to); });
}

/// Which steps may be run early: those that only send, by rings into which no other step writes.
void BoundLane::find_early() {
  // Between hosts a slot that is sent early holds the user's memory longer, and outputs wait for
  // that.
  if (links_.remote() != nullptr) return;
  for (std::size_t i = 0; i < lane_.steps.size(); ++i)
    chunks_[i].early = only_sends(lane_.steps[i]);
  std::vector<const Outbox*> in_turn;  // Rings of the other steps.
  for (bool changed = true; changed;) {
    changed = false;
    for (std::size_t i = 0; i < lane_.steps.size(); ++i) {
      const Step& step = lane_.steps[i];
      const auto targets = locations_.begin() + step.first + step.source_count;
      const auto end = targets + step.target_count;
      const auto is_in_turn = [&](const auto& to) {
        return std::find(in_turn.begin(), in_turn.end(), to.outbox) != in_turn.end();
      };
      if (step.kind != StepKind::kMove) continue;
      if (chunks_[i].early && std::any_of(targets, end, is_in_turn)) {
        chunks_[i].early = false;
        changed = true;
      }
      if (chunks_[i].early) continue;
      for (auto to = targets; to != end; ++to) {
        if (to->outbox == nullptr || is_in_turn(*to)) continue;
        in_turn.push_back(to->outbox);
        changed = true;
      }
    }
  }
  for (std::size_t i = 0; i < lane_.steps.size(); ++i) {
    if (chunks_[i].early) early_steps_.push_back(i);
  }
}

void BoundLane::start(const CallContext& context) {
  context_ = &context;
  grain_ = grain_of(context.arithmetic.type, context.wire);
  tile_ = 0;
  step_ = 0;
  early_tile_ = early_steps_.empty() ? context.tiles : 0;
  early_ = 0;
  waiting_for_ = -1;
  error_.reset();
}

Poll BoundLane::poll() {
  bool progressed = false;
  for (; tile_ < context_->tiles; ++tile_, step_ = 0) {
    for (; step_ < lane_.steps.size(); ++step_) {
      if (context_->region != nullptr && context_->region->ending())
        return progressed ? Poll::kProgressed : Poll::kPending;
      while (!run_in_turn()) {
        if (error_ || !send_early()) return progressed ? Poll::kProgressed : Poll::kPending;
        progressed = true;
      }
      progressed = true;
    }
  }
  waiting_for_ = -1;
  return Poll::kDone;
}

/// The elements that tile `tile` of a step's chunk covers.
Range BoundLane::range_of(std::size_t index, std::size_t tile) const {
  const BoundChunk& chunk = chunks_[index];
  const std::size_t count =
      context_->blocks == nullptr ? context_->count : block_elements(chunk.block);
  const Range piece = plan::piece_of(count, pieces_, chunk.piece, grain_);
  return plan::tile_of(piece, tile, context_->tile_elements);
}

/// The first of the early steps that were not run yet has been.
void BoundLane::pass_early() {
  if (++early_ < early_steps_.size()) return;
  early_ = 0;
  ++early_tile_;
}

/// Runs the next step that only sends, before its turn. False: there is none, or no room for it.
bool BoundLane::send_early() {
  if (early_tile_ >= context_->tiles) return false;
  const Step& step = lane_.steps[early_steps_[early_]];
  const Range range = range_of(early_steps_[early_], early_tile_);
  const int waiting_for = waiting_for_;
  const bool ran = range.count == 0 || run_move(step, range);
  waiting_for_ = waiting_for;
  if (ran) pass_early();
  return ran;
}

bool BoundLane::run_in_turn() {
  const Step& step = lane_.steps[step_];
  switch (step.kind) {
    case StepKind::kSignal: links_.signal(step.peer, lane_index_).post(); return true;
    case StepKind::kWait:
      if (links_.signal(step.peer, lane_index_).take()) return true;
      waiting_for_ = step.peer;
      return false;
    case StepKind::kMove: break;
  }
  const bool early = chunks_[step_].early;
  if (early && (early_tile_ != tile_ || early_steps_[early_] != step_)) return true;  // It was run.
  const Range range = range_of(step_, tile_);
  // Without elements no slot is due: the peer sees the same.
  if (range.count != 0 && !run_move(step, range)) return false;
  if (early) pass_early();
  return true;
}

bool BoundLane::run_move(const Step& step, const Range& range) {
  if (!ready(step, range)) return false;
  if (context_->endpoint != nullptr) {
    const BoundLocation* const at = &locations_[step.first];
    if (at->place == Place::kPeerInput) return read(step, range);
    const auto is_peers = [](const BoundLocation& to) { return to.place == Place::kPeerOutput; };
    if (std::any_of(at + step.source_count, at + step.source_count + step.target_count, is_peers))
      return write(step, range);
  }
  if (context_->wire.is_plain()) [[likely]]
    move(step, range);
  else
    move_encoded(step, range);
  return true;
}

bool BoundLane::ready(const Step& step, const Range& range) {
  const BoundLocation* at = &locations_[step.first];
  for (std::uint32_t i = 0; i < step.source_count; ++i, ++at) {
    if (at->inbox == nullptr || at->inbox->has_slot()) continue;
    if (links_.remote() != nullptr) expect(step, range);
    return waiting_for_ = at->peer, false;
  }
  for (std::uint32_t i = 0; i < step.target_count; ++i, ++at) {
    if (at->outbox == nullptr || at->outbox->has_room()) continue;
    const bool to_all = at->place == Place::kMulticast;
    return waiting_for_ = to_all ? links_.slowest_reader(lane_index_) : at->peer, false;
  }
  if (links_.remote() == nullptr || !overwrites_zero_copy(step, range)) return true;
  return waiting_for_ = -1, false;  // For the network.
}

/// Where a step only copies a slot that has not come to an output, the slot may go there at once.
void BoundLane::expect(const Step& step, const Range& range) {
  const BoundLocation& from = locations_[step.first];
  if (step.source_count != 1 || context_->scaled || !context_->wire.is_plain()) return;
  const std::size_t bytes = range.count * element_bytes(context_->arithmetic.type, from.form);
  if (bytes < kLeastZeroCopyBytes || overwrites_zero_copy(step, range)) return;
  for (std::uint32_t i = 1; i <= step.target_count; ++i) {
    const BoundLocation& to = *(&from + i);
    if (to.place != Place::kOutput || !same_bytes(to.form, from.form)) continue;
    links_.remote()->expect(from.peer, from.place == Place::kMulticast, lane_index_,
                            from.inbox->position(), {target_at(to, range), bytes});
    return;
  }
}

const std::byte* BoundLane::slot_of(const BoundLocation& location) const {
  if (links_.remote() != nullptr) {
    const std::byte* const placed =
        links_.remote()->placed(location.peer, location.place == Place::kMulticast, lane_index_,
                                location.inbox->position());
    if (placed != nullptr) return placed;
  }
  return location.inbox->slot();
}

/// Whether the step writes where an earlier one has a zero-copy send under way.
bool BoundLane::overwrites_zero_copy(const Step& step, const Range& range) const {
  const BoundLocation* const first = &locations_[step.first] + step.source_count;
  return std::any_of(first, first + step.target_count, [&](const BoundLocation& to) {
    const std::size_t bytes = range.count * element_bytes(context_->arithmetic.type, to.form);
    return to.place == Place::kOutput && links_.remote()->is_sending({target_at(to, range), bytes});
  });
}

/// Where the finished value lies in the user's memory, if a slot can be sent from there; or null.
const BoundLane::BoundLocation* BoundLane::find_home(const Step& step) const {
  const BoundLocation* const first = &locations_[step.first];
  const BoundLocation* const targets = first + step.source_count;
  const BoundLocation* const end = targets + step.target_count;
  const auto allows_zero_copy = [](const BoundLocation& at) { return at.allows_zero_copy; };
  if (std::none_of(targets, end, allows_zero_copy)) return nullptr;
  // An average in place is written over what would be sent.
  const auto changes = [&](const BoundLocation& to) {
    return to.place == Place::kOutput && divides(first->form, to.form);
  };
  const bool copies =
      step.source_count == 1 && !context_->scaled && std::none_of(targets, end, changes);
  if (copies && (first->place == Place::kInput || first->place == Place::kOutput)) return first;
  const auto* const output = std::find_if(
      targets, end, [](const BoundLocation& at) { return at.place == Place::kOutput; });
  return output != end ? output : nullptr;
}

Form BoundLane::layout(const BoundLocation& location) const {
  const bool wide =
      context_->scaled && location.form == Form::kContribution && in_library_memory(location.place);
  return wide ? Form::kPartial : location.form;
}

std::size_t BoundLane::block_elements(const plan::KnownAs& block) const {
  const Blocks& blocks = *context_->blocks;
  return (block.what == plan::KnownAs::What::kGives ? blocks.gives : blocks.gets)[block.rank];
}

/// Bytes from the start of the input or output that the location is in.
std::size_t BoundLane::user_offset(const BoundLocation& location, const Range& range) const {
  std::size_t start = location.index * context_->count;
  if (const Blocks* blocks = context_->blocks; blocks != nullptr) {
    const auto peer = static_cast<std::size_t>(location.peer);
    switch (location.place) {
      case Place::kInput: start = blocks->input_at[location.index]; break;
      case Place::kOutput: start = blocks->output_at[location.index]; break;
      case Place::kPeerInput: start = blocks->peer_input_at[peer]; break;
      default: start = blocks->peer_output_at[peer]; break;
    }
  }
  return (start + range.offset) * size_of(context_->arithmetic.type);
}

const std::byte* BoundLane::source_at(const BoundLocation& location, const Range& range) const {
  switch (location.place) {
    case Place::kInput: return context_->buffers.input + user_offset(location, range);
    case Place::kOutput: return context_->buffers.output + user_offset(location, range);
    case Place::kScratch: return scratch_ + location.index * slot_bytes_;
    case Place::kSlot:
    case Place::kMulticast: return slot_of(location);
    case Place::kPeerInput:
      return context_->buffers.peer_inputs[static_cast<std::size_t>(location.peer)] +
             user_offset(location, range);
    case Place::kPeerOutput:
      return context_->buffers.peer_outputs[static_cast<std::size_t>(location.peer)] +
             user_offset(location, range);
  }
  return nullptr;
}

std::byte* BoundLane::target_at(const BoundLocation& location, const Range& range) const {
  switch (location.place) {
    case Place::kOutput: return context_->buffers.output + user_offset(location, range);
    case Place::kScratch: return scratch_ + location.index * slot_bytes_;
    case Place::kSlot:
    case Place::kMulticast: return location.outbox->slot();
    case Place::kPeerOutput:
      return context_->buffers.peer_outputs[static_cast<std::size_t>(location.peer)] +
             user_offset(location, range);
    case Place::kInput:
    case Place::kPeerInput: break;  // The verifier lets no plan write there.
  }
  TUTTI_CHECK(!"a plan writes to an input");
  return nullptr;
}

void BoundLane::move(const Step& step, const Range& range) {
  const BoundLocation* home = links_.remote() != nullptr ? find_home(step) : nullptr;
  const std::size_t value_bytes =
      home == nullptr ? 0 : range.count * element_bytes(context_->arithmetic.type, home->form);
  if (value_bytes < kLeastZeroCopyBytes) home = nullptr;
  const BoundLocation* first = &locations_[step.first];
  const BoundLocation* first_target = first + step.source_count;
  for (std::uint32_t i = 0; i < step.source_count; ++i) {
    sources_[i] = {source_at(first[i], range), layout(first[i]),
                   context_->scaled && first[i].place == Place::kInput};
  }
  // Targets that a peer or a later step reads from the cache come first.
  std::size_t slot_targets = 0;
  std::size_t back = step.target_count;
  for (std::uint32_t i = 0; i < step.target_count; ++i) {
    if (is_zero_copy(first_target[i], home)) continue;
    const kernels::Target target{target_at(first_target[i], range), layout(first_target[i])};
    // A copy onto itself (in place) is left out: peers may be reading there.
    if (step.source_count == 1 && target.data == sources_[0].data && !sources_[0].scale &&
        !divides(sources_[0].form, target.form))
      continue;
    if (in_library_memory(first_target[i].place))
      targets_[slot_targets++] = target;
    else
      targets_[--back] = target;
  }
  const std::size_t other_targets = step.target_count - back;
  for (std::size_t i = 0; i < other_targets && back != slot_targets; ++i) {
    targets_[slot_targets + i] = targets_[back + i];  // Closes the gap of what was left out.
  }
  // Data that is to be sent from an output is read again at once.
  const bool stream = context_->streaming && (home == nullptr || home == first);
  reduce_into(range.count, step.source_count, slot_targets, other_targets, stream);
  commit(step, range, home);
}

/// Copies a peer's unmapped input to the first target, and on to the others. False: it failed.
bool BoundLane::read(const Step& step, const Range& range) {
  const BoundLocation& from = locations_[step.first];
  const BoundLocation* const first = &from + step.source_count;
  if (step.target_count == 0) return true;
  const std::size_t bytes = range.count * size_of(context_->arithmetic.type);
  const std::uint64_t at = context_->peer_inputs_at[static_cast<std::size_t>(from.peer)];
  std::byte* const to = target_at(*first, range);
  if (!succeeds(context_->endpoint->read(from.peer, at + user_offset(from, range), to, bytes),
                from.peer))
    return false;
  for (std::uint32_t i = 1; i < step.target_count; ++i)
    std::memcpy(target_at(first[i], range), to, bytes);
  commit(step, range, nullptr);
  return true;
}

/// A step that copies to peers' outputs, which are not mapped. False: it failed.
bool BoundLane::write(const Step& step, const Range& range) {
  const BoundLocation& from = locations_[step.first];
  const BoundLocation* const first = &from + step.source_count;
  const std::size_t bytes = range.count * size_of(context_->arithmetic.type);
  const std::byte* const source = source_at(from, range);
  for (std::uint32_t i = 0; i < step.target_count; ++i) {
    const BoundLocation& to = first[i];
    if (to.place == Place::kPeerOutput) {
      const std::uint64_t at = context_->peer_outputs_at[static_cast<std::size_t>(to.peer)];
      if (!succeeds(context_->endpoint->write(to.peer, source, at + user_offset(to, range), bytes),
                    to.peer))
        return false;
    } else if (std::byte* const target = target_at(to, range); target != source) {
      std::memcpy(target, source, bytes);
    }
  }
  commit(step, range, nullptr);
  return true;
}

/// Keeps why a peer's buffer could not be got at. True: it could.
bool BoundLane::succeeds(Status status, int peer) {
  if (status) return true;
  error_ = std::move(status.error());
  error_->peer = Rank{peer};
  return false;
}

/// Hands slots on: those that were written or lent to their readers, those that were read back.
void BoundLane::commit(const Step& step, const Range& range, const BoundLocation* home) {
  const BoundLocation* const first = &locations_[step.first];
  const BoundLocation* const first_target = first + step.source_count;
  for (std::uint32_t i = 0; i < step.target_count; ++i) {
    const BoundLocation& to = first_target[i];
    if (to.outbox == nullptr) continue;
    const std::size_t bytes = range.count * element_bytes(context_->arithmetic.type, layout(to));
    if (is_zero_copy(to, home)) {
      links_.remote()->send_zero_copy(to.place == Place::kSlot ? to.peer : RemoteLink::kAll,
                                      lane_index_, to.outbox->position(),
                                      {source_at(*home, range), bytes});
    }
    to.outbox->commit(bytes);
  }
  for (std::uint32_t i = 0; i < step.source_count; ++i) {
    if (first[i].inbox != nullptr) first[i].inbox->release();
  }
}

/// Reduces sources_ into targets_: first those in slots and scratch, then those in users' memory.
void BoundLane::reduce_into(std::size_t count, std::size_t source_count, std::size_t slot_targets,
                            std::size_t other_targets, bool stream_others) {
  if (slot_targets + other_targets == 0) return;
  const std::span sources(sources_.data(), source_count);
  const std::span targets(targets_.data(), slot_targets + other_targets);
  const kernels::Arithmetic& arithmetic = context_->arithmetic;
  const bool mixed = slot_targets > 0 && other_targets > 0;
  const bool split =
      stream_others && !context_->slot_streaming && mixed && targets[0].form == targets.back().form;
  if (!split) {
    const bool stream =
        (slot_targets == 0 || context_->slot_streaming) && (other_targets == 0 || stream_others);
    kernels::reduce(arithmetic, sources, targets, count,
                    stream ? kernels::Stores::kStreaming : kernels::Stores::kCached);
    return;
  }
  // Slots have to stay in the cache, outputs should not: reduce into a slot, copy on from there.
  kernels::reduce(arithmetic, sources, targets.first(slot_targets), count);
  const kernels::Source reduced{targets[0].data, targets[0].form, false};
  kernels::reduce(arithmetic, std::span(&reduced, 1), targets.subspan(slot_targets), count,
                  kernels::Stores::kStreaming);
}

}  // namespace tutti::exec
