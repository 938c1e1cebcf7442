// File: support/mismatches.h: calls that differ between ranks, and what each rank must get then.
#pragma once
#include <array>
#include <chrono>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "tutti/communicator.h"

namespace tutti::test {

inline constexpr std::size_t kMismatchCounts[] = {1, 64, 2000, 20000};

/// A call without the number of elements of a block.
struct Kind {
  Collective collective = Collective::kAllReduce;
  int root = 0;
  DataType type = DataType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  std::size_t more = 0;  // Elements.
  std::string_view algorithm = {};
  bool vector_variant = false, barrier = false;
  friend bool operator==(const Kind&, const Kind&) = default;

  /// How errors begin to name it.
  std::string name(std::size_t count) const {
    if (barrier) return "barrier";
    if (vector_variant)
      return std::string(to_string(collective)) + "_v of " + std::string(to_string(type));
    return std::string(to_string(collective)) + " of " + std::string(std::to_string(count + more)) +
           " " + std::string(to_string(type));
  }
  /// Whether that rank reads no peer's line in a small call.
  bool gives_only(int rank) const {
    const CollectiveTraits traits = traits_of(collective);
    if (is_scan(collective)) return rank == 0;
    return traits.root_input ? rank == root : traits.root_output && rank != root;
  }
};

/// All kinds of calls that so many ranks can make, with several roots, types, operations, counts.
inline std::vector<Kind> all_kinds(int ranks) {
  std::vector<Kind> kinds;
  for (int i = 0; i < kCollectiveCount; ++i) {
    const auto collective = static_cast<Collective>(i);
    const int roots = has_root(collective) ? ranks : 1;
    const auto type = is_scan(collective) ? DataType::kInt32 : DataType::kFloat32;
    for (int root = 0; root < roots; ++root) kinds.push_back({collective, root, type});
  }
  kinds.push_back({.op = ReduceOp::kMax});
  kinds.push_back({.type = DataType::kInt32});
  kinds.push_back({.more = 1});
  kinds.push_back({.more = 2139});  // As far apart as a multiplicative hash did not see.
  kinds.push_back({.algorithm = "^ring"});
  kinds.push_back({.barrier = true});
  kinds.push_back({.collective = Collective::kBroadcast, .more = 2139});
  kinds.push_back({.collective = Collective::kBroadcast, .type = DataType::kInt32});
  kinds.push_back({.collective = Collective::kReduce, .op = ReduceOp::kMax});
  kinds.push_back({.collective = Collective::kAllGather, .vector_variant = true});
  return kinds;
}

/// The results of a rank's call and of the barrier that it called next.
struct Outcome {
  Status first, next;
  bool right = true;  // The output, if the call was right: the root's bytes, or a scan's sums.
  std::chrono::milliseconds took{};

  const Error* error() const { return !first ? &first.error() : !next ? &next.error() : nullptr; }
};

inline Status call_kind(Communicator& comm, const Kind& kind, std::size_t count,
                        const std::byte* input, std::byte* output) {
  if (kind.barrier) return comm.barrier();
  Request request{.collective = kind.collective,
                  .input = input,
                  .output = output,
                  .count = count + kind.more,
                  .type = kind.type,
                  .reduction = kind.op,
                  .root = Rank{kind.root}};
  request.algorithm = kind.algorithm;
  const std::vector<std::size_t> counts(static_cast<std::size_t>(comm.rank_count()), count);
  if (kind.vector_variant) {
    request.vector_variant = true;
    request.output_blocks = {.counts = counts, .offsets = {}};
  }
  return comm.call(request);
}

/// Whether these are int32 sums of what so many ranks give, the first ones.
inline bool are_sums(const std::byte* output, std::size_t count, int ranks) {
  std::uint32_t sum = 0;
  for (int rank = 0; rank < ranks; ++rank)
    sum += 0x01010101U * static_cast<std::uint32_t>(rank + 1);
  for (std::size_t i = 0; i < count; ++i) {
    std::uint32_t one = 0;
    std::memcpy(&one, output + 4 * i, 4);
    if (one != sum) return false;
  }
  return true;
}

/// One rank: meets the others (call 1), calls its kind (call 2), and a barrier.
inline Outcome call_and_barrier(Communicator& comm, const Kind& kind, std::size_t count) {
  const int me = comm.rank().value, ranks = comm.rank_count();
  const std::size_t block = (count + kind.more) * size_of(kind.type);
  std::vector<std::byte> input(block * static_cast<std::size_t>(ranks), std::byte(me + 1));
  std::vector<std::byte> output(block * static_cast<std::size_t>(ranks), std::byte{0xee});
  Outcome outcome;
  if (auto met = comm.barrier(); !met) {
    outcome.first = std::move(met);
    return outcome;
  }
  const auto start = std::chrono::steady_clock::now();
  outcome.first = call_kind(comm, kind, count, input.data(), output.data());
  const CollectiveTraits traits = traits_of(kind.collective);
  if (outcome.first && traits.root_input && me != kind.root) {
    for (std::size_t i = 0; i < block; ++i)
      outcome.right = outcome.right && output[i] == std::byte(kind.root + 1);
  }
  if (outcome.first && is_scan(kind.collective) && has_output(kind.collective, me, 0))
    outcome.right = are_sums(output.data(), count, summed_ranks(kind.collective, me, ranks));
  outcome.next = comm.barrier();
  outcome.took = std::chrono::duration_cast<std::chrono::milliseconds>(
      std::chrono::steady_clock::now() - start);
  return outcome;
}

/// Checks what ranks got if all called `most` except one, which called `other`: empty, or what is
/// wrong.
inline std::string complaint(const Outcome& got, int rank, int odd, const Kind& most,
                             const Kind& other, std::size_t count) {
  const Kind& mine = rank == odd ? other : most;
  const Error* const error = got.error();
  if (error == nullptr) return "no error";
  const std::string text = error->to_string();
  if (error->code != Code::kMismatch) return "another error: " + text;
  if (got.took > std::chrono::seconds(10)) return "late: " + text;
  const auto has = [&](const std::string& part) { return text.find(part) != std::string::npos; };
  if (!has(most.name(count)) || !has(other.name(count)) || !has("call 2"))
    return "does not name both calls: " + text;
  if (!has("rank " + std::to_string(odd))) return "does not name the rank: " + text;
  if (!got.first || mine.gives_only(rank)) return "";
  // Only a rank that waits just for the root may have its data, from a root that made its call; and
  // in a scan one that is below the odd one.
  const bool waited_for_right = is_scan(mine.collective) ? rank < odd
                                                         : traits_of(mine.collective).root_input &&
                                                               (rank == odd) == (mine.root == odd);
  const bool served = waited_for_right && got.right;
  return served ? "" : "ok, and wrong data; then: " + text;
}

}  // namespace tutti::test
