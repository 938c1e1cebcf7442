#include "exec/eager_path.h"

#include <cstring>

namespace tutti::exec {
namespace {

/// In a rooted call the writer may be ahead, its reader close behind: a transfer for each line. 512
/// bytes take 0.26 us in lines and 0.20 in a slot, 0.06 and 0.05 between CPUs that are near.
constexpr std::size_t kRootedLines = 4;
constexpr std::size_t kWorthStreaming = 4096;  // Bytes; see SlotStores.

}  // namespace

EagerPath::EagerPath(CallBoard& board, const ActiveCall& call, const PeerBuffers& buffers,
                     Adapting& adapt)
    : board_(board),
      call_(call),
      sources_(static_cast<std::size_t>(board.team().ranks)),
      buffers_(buffers),
      adapt_(adapt) {}

bool EagerPath::takes() const {
  // What fits a packet at one rank may not at another, where they don't all know all sizes.
  if (call_.vector_variant && call_.collective != Collective::kAllGather) return false;
  // A gather's output, a scatter's input: the largest thing that a rank handles.
  const std::size_t largest =
      call_.vector_variant
          ? std::max(call_.blocks.gets_elements, call_.blocks.largest) * call_.element
          : std::max(call_.in_bytes, call_.out_bytes);
  const std::size_t wide =
      call_.scaled ? element_bytes(call_.type, Form::kPartial) / call_.element : 1;
  if (call_.eager_use == EagerUse::kNever || largest * wide > board_.region().longest_packet())
    return false;
  return call_.eager_use == EagerUse::kAlways ||
         adapt_.eager_limits.allow(call_.collective, largest, board_.number());
}

void EagerPath::begin() {
  const CollectiveTraits traits = traits_of(call_.collective);
  const Team& team = board_.team();
  const bool rooted = has_root(call_.collective);
  bytes_ = input_elements(call_, team.ranks) * element_bytes(call_.type, form());
  const std::size_t most = call_.vector_variant ? call_.blocks.largest * call_.element : bytes_;
  in_lines_ = most <= (rooted ? kRootedLines * kLinePayload : kCallPayload);
  if (!in_lines_ && !std::exchange(slots_touched_, true)) board_.region().touch_packets(team.me);
  find_parts(traits);
  // All ranks decide alike, as `most` is the same on all.
  const Packet packet = in_lines_                                       ? Packet::kNone
                        : most <= board_.region().config().packet_bytes ? Packet::kShort
                                                                        : Packet::kLong;
  Round round{.credit = board_.packet_credit(packet),
              .slot_bytes = in_lines_ ? 0 : static_cast<std::uint32_t>(bytes_),
              .packet = packet};
  if (in_lines_ && most > kLinePayload)
    round.lines = static_cast<std::uint32_t>((most + kLinePayload - 1) / kLinePayload);
  find_lines(round);
  find_ranks(round, traits);
  // Whether another time such a call is eager as well.
  const bool always =
      call_.eager_use == EagerUse::kAlways ||
      adapt_.eager_limits.always_allow(call_.collective, std::max(call_.in_bytes, call_.out_bytes));
  repeatable_ = always && !call_.vector_variant && !call_.scaled && team.remote_link == nullptr;
  board_.begin(round, call_.word | kEager, common_count(call_),
               call_.vector_variant ? call_.blocks.hash(team.me) : call_.count);
}

/// The ranks whose lines this one reads, and whether another one reads its own.
void EagerPath::find_ranks(Round& round, const CollectiveTraits& traits) const {
  const int me = board_.team().me, ranks = board_.team().ranks;
  bool read = true;  // Another rank reads this one's.
  if (traits.root_input) {
    round.from = call_.root, round.from_end = call_.root + 1;
    round.quiet_end = ranks;
    round.gives = me == call_.root;
  } else if (traits.root_output) {
    read = me != call_.root;
    if (read) round.from_end = 0;
    round.quiet = call_.root, round.quiet_end = call_.root + 1;
    round.only_to = call_.root;
    round.gives = read;
  } else if (runs_ahead(round)) {
    read = me + 1 < ranks;
    round.from_end = me;
    round.quiet = ranks - 1, round.quiet_end = ranks;
    round.gives = me == 0;
  }
  round.gives = round.gives && ranks > 1;
  // A rank itself reads its part as well if it was scaled there.
  round.writes = has_input(call_, me) && (read || call_.scaled);
}

/// Whether a rank waits only for those below it, and not for each other one. Between hosts a rank
/// that reads nothing would not see what fills its connection.
bool EagerPath::runs_ahead(const Round& round) const {
  return is_scan(call_.collective) && round.packet == Packet::kNone &&
         round.lines <= kRootedLines && board_.team().remote_link == nullptr;
}

/// If the input has a block for each rank, a rank reads its own block, and publishes the others'.
void EagerPath::find_lines(Round& round) {
  own_first_ = own_end_ = 0;
  round.end = round.lines;
  if (round.lines == 1 || !traits_of(call_.collective).input_each) return;
  const std::size_t block = call_.count * element_bytes(call_.type, form());
  const std::size_t mine = static_cast<std::size_t>(board_.team().me) * block;
  round.first = static_cast<std::uint32_t>(mine / kLinePayload);
  round.end = static_cast<std::uint32_t>((mine + block + kLinePayload - 1) / kLinePayload);
  own_first_ = (mine + kLinePayload - 1) / kLinePayload;
  own_end_ = std::max(own_first_, (mine + block) / kLinePayload);
}

/// The message, 56 bytes a line.
void EagerPath::publish_lines() {
  const std::byte* from = call_.input;
  if (call_.scaled) {
    scale_into(board_.own_payload());
    from = board_.own_payload();
  }
  const CallBoard::LineWriter lines = board_.writer();
  if (board_.round().lines == 1) {  // Most calls: nothing to leave out or to fill up.
    lines.write(0, from, bytes_);
    return board_.publish();
  }
  const std::size_t own_first = own_first_, own_end = own_end_, bytes = bytes_;
  std::size_t left = bytes;
  for (std::size_t i = 0; left > kLinePayload; ++i, left -= kLinePayload) {
    if (i < own_first || i >= own_end) lines.write(i, from + i * kLinePayload, kLinePayload);
  }
  const std::size_t last = (bytes - left) / kLinePayload;
  if (last < own_first || last >= own_end) lines.write(last, from + last * kLinePayload, left);
  // A rank that makes another call looks at the first line, see CallBoard::stray_writer.
  if (board_.round().gives && own_first == 0 && own_end != 0) lines.write(0, nullptr, 0);
  // Others have more.
  for (std::size_t i = last + 1; i < board_.round().lines; ++i) lines.write(i, nullptr, 0);
  board_.publish();
}

/// This rank's contribution, multiplied, as partials.
void EagerPath::scale_into(std::byte* to) {
  const std::size_t elements = bytes_ / element_bytes(call_.type, Form::kPartial);
  const kernels::Source source{call_.input, Form::kContribution, true};
  const kernels::Target target{to, Form::kPartial};
  kernels::reduce(call_.arithmetic, std::span(&source, 1), std::span(&target, 1), elements);
}

void EagerPath::copy_past_cache(std::byte* to) {
  const kernels::Source source{call_.input, Form::kContribution, false};
  const kernels::Target target{to, Form::kContribution};
  kernels::reduce(call_.arithmetic, std::span(&source, 1), std::span(&target, 1),
                  bytes_ / call_.element, kernels::Stores::kStreaming);
}

void EagerPath::publish() {
  if (in_lines_) return publish_lines();
  std::byte* slot = board_.region().packet(board_.team().me, board_.number(), is_long());
  if (call_.scaled)
    scale_into(slot);
  else if (adapt_.slot_stores.usual() && bytes_ >= kWorthStreaming)
    copy_past_cache(slot);
  else if (bytes_ != 0)
    std::memcpy(slot, call_.input, bytes_);
  board_.announce(buffers_.announcement());
}

/// For this call and for those that repeat it: nothing of it depends on buffers.
void EagerPath::find_parts(const CollectiveTraits& traits) {
  const int me = board_.team().me;
  receives_ = has_output(call_, me);
  reduces_ = traits.reduces();
  summed_ = summed_ranks(call_.collective, me, board_.team().ranks);
  first_writer_ = traits.root_input ? call_.root : 0;
  last_writer_ = traits.root_input ? call_.root : board_.team().ranks - 1;
  block_ = call_.count * (traits.reduces() ? element_bytes(call_.type, form()) : call_.element);
  // In place, in an all-to-all, this rank's own input is overwritten. Peers read its part.
  part_at_ = traits.input_each ? static_cast<std::size_t>(me) * block_ : 0;
  output_stride_ = traits.output_each ? block_ : 0;
}

/// Copies this rank's blocks out of the parts of the ranks that have written one.
void EagerPath::collect() {
  const int me = board_.team().me;
  for (int rank = first_writer_; rank <= last_writer_; ++rank) {
    std::byte* to = call_.output + static_cast<std::size_t>(rank) * output_stride_;
    const std::byte* data = (rank == me ? call_.input : payload_of(rank)) + part_at_;
    if (to != data) copy_few(to, data, block_);
  }
}

/// The same for an all-gather of blocks that differ in length.
void EagerPath::collect_blocks() {
  const int me = board_.team().me;
  for (int rank = 0; rank < board_.team().ranks; ++rank) {
    const auto r = static_cast<std::size_t>(rank);
    std::byte* to = call_.output + call_.blocks.output_at[r] * call_.element;
    const std::byte* data = rank == me ? call_.input : payload_of(rank);
    if (to != data) copy_few(to, data, call_.blocks.gets[r] * call_.element);
  }
}

void EagerPath::reduce() {
  const Team& team = board_.team();
  for (int rank = 0; rank < summed_; ++rank) {
    const bool own_input = rank == team.me && !call_.scaled;
    sources_[static_cast<std::size_t>(rank)] = {
        (own_input ? call_.input : payload_of(rank)) + part_at_, form(), false};
  }
  const kernels::Target target{call_.output, Form::kResult};
  kernels::reduce(call_.arithmetic, std::span(sources_).first(static_cast<std::size_t>(summed_)),
                  std::span(&target, 1), call_.count);
}

void EagerPath::finish() {
  if (receives_) {
    if (call_.vector_variant)
      collect_blocks();
    else if (!reduces_)
      collect();
    else if (block_ != 0)
      reduce();
  }
  if (!in_lines_ && board_.round().symmetric())
    adapt_.eager_limits.note(buffers_.could_be_mapped());
}

}  // namespace tutti::exec
