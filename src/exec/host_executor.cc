#include "exec/host_executor.h"

#include <unistd.h>

#include <cstring>

#include "base/check.h"
#include "base/clock.h"
#include "exec/copy_few.h"

namespace tutti::exec {
namespace {

/// Who gives in a rooted call may be ahead, its reader close behind: a transfer for each line. 512
/// bytes take 0.26 us in lines and 0.20 in a slot, 0.06 and 0.05 between CPUs that are near.
constexpr std::size_t kRootedLines = 4;
constexpr std::size_t kGatheredStride = (kCallPayload + kCacheLine - 1) / kCacheLine * kCacheLine;
constexpr std::size_t kWorthStreaming = 4096;  // Bytes; see SlotStores.
constexpr std::int64_t kLongUnseenMs = 10;

}  // namespace

HostExecutor::HostExecutor(std::unique_ptr<Endpoint> endpoint, int me, Options options)
    : endpoint_(std::move(endpoint)),
      wire_(endpoint_->wire()),
      region_(endpoint_->region()),
      record_(&region_.record(me)),
      me_(me),
      ranks_(static_cast<int>(region_.config().rank_count)),
      owner_(getpid()),
      fence_(region_.config().fence != 0),
      finished_period_(finished_period(region_.config())),
      options_(std::move(options)),
      links_(region_, me, wire_),
      messages_(*endpoint_, me, options_.stream_from / 2),
      inputs_(static_cast<std::size_t>(ranks_)),
      outputs_(static_cast<std::size_t>(ranks_)),
      known_(static_cast<std::size_t>(ranks_)),
      unmappable_(static_cast<std::size_t>(ranks_)),
      sources_(static_cast<std::size_t>(ranks_)),
      blocks_(static_cast<std::size_t>(ranks_)),
      gathered_(static_cast<std::size_t>(ranks_) * kGatheredStride) {
  neighbours_.reserve(static_cast<std::size_t>(ranks_));
  find_mates();
  context_.region = &region_;
  context_.peer_inputs_at.resize(static_cast<std::size_t>(ranks_));
  context_.peer_outputs_at.resize(static_cast<std::size_t>(ranks_));
  context_.buffers.peer_inputs.resize(static_cast<std::size_t>(ranks_));
  context_.buffers.peer_outputs.resize(static_cast<std::size_t>(ranks_));
}

bool HostExecutor::is_packet(const Call& call) const {
  // What fits a packet at one rank may not at another, where they don't all know all sizes.
  if (call.uneven && call.collective != Collective::kAllGather) return false;
  // A gather's output, a scatter's input: the largest thing that a rank handles.
  const std::size_t largest =
      call.uneven ? std::max(blocks_.gets_elements, blocks_.largest) * size_of(call.type)
                  : std::max(input_bytes(call, ranks_), output_bytes(call, ranks_));
  const bool scaled = call.op == ReduceOp::kPreMulSum && reduces(call.collective);
  const std::size_t wide =
      scaled ? element_bytes(call.type, Form::kPartial) / size_of(call.type) : 1;
  const auto which = static_cast<std::size_t>(call.collective);
  if (call.packets != Packets::kBySize) {
    return call.packets == Packets::kAlways && largest * wide <= region_.config().packet_bytes;
  }
  const std::size_t limit = options_.packet_limit[which];
  if (largest > options_.mapped_packet_limit[which]) {
    if (lately_mapped_) return false;
    if (has_root(call.collective) && number_ % kRootedTrial == 0) return false;
  }
  return largest <= limit && largest * wide <= region_.config().packet_bytes;
}

/// The places of lines are used in turn, but after a symmetric call two of them by turns: all
/// others have finished what came before it, and lines that were written just now are still near.
/// No place is used again within `calls` - 1 calls unless a symmetric call lies between, of which
/// this rank has seen everybody's lines. What a call is itself must not decide where its lines are:
/// ranks that disagree have to see that.
void HostExecutor::next_place() {
  ++number_;
  next_peer_ = 0;
  if (wire_ != nullptr) {
    place_ = number_;  // What is on its way stays where it is.
  } else if (symmetric()) {
    last_place_ = place_ | 1;
    place_ ^= 1;
  } else {
    place_ = last_place_ = after(last_place_);
  }
}

/// A round of call lines: a call of its own in the record of calls, and in the digest.
void HostExecutor::next_number(std::uint64_t way) {
  next_place();
  const bool blocks = packet_ && call_.uneven;
  const std::uint64_t count = common_count(call_);
  const std::uint64_t word = what_ | way, sizes = blocks ? blocks_.hash(me_) : count;
  const bool again = word == last_word_ && sizes == last_sizes_;
  digest_ = again ? same_again(digest_) : next_digest(digest_, word, sizes);
  last_word_ = word, last_sizes_ = sizes;
  tag_ = tag_of(number_, digest_);
  record_->note(number_, {word, count, digest_});
  next_line_ = 0;
}

/// What of begin depends on buffers, or on how often it was done.
void HostExecutor::begin_again(const Call& call) {
  if (gives_ && !only_givers_gave()) [[unlikely]]
    return;
  call_.input = call.input;
  call_.output = call.output;
  waiting_ = false;
  next_place();
  digest_ = same_again(digest_);  // As next_number would.
  tag_ = tag_of(number_, digest_);
  next_line_ = first_line_;
  record_->note(number_, {what_ | kByPackets, call_.count, digest_});
  if (number_ % kCpuPeriod == 0)
    record_->cpu.store(current_cpu() + 1, std::memory_order_relaxed);  // relaxed: as in begin.
  phase_ = Phase::kCredit;
}

/// What this rank does in the call.
void HostExecutor::find_part() {
  const CollectiveTraits traits = traits_of(call_.collective);
  symmetric_ = !packet_ || !has_root(call_.collective);
  one_gives_ = packet_ && traits.root_input;
  receives_ = has_output(call_, me_);
  // It also reads what it scaled there itself.
  const bool read = !traits.root_output || me_ != call_.root;
  publishes_ = has_input(call_, me_) && (read || context_.scaled);
  gives_ = !symmetric_ && (traits.root_input ? me_ == call_.root : read) && ranks_ > 1;
  const std::size_t largest = std::max(input_bytes(call_, ranks_), output_bytes(call_, ranks_));
  const auto which = static_cast<std::size_t>(call_.collective);
  // Another time such a call is a packet as well.
  const bool always =
      call_.packets == Packets::kAlways || largest <= options_.mapped_packet_limit[which];
  repeatable_ = packet_ && always && !call_.uneven && !context_.scaled && wire_ == nullptr;
}

void HostExecutor::begin(const Call& call) {
  claim_wire();
  if (gives_ && !broken_ && !region_.ending() && !only_givers_gave()) [[unlikely]]
    return;
  call_ = call;
  what_ = pack(call);
  repeatable_ = false;
  waiting_ = exposed_ = false;
  if (broken_ || region_.ending()) {
    end_by_abort();
    return;
  }
  if (call.uneven) blocks_.begin(call, me_);
  packet_ = is_packet(call);
  next_number(packet_ ? kByPackets : 0);
  record_->cpu.store(current_cpu() + 1, std::memory_order_relaxed);  // relaxed: a hint.
  context_.arithmetic = {call.type, call.op, ranks_, call.scale,
                         static_cast<std::int64_t>(call.scale)};
  context_.scaled = call.op == ReduceOp::kPreMulSum && reduces(call.collective);
  context_.count = call.count;
  context_.blocks = call.uneven ? &blocks_ : nullptr;
  if (packet_) {
    const Form form = context_.scaled ? Form::kPartial : Form::kContribution;
    packet_bytes_ = input_elements(call, ranks_) * element_bytes(call.type, form);
    const std::size_t most = call.uneven ? blocks_.largest * size_of(call.type) : packet_bytes_;
    inline_ = most <= (has_root(call.collective) ? kRootedLines * kLinePayload : kCallPayload);
    lines_ = inline_ ? std::max<std::size_t>(1, (most + kLinePayload - 1) / kLinePayload) : 1;
    if (!inline_ && !std::exchange(packets_touched_, true)) region_.touch_packets(me_);
    phase_ = Phase::kCredit;
  } else {
    inline_ = true;
    lines_ = 1;
    phase_ = Phase::kAgreeCredit;
  }
  find_lines();
  find_part();
}

/// Of packets with a block for each rank, a rank reads its own block, and publishes the others'.
void HostExecutor::find_lines() {
  first_line_ = own_first_ = own_end_ = 0;
  end_line_ = lines_;
  if (lines_ == 1 || !traits_of(call_.collective).input_each) return;
  const Form form = context_.scaled ? Form::kPartial : Form::kContribution;
  const std::size_t block = call_.count * element_bytes(call_.type, form);
  const std::size_t mine = static_cast<std::size_t>(me_) * block;
  first_line_ = mine / kLinePayload;
  end_line_ = (mine + block + kLinePayload - 1) / kLinePayload;
  own_first_ = (mine + kLinePayload - 1) / kLinePayload;
  own_end_ = std::max(own_first_, (mine + block) / kLinePayload);
  next_line_ = first_line_;
}

bool HostExecutor::has_credit() {
  const std::uint64_t depth = credit_depth();
  if (number_ <= everyone_finished_ + depth) return true;
  std::uint64_t least = number_;
  for (int rank = 0; rank < ranks_; ++rank) {
    if (rank == me_) continue;
    // acquire: that rank is done reading the line and the slot that we are about to reuse.
    least = std::min(least, region_.finished(rank).value.load(std::memory_order_acquire));
  }
  everyone_finished_ = std::max(everyone_finished_, least);
  if (number_ >= next_compare_ && !calls_agree()) [[unlikely]]
    return false;  // It failed.
  return number_ <= everyone_finished_ + depth;
}

/// Tells the others that this rank's lines of this call are there.
void HostExecutor::publish(std::size_t lines) {
  for (int rank = 0; rank < ranks_; ++rank) {
    if (rank != me_) notify(region_.doorbell(rank), fence_);
  }
  if (wire_ != nullptr) {
    // What this rank reads in a call it has read when it publishes the next one.
    if (finished_due(number_ - 1)) say_finished(number_ - 1);
    const std::size_t packet = packet_ && !inline_ ? packet_bytes_ : 0;
    wire_->publish({.call = number_,
                    .lines = static_cast<std::uint32_t>(lines),
                    .packet_bytes = static_cast<std::uint32_t>(packet),
                    .blocks = call_.uneven && !packet_});
  }
}

/// Writes a line whole before the next one: a reader who looks at it in between takes it away, and
/// it has to be fetched again.
void HostExecutor::write_line(std::size_t which, const std::byte* from, std::size_t bytes) {
  CallLine& line = region_.lines(me_, place_)[which];
  copy_few(line.payload.data(), from, bytes);
  // release: the line's payload, and the packet slot, are there when the tag is.
  line.tag.store(tag_, std::memory_order_release);
}

/// The packet, 56 bytes a line.
void HostExecutor::publish_inline() {
  const std::byte* from = call_.input;
  if (context_.scaled) {
    std::byte* scaled = gathered_.data() + static_cast<std::size_t>(me_) * kGatheredStride;
    scale_into(scaled);
    from = scaled;
  }
  std::size_t left = packet_bytes_;
  for (std::size_t i = 0; left > kLinePayload; ++i, left -= kLinePayload) {
    if (i < own_first_ || i >= own_end_) write_line(i, from + i * kLinePayload, kLinePayload);
  }
  const std::size_t last = (packet_bytes_ - left) / kLinePayload;
  if (last < own_first_ || last >= own_end_) write_line(last, from + last * kLinePayload, left);
  // A rank that makes another call looks at the first line, see only_givers_gave.
  if (gives_ && own_first_ == 0 && own_end_ != 0) write_line(0, nullptr, 0);
  for (std::size_t i = last + 1; i < lines_; ++i) write_line(i, nullptr, 0);  // Others have more.
  publish(lines_);
}

/// This rank's contribution, multiplied, as partials.
void HostExecutor::scale_into(std::byte* to) {
  const std::size_t elements = packet_bytes_ / element_bytes(call_.type, Form::kPartial);
  const kernels::Source source{call_.input, Form::kContribution, true};
  const kernels::Target target{to, Form::kPartial};
  kernels::reduce(context_.arithmetic, std::span(&source, 1), std::span(&target, 1), elements);
}

void HostExecutor::copy_past_cache(std::byte* to) {
  const kernels::Source source{call_.input, Form::kContribution, false};
  const kernels::Target target{to, Form::kContribution};
  kernels::reduce(context_.arithmetic, std::span(&source, 1), std::span(&target, 1),
                  packet_bytes_ / size_of(call_.type), kernels::Stores::kStreaming);
}

void HostExecutor::publish_packet() {
  if (inline_) return publish_inline();
  std::byte* slot = region_.packet(me_, number_);
  if (context_.scaled)
    scale_into(slot);
  else if (slot_stores_.usual() && packet_bytes_ >= kWorthStreaming)
    copy_past_cache(slot);
  else if (packet_bytes_ != 0)
    std::memcpy(slot, call_.input, packet_bytes_);
  announce(announcement());
}

/// Whether a line of this call is there.
bool HostExecutor::check_tag(int rank, const CallLine& line) {
  // acquire: pairs with the release in write_line.
  const std::uint64_t tag = line.tag.load(std::memory_order_acquire);
  if (tag == tag_) [[likely]]
    return true;
  // The line may be of an old call whose number ends alike. The rank's record decides.
  if (same_number(tag, tag_)) [[unlikely]]
    (void)agrees(rank);
  return false;
}

/// True once all lines of a rank that concern this one are there. Several lines are put together as
/// they come.
bool HostExecutor::seen(int rank) {
  const CallLine* const line = region_.lines(rank, place_);
  if (lines_ == 1) {
    if (!check_tag(rank, *line)) return false;
    // Who only gives may be calls ahead: what comes next is there, as a rule.
    if (!symmetric()) __builtin_prefetch(region_.lines(rank, after(last_place_)));
    return true;
  }
  std::byte* to = gathered_.data() + static_cast<std::size_t>(rank) * kGatheredStride;
  for (; next_line_ < end_line_; ++next_line_) {
    if (!check_tag(rank, line[next_line_])) return false;
    std::memcpy(to + next_line_ * kLinePayload, line[next_line_].payload.data(), kLinePayload);
  }
  next_line_ = first_line_;
  return true;
}

bool HostExecutor::gathered() {
  // Whom a packet does not concern, it does not keep.
  if (packet_ && !receives_) return true;
  for (; next_peer_ < ranks_; ++next_peer_) {
    if (next_peer_ == me_ || (one_gives_ && next_peer_ != call_.root)) continue;
    if (!seen(next_peer_)) return false;
  }
  // A rank that starts a call has finished the one before.
  if (symmetric()) everyone_finished_ = std::max(everyone_finished_, number_ - 1);
  return true;
}

const std::byte* HostExecutor::payload_of(int rank) const {
  if (!inline_) return region_.packet(rank, number_);
  if (lines_ == 1 && rank != me_) return region_.lines(rank, place_)->payload.data();
  return gathered_.data() + static_cast<std::size_t>(rank) * kGatheredStride;
}

/// Copies this rank's blocks out of the packets of those who gave them.
void HostExecutor::collect_packets(std::size_t block) {
  const CollectiveTraits traits = traits_of(call_.collective);
  // In place, in an all-to-all, this rank's own input is overwritten here. Peers read its packet.
  const std::size_t from = traits.input_each ? static_cast<std::size_t>(me_) * block : 0;
  for (int rank = 0; rank < ranks_; ++rank) {
    if (one_gives_ && rank != call_.root) continue;
    std::size_t at = traits.output_each ? static_cast<std::size_t>(rank) * block : 0;
    if (call_.uneven) {
      const auto r = static_cast<std::size_t>(rank);
      at = blocks_.output_at[r] * size_of(call_.type);
      block = blocks_.gets[r] * size_of(call_.type);
      if (block == 0) continue;
    }
    std::byte* to = call_.output + at;
    const std::byte* data = (rank == me_ ? call_.input : payload_of(rank)) + from;
    if (to != data) copy_few(to, data, block);
  }
}

void HostExecutor::finish_packet() {
  const std::size_t block = call_.count * size_of(call_.type);
  if (block == 0 && !call_.uneven) return;
  if (!receives_) return;
  if (!reduces(call_.collective)) return collect_packets(block);
  const Form form = context_.scaled ? Form::kPartial : Form::kContribution;
  const auto mine =
      traits_of(call_.collective).input_each ? static_cast<std::size_t>(me_) : std::size_t{0};
  const std::size_t offset = mine * call_.count * element_bytes(call_.type, form);
  for (int rank = 0; rank < ranks_; ++rank) {
    const bool own_input = rank == me_ && !context_.scaled;
    sources_[static_cast<std::size_t>(rank)] = {
        (own_input ? call_.input : payload_of(rank)) + offset, form, false};
  }
  const kernels::Target target{call_.output, Form::kResult};
  kernels::reduce(context_.arithmetic, sources_, std::span(&target, 1), call_.count);
}

void HostExecutor::say_finished(std::uint64_t call) {
  said_finished_ = call;
  // release: our reads of lines, slots and peers' memory are over.
  region_.finished(me_).value.store(call, std::memory_order_release);
}

void HostExecutor::finish() {
  phase_ = Phase::kDone;
  // Only who runs ahead, in a rooted call, can be short of credit; in all other calls a peer's own
  // line shows that it has finished the one before.
  if (symmetric() || !finished_due(number_)) return;
  say_finished(number_);
  for (int rank = 0; rank < ranks_; ++rank) {
    if (rank != me_) notify(region_.doorbell(rank), fence_);
  }
}

Poll HostExecutor::poll() {
  const Poll result = step();
  if (result != Poll::kPending) waiting_ = false;
  if (wire_ == nullptr || result != Poll::kPending) return result;
  // A look at the network is a system call: not while there is something to do without. What it
  // moves may be of messages, so it is no news of this call.
  looked_at_wire_ = coarse_ms();
  return wire_->progress() ? Poll::kProgressed : Poll::kPending;
}

Poll HostExecutor::step() {
  if (phase_ != Phase::kCredit && phase_ != Phase::kGather) return step_plan();
  const Phase before = phase_;
  if (before == Phase::kCredit) {
    if (publishes_) {
      if (!has_credit()) return Poll::kPending;
      publish_packet();
    }
    phase_ = Phase::kGather;
  }
  if (!gathered()) {
    if (phase_ == Phase::kDone) return Poll::kDone;  // It failed.
    return phase_ == before ? Poll::kPending : Poll::kProgressed;
  }
  finish_packet();
  if (!inline_ && symmetric()) learn_from_packets();
  finish();
  // As leave does.
  return wire_ == nullptr && !region_.ending() ? Poll::kDone : leave();
}

Poll HostExecutor::step_plan() {
  const Phase before = phase_;
  switch (phase_) {
    case Phase::kCredit:
    case Phase::kGather: break;
    case Phase::kAgreeCredit:
      if (!has_credit()) return Poll::kPending;
      if (call_.uneven) blocks_.show(region_.blocks(me_, number_));
      announce(announcement());
      exposed_ = has_mates_;
      phase_ = Phase::kAgreeGather;
      [[fallthrough]];
    case Phase::kAgreeGather:
      if (!gathered() || !learn_blocks()) break;
      if (read_announcements()) return start_plan(), Poll::kProgressed;
      mapping_ok_ = map_peers();
      next_number(kRound);
      phase_ = Phase::kMapCredit;
      [[fallthrough]];
    case Phase::kMapCredit:
      if (!has_credit()) return Poll::kPending;
      announce(Announcement{.input = {}, .output = {}, .mapped = mapping_ok_ ? 1U : 0U});
      phase_ = Phase::kMapGather;
      [[fallthrough]];
    case Phase::kMapGather:
      if (!gathered()) break;
      start_plan();
      return Poll::kProgressed;
    case Phase::kPlanCredit:
      if (!has_credit()) return Poll::kPending;
      announce(way_->plan->name);
      phase_ = Phase::kPlanGather;
      [[fallthrough]];
    case Phase::kPlanGather:
      if (!gathered()) break;
      if (agree_on_plan()) start_lanes();
      return Poll::kProgressed;
    case Phase::kLanes: return poll_lanes();
    case Phase::kLeave: return leave();
    case Phase::kStopping: return poll_stopping();
    case Phase::kDone: return Poll::kDone;
  }
  if (phase_ == Phase::kDone) return Poll::kDone;  // It failed.
  return phase_ == before ? Poll::kPending : Poll::kProgressed;
}

/// This rank's part is done. What it wrote last still has to leave: nobody else will see to that.
Poll HostExecutor::leave() {
  if (wire_ != nullptr) {
    phase_ = Phase::kLeave;
    wire_->flush();
    if (wire_->pending()) return Poll::kPending;
    // A rank that finds all it needs does not look at the network, where an abort may wait.
    if (coarse_ms() - looked_at_wire_ > kLongUnseenMs) {
      looked_at_wire_ = coarse_ms();
      wire_->progress();
    }
    wire_->keep();  // What may have to be sent again.
    phase_ = Phase::kDone;
  }
  // No rank returns ok for a call that another rank was told has failed.
  if (region_.ending()) [[unlikely]]
    return end_by_abort();
  return Poll::kDone;
}

Status HostExecutor::finish_running() {
  const Poll first = poll();
  return first == Poll::kDone ? take_status() : finish_waiting(first);
}

}  // namespace tutti::exec
