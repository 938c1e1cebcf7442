// File: exec/peer_buffers.h: where the ranks' buffers of a call are, and how ranks access them.
//
// All ranks read the same announcements, so all decide alike. Buffers that peers can map lie in
// segments. A segment that was never met costs one more round: all ranks try to map it and tell
// each other how that went.
#pragma once
#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "exec/calls/active_call.h"
#include "exec/calls/call_board.h"
#include "exec/lane.h"

namespace tutti::exec {

/// A short list of what was met lately, the latest first. Ranks that are asked the same questions
/// in the same order keep the same lists, also once they are full and forget: what is derived from
/// them is alike on all ranks.
class Recent {
 public:
  bool contains(std::uint64_t id) const {
    const auto end = ids_.begin() + size_;
    return std::find(ids_.begin(), end, id) != end;
  }
  /// Puts `id` first, unless it is there already; of a full list the oldest is forgotten.
  void insert(std::uint64_t id) {
    if (contains(id)) return;
    if (size_ < kMost) ++size_;
    std::copy_backward(ids_.begin(), ids_.begin() + size_ - 1, ids_.begin() + size_);
    ids_[0] = id;
  }

 private:
  static constexpr std::ptrdiff_t kMost = 64;
  std::array<std::uint64_t, kMost> ids_{};
  std::ptrdiff_t size_ = 0;
};

class PeerBuffers {
 public:
  /// The content of a call line: where this rank's buffers are.
  struct Announcement {
    BufferName input, output;
    std::uint64_t input_at = 0, output_at = 0;  // In this rank's address space, for the kernel.
    std::uint32_t mapped = 1;   // In the second round: whether this rank could map all the others'.
    std::uint32_t took_ns = 0;  // See PlanTrials::took_ns.
  };
  using Bytes = std::array<std::size_t, kCollectiveCount>;

  /// `read_from_bytes`: as HostExecutor::Options has it.
  PeerBuffers(const CallBoard& board, const ActiveCall& call, const Bytes& read_from_bytes);

  /// Whether some ranks reach each other's memory.
  bool some_near() const { return some_near_; }
  Announcement announcement() const;
  /// In the second round.
  Announcement outcome() const { return {.input = {}, .output = {}, .mapped = mapped_ ? 1U : 0U}; }
  /// Whether the buffers that all ranks have announced could have been mapped.
  bool could_be_mapped() const;
  /// Takes over all announcements, and maps the buffers. False: a segment is new, so that a second
  /// round is due.
  Result<bool> learn(CallContext& context);
  /// After that round.
  void agree();
  /// How the plan accesses peers' buffers.
  Access access() const { return access_of(all_mapped_, all_readable_, root_idles_); }
  /// Whether plain buffers of such a call are read by peers, unless some rank calls it in place.
  bool may_read(const Call& call) const;
  /// Whether the root of such a call, if it has its own block in place, leaves the copying to one
  /// other rank, though it could do half.
  bool may_share(const Call& call) const {
    return board_.team().ranks == 2 && has_root(call.collective);
  }

 private:
  bool may_map() const { return !call_.scaled && call_.wire.is_plain() && some_near_; }
  bool could_map(int rank, const Announcement& from) const;
  Status map(CallContext& context, bool known);

  const CallBoard& board_;
  const ActiveCall& call_;
  Bytes read_from_;
  std::vector<bool> near_;  // By rank: others reach its memory,
  bool some_near_ = false;  // and whether there is such a rank.
  std::vector<BufferName> inputs_, outputs_;
  std::vector<Recent> known_, unmappable_;  // By rank, segments; alike on every rank.
  bool all_mapped_ = false, mapped_ = true, all_readable_ = false, root_idles_ = false;
};

}  // namespace tutti::exec
