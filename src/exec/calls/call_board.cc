#include "exec/calls/call_board.h"

namespace tutti::exec {

CallBoard::CallBoard(Endpoint& endpoint, int me, flight::Recorder& flight)
    : team_{.endpoint = endpoint,
            .region = endpoint.region(),
            .remote_link = endpoint.remote_link(),
            .me = me,
            .ranks = static_cast<int>(endpoint.region().config().rank_count),
            .fence = endpoint.region().config().fence != 0},
      log_(region().record(me), flight),
      gathered_(static_cast<std::size_t>(team_.ranks) * kGatheredStride) {}

bool CallBoard::look_for_credit() {
  log_.show();  // A rank that waits is in the call.
  std::uint64_t least = number();
  for (int rank = 0; rank < team_.ranks; ++rank) {
    if (rank == team_.me) continue;
    // acquire: that rank is done reading the line and the slot that we are about to reuse.
    least = std::min(least, region().finished(rank).value.load(std::memory_order_acquire));
  }
  everyone_finished_ = std::max(everyone_finished_, least);
  return has_credit();
}

void CallBoard::publish_on_link() {
  // What this rank reads in a call it has read when it publishes the next one.
  if (finished_due(number() - 1)) say_finished(number() - 1);
  team_.remote_link->publish({.call = number(),
                              .lines = round_.lines,
                              .packet_bytes = round_.slot_bytes,
                              .blocks = round_.blocks,
                              .reader = round_.only_to});
}

bool CallBoard::seen_all(int rank, const CallLine* line) {
  std::byte* to = gathered_.data() + static_cast<std::size_t>(rank) * kGatheredStride;
  // In registers: the copies below may change any member, as far as the compiler knows.
  const std::uint64_t tag = log_.tag();
  const std::uint32_t end = round_.end;
  for (std::uint32_t next = next_line_; next < end; ++next) {
    // acquire: pairs with the release in LineWriter::write.
    if (line[next].tag.load(std::memory_order_acquire) != tag) {
      next_line_ = next;
      (void)matches(rank, line[next]);
      return false;
    }
    std::memcpy(to + next * kLinePayload, line[next].payload.data(), kLinePayload);
  }
  next_line_ = round_.first;
  return true;
}

/// A rank records a round just after it has written its lines. Bounded: a line may be of an old
/// call whose number ends alike.
void CallBoard::await_record(int rank) const {
  const CallRecord& record = region().record(rank);
  // acquire: the caller looks at the entry.
  for (int i = 0; i < 1000 && record.number.load(std::memory_order_acquire) < number(); ++i)
    cpu_relax();
}

int CallBoard::stray_writer(int rank) const {
  for (; rank < round_.quiet_end; ++rank) {
    if (rank == team_.me || !is_stray(rank)) continue;
    await_record(rank);
    break;
  }
  return rank;
}

}  // namespace tutti::exec
