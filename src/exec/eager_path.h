// File: exec/eager_path.h: small calls, in one round.
//
// The message fits call lines (kCallPayload bytes) or a packet slot. Every rank writes its part
// once, and every rank that needs it reads it and reduces in canonical order: the plan
// "one_shot+multicast" by hand, with data and flag in the same cache line. There is no exit
// barrier: lines and slots are used in turn, and no rank is more than a turn ahead. The lines of a
// message in a slot also say where the rank's buffers are, so that all ranks learn alike whether
// the next call of that size should go by a plan.
#pragma once
#include <vector>

#include "exec/adapt/adapting.h"
#include "exec/calls/active_call.h"
#include "exec/calls/call_board.h"
#include "exec/peer_buffers.h"
#include "kernels/host/reduce.h"

namespace tutti::exec {

class EagerPath {
 public:
  EagerPath(CallBoard& board, const ActiveCall& call, const PeerBuffers& buffers, Adapting& adapt);

  /// Whether the call is eager. Every rank has the same answer.
  bool takes() const;
  /// Begins the call, which it takes.
  void begin();
  /// Whether a call that differs only in its buffers is eager as well, and in the same way: then
  /// little has to be looked at again. That is half of a call's instructions.
  bool repeatable() const { return repeatable_; }
  /// Writes this rank's part.
  void publish();
  /// Once gathered: reads the parts of all ranks into the output.
  void finish();

 private:
  void find_lines(Round& round);
  void find_ranks(Round& round, const CollectiveTraits& traits) const;
  bool runs_ahead(const Round& round) const;
  void publish_lines();
  void scale_into(std::byte* to);
  void copy_past_cache(std::byte* to);
  void find_parts(const CollectiveTraits& traits);
  void collect();
  void collect_blocks();
  void reduce();
  const std::byte* payload_of(int rank) const {
    return in_lines_ ? board_.payload(rank)
                     : board_.region().packet(rank, board_.number(), is_long());
  }
  bool is_long() const { return board_.round().packet == Packet::kLong; }
  Form form() const { return call_.scaled ? Form::kPartial : Form::kContribution; }

  CallBoard& board_;
  const ActiveCall& call_;
  std::size_t bytes_ = 0;                    // The size of this rank's part.
  std::size_t own_first_ = 0, own_end_ = 0;  // Those of its lines that no other rank reads.
  bool in_lines_ = false, receives_ = true, reduces_ = false, repeatable_ = false;
  int summed_ = 0;  // So many ranks' parts, those of the first ones, are reduced here.
  // This rank gets a block of each of these ranks' parts: where it is in a part, and by how much
  // the next rank's is farther in the output.
  int first_writer_ = 0, last_writer_ = 0;
  std::size_t block_ = 0, part_at_ = 0, output_stride_ = 0;
  bool slots_touched_ = false;  // See Region::touch_packets.
  std::vector<kernels::Source> sources_;
  const PeerBuffers& buffers_;
  Adapting& adapt_;
};

}  // namespace tutti::exec
