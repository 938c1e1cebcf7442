// File: virtual/calls.h: the calls of a run, their buffers, and what has to be in them afterwards.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "tutti/communicator.h"
#include "virtual/kernel/world.h"

namespace tutti::virt {

enum class What : std::uint8_t {
  kCollective,
  kBarrier,
  kMessages,
  kSplit,
  kBatch,
  kRepeats,
  kWindow
};

struct Call {
  What what = What::kCollective;
  Collective collective = Collective::kAllReduce;
  DataType type = DataType::kInt32;
  ReduceOp op = ReduceOp::kSum;
  std::size_t count = 0;
  int root = 0;
  int times = 1;  // That the call is made.
  bool started = false, registered = false, in_place = false, on_part = false;
  bool varied = false;  // Blocks differ in size; `count` is then the largest.
};

/// The list that all ranks make.
std::vector<Call> script(const Parameters& run);

bool is_reduction(Collective what);
/// Whether a run calls it with blocks of different sizes as well.
bool has_variant(Collective what);
/// Whether no rank gives any element to a collective of so many.
bool is_empty(const Call& call, int ranks);

/// Whether that rank's part in a collective needs nothing of the others.
bool needs_nobody(const Call& call, int me);

/// Element `i` of what `rank` gives in call `number`: small, so that sums of floats are exact.
int value_of(int number, int rank, std::size_t i);
/// What so many ranks, the first ones, make of their elements together.
int reduced(const Call& call, int number, int ranks, std::size_t i);
void put(std::byte* to, DataType type, std::size_t i, int value);
bool is(const std::byte* from, DataType type, std::size_t i, int value);

/// Plain memory, or memory that peers can map.
class Buffer {
 public:
  Buffer(std::size_t bytes, bool registered);
  ~Buffer();
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  std::byte* data() { return mapped_ != nullptr ? mapped_ : plain_.data(); }
  std::uint64_t sum();

 private:
  std::byte* mapped_ = nullptr;
  std::vector<std::byte> plain_;
  std::size_t bytes_ = 0;
};

/// A collective with its buffers.
class Running {
 public:
  Running(const Call& call, int number, int me, int ranks);
  Request request();
  /// The same call on other data.
  void renew(int number);
  /// Whether the output is what it has to be, bit for bit.
  bool right();
  std::uint64_t sum() { return out_.sum(); }

 private:
  bool right_block(std::size_t block, const std::byte* data) const;
  Call call_;
  int number_, me_, ranks_;
  bool in_place_ = false;
  std::vector<std::size_t> in_counts_, out_counts_;  // Elements, by block.
  Buffer in_, out_;
};

}  // namespace tutti::virt
