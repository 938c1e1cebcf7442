// File: soak/mix.h: mixed calls of one rank, drawn by a seed alike on all ranks, each of whose
// results is checked: every collective, of 1 byte to 16 MiB, blocking, started and in groups, with
// blocks that differ in size, messages, barriers, parts that are split off; plain buffers and those
// of mem_alloc.
#pragma once
#include <chrono>
#include <cstdint>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "tutti/communicator.h"

namespace tutti::soak {

/// How a step ended, if it did not end well.
struct Ended {
  /// An error of the library. Its `peer` is a rank of the whole; its text has `named`, which is
  /// that rank's number where the call was made: of a part, another one.
  std::optional<Error> error;
  int named = -1;
  std::string wrong;  // A result that is wrong, or what should not happen.
  std::string call;   // In which step,
  bool part = false;  // and whether only a part that was split off has failed.
};

class Mix {
 public:
  using Time = std::chrono::steady_clock::time_point;

  Mix(Communicator& world, std::uint64_t seed) : world_(world), seed_(seed) {}
  /// The next calls. An error on a part that was split off ends that part alone: the next step is
  /// again one of the whole.
  std::optional<Ended> step();
  std::uint64_t steps() const { return steps_; }
  /// When the last call that was waited for began.
  Time called() const { return called_; }

 private:
  struct Buffer;
  struct Drawn;

  Drawn draw(std::uint64_t most_bytes, int ranks);
  std::uint64_t below(std::uint64_t count) { return random_() % count; }
  Status one(Communicator& comm, std::uint64_t most_bytes);
  Status several(Communicator& comm, bool group);
  Status vector_variant(Communicator& comm);
  Status messages(Communicator& comm);
  Status part();
  void begins() { called_ = std::chrono::steady_clock::now(); }

  Communicator& world_;
  std::uint64_t seed_, steps_ = 0;
  std::mt19937_64 random_;
  Time called_;
  std::string wrong_, call_;
  std::vector<int> ranks_;  // The part whose call failed, by its ranks; empty: the whole.
};

}  // namespace tutti::soak
