#include "exec/peer_buffers.h"

#include <optional>

namespace tutti::exec {

PeerBuffers::PeerBuffers(const CallBoard& board, const ActiveCall& call,
                         const Bytes& read_from_bytes)
    : board_(board), call_(call), read_from_(read_from_bytes) {
  const auto ranks = static_cast<std::size_t>(board.team().ranks);
  const std::span<const int> hosts = board.team().endpoint.hosts();
  near_.assign(ranks, hosts.empty() && ranks > 1);
  for (std::size_t rank = 0; rank < hosts.size(); ++rank)
    near_[rank] = std::count(hosts.begin(), hosts.end(), hosts[rank]) > 1;
  some_near_ = std::find(near_.begin(), near_.end(), true) != near_.end();
  inputs_.resize(ranks);
  outputs_.resize(ranks);
  known_.resize(ranks);
  unmappable_.resize(ranks);
}

PeerBuffers::Announcement PeerBuffers::announcement() const {
  const Team& team = board_.team();
  Announcement mine;
  if (has_input(call_, team.me)) mine.input = team.endpoint.name(call_.input, call_.in_bytes);
  if (has_output(call_, team.me)) mine.output = team.endpoint.name(call_.output, call_.out_bytes);
  mine.input_at = reinterpret_cast<std::uintptr_t>(call_.input);
  mine.output_at = reinterpret_cast<std::uintptr_t>(call_.output);
  return mine;
}

/// Whether all that is known of a rank's buffers allows to map them where that is needed.
bool PeerBuffers::could_map(int rank, const Announcement& from) const {
  const auto r = static_cast<std::size_t>(rank);
  const auto fits = [&](bool there, std::uint64_t segment) {
    return !there || !near_[r] || (segment != 0 && !unmappable_[r].contains(segment));
  };
  // In place, the blocks of an all-to-all have to be exchanged by way of slots.
  const bool distinct = from.input_at != from.output_at && (from.input != from.output || !near_[r]);
  return fits(has_input(call_, rank), from.input.segment) &&
         fits(has_output(call_, rank), from.output.segment) &&
         (call_.collective != Collective::kAllToAll || distinct);
}

bool PeerBuffers::could_be_mapped() const {
  if (!may_map()) return false;  // As in learn: else calls change paths in turn.
  for (int rank = 0; rank < board_.team().ranks; ++rank) {
    if (!could_map(rank, board_.announced_by<Announcement>(rank))) return false;
  }
  return true;
}

bool PeerBuffers::may_read(const Call& call) const {
  const std::size_t block = call.count * size_of(call.type);  // What a rank reads at once.
  return board_.team().endpoint.reads_peers() && !call.vector_variant && call.wire.is_plain() &&
         !reduces(call.collective) &&
         block >= read_from_[static_cast<std::size_t>(call.collective)];
}

Result<bool> PeerBuffers::learn(CallContext& context) {
  all_mapped_ = may_map();
  all_readable_ = may_read(call_);
  root_idles_ = false;
  bool known = true;
  for (int rank = 0; rank < board_.team().ranks; ++rank) {
    const auto from = board_.announced_by<Announcement>(rank);
    const auto r = static_cast<std::size_t>(rank);
    inputs_[r] = from.input;
    outputs_[r] = from.output;
    all_mapped_ = all_mapped_ && could_map(rank, from);
    const auto is_known = [&](bool there, std::uint64_t segment) {
      return !there || !near_[r] || known_[r].contains(segment);
    };
    known = known && is_known(has_input(call_, rank), from.input.segment) &&
            is_known(has_output(call_, rank), from.output.segment);
    context.peer_inputs_at[r] = from.input_at;
    context.peer_outputs_at[r] = from.output_at;
    if (rank == call_.root && may_share(call_))
      root_idles_ = root_in_place(call_, from.input_at, from.output_at);
    if (call_.collective == Collective::kAllToAll && from.input_at == from.output_at)
      all_readable_ = false;
  }
  if (!all_mapped_) return true;
  const Status mapped = map(context, known);
  mapped_ = static_cast<bool>(mapped);
  if (!known || mapped) return known;
  return Error{mapped.error().code,
               call_.describe() + ": a buffer that could be mapped before can't be any more: " +
                   mapped.error().what,
               mapped.error().rank, mapped.error().peer};
}

/// `known`: all of them have been mapped before, so no peer has to be asked.
Status PeerBuffers::map(CallContext& context, bool known) {
  const Team& team = board_.team();
  for (int rank = 0; rank < team.ranks; ++rank) {
    const auto r = static_cast<std::size_t>(rank);
    if (rank == team.me) {
      context.buffers.peer_inputs[r] = call_.input;
      context.buffers.peer_outputs[r] = call_.output;
      continue;
    }
    if (!team.endpoint.near(team.me, rank)) continue;
    std::optional<ProcessWait> shown;
    if (!known) shown.emplace(team.region, team.me, rank);
    // Only the parts of a peer's buffers that this rank touches have to be there.
    const Blocks& blocks = call_.blocks;
    if (has_input(call_, rank)) {
      const std::size_t bytes = call_.vector_variant
                                    ? (blocks.peer_input_at[r] + blocks.gets[r]) * call_.element
                                    : input_bytes(call_, team.ranks);
      TUTTI_TRY(context.buffers.peer_inputs[r], team.endpoint.map(rank, inputs_[r], bytes));
    }
    if (has_output(call_, rank)) {
      const std::size_t bytes = call_.vector_variant
                                    ? (blocks.peer_output_at[r] + blocks.gives[r]) * call_.element
                                    : output_bytes(call_, team.ranks);
      TUTTI_TRY(context.buffers.peer_outputs[r], team.endpoint.map(rank, outputs_[r], bytes));
    }
  }
  return ok();
}

void PeerBuffers::agree() {
  const int ranks = board_.team().ranks;
  for (int rank = 0; rank < ranks; ++rank)
    all_mapped_ = all_mapped_ && board_.announced_by<Announcement>(rank).mapped == 1;
  for (std::size_t r = 0; r < inputs_.size(); ++r) {
    for (const std::uint64_t segment : {inputs_[r].segment, outputs_[r].segment}) {
      if (segment != 0) (all_mapped_ ? known_ : unmappable_)[r].insert(segment);
    }
  }
}

}  // namespace tutti::exec
