// File: support/cluster.h: ranks as threads, their data, and what the answer has to be, bit for
// bit.
#pragma once
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "kernels/host/reduce.h"
#include "kernels/host/wire.h"
#include "tutti/communicator.h"

namespace tutti::test {

using Buffer = std::vector<std::byte>;

/// One call, as all ranks make it.
struct Case {
  Collective collective = Collective::kAllReduce;
  DataType type = DataType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  std::size_t count = 0;
  int ranks = 1;
  int root = 0;
  bool in_place = false;
  bool mapped = false;              // Buffers from mem_alloc.
  std::size_t misalign = 0;         // Bytes that buffers are off a cache line.
  bool exact = false;               // Data whose sums are exact in any order (for relaxed plans).
  std::string_view algorithm = {};  // For this call alone.
  Wire wire = {};
  std::uint64_t wire_call = 0;  // The how manieth call with a wire of its communicator it is.
  std::string to_string() const {
    return std::string(tutti::to_string(collective)) + " " + std::string(tutti::to_string(type)) +
           " " + std::string(tutti::to_string(op)) + " count " + std::to_string(count) + " ranks " +
           std::to_string(ranks) + " root " + std::to_string(root) + (in_place ? " in place" : "") +
           (mapped ? " mapped" : "") + " misalign " + std::to_string(misalign) +
           (algorithm.empty() ? "" : " by " + std::string(algorithm)) +
           (wire.is_plain() ? "" : " as " + tutti::to_string(wire));
  }
  std::size_t input_bytes() const {
    return count * size_of(type) *
           static_cast<std::size_t>(traits_of(collective).input_each ? ranks : 1);
  }
  std::size_t output_bytes() const {
    return count * size_of(type) *
           static_cast<std::size_t>(traits_of(collective).output_each ? ranks : 1);
  }
};

inline double scale_of(int rank) { return 1.0 + 0.5 * rank; }

/// Converts through the library's own arithmetic: a partial (float32 or the type itself) to the
/// type. Numbers use all bits of their type, so that each order of a sum rounds in its own way.
inline void fill(const Case& test, int rank, std::uint64_t seed, std::byte* data) {
  std::mt19937_64 random(seed * 1000003 + static_cast<std::uint64_t>(rank));
  const std::size_t elements = test.input_bytes() / size_of(test.type);
  const DataType wide = accumulator_of(test.type);
  for (std::size_t i = 0; i < elements; ++i) {
    std::byte value[8] = {};
    const auto small =
        static_cast<std::int64_t>(random() % 4);  // Exact in every type, in any order.
    const double real = test.exact
                            ? static_cast<double>(small)
                            : std::ldexp(static_cast<double>(random() % 2'000'001) / 1000 - 1000,
                                         static_cast<int>(random() % 9) - 12);
    if (wide == DataType::kFloat32) {
      const auto x = static_cast<float>(real);
      std::memcpy(value, &x, sizeof(x));
    } else if (wide == DataType::kFloat64) {
      std::memcpy(value, &real, sizeof(real));
    } else {
      const std::uint64_t x = test.exact ? static_cast<std::uint64_t>(small) : random();
      std::memcpy(value, &x, sizeof(x));
    }
    // One partial to one contribution: rounds to the type.
    const kernels::Source source{value, Form::kPartial, false};
    const kernels::Target target{data + i * size_of(test.type), Form::kContribution};
    kernels::reduce_reference({test.type, ReduceOp::kSum, 1, 1, 1}, std::span(&source, 1),
                              std::span(&target, 1), 1);
  }
}

/// The output that `rank` must get from `inputs`.
inline Buffer expected(const Case& test, int rank, const std::vector<Buffer>& inputs) {
  Buffer result(test.output_bytes());
  const std::size_t block = test.count * size_of(test.type);
  const CollectiveTraits traits = traits_of(test.collective);
  if (!tutti::has_output(test.collective, rank, test.root)) return {};
  const std::size_t offset = traits.input_each ? static_cast<std::size_t>(rank) * block : 0;
  if (!traits.reduces()) {
    for (std::size_t r = 0; r < inputs.size() && block != 0; ++r) {
      if (traits.root_input && static_cast<int>(r) != test.root) continue;
      std::memcpy(result.data() + (traits.output_each ? r * block : 0), inputs[r].data() + offset,
                  block);
    }
    return result;
  }
  const std::size_t wide = element_bytes(test.type, Form::kPartial);
  std::vector<Buffer> scaled;
  std::vector<kernels::Source> sources;
  const auto summed = static_cast<std::size_t>(
      summed_ranks(test.collective, rank, static_cast<int>(inputs.size())));
  for (std::size_t r = 0; r < summed; ++r) {
    if (test.op != ReduceOp::kPreMulSum) {
      sources.push_back({inputs[r].data() + offset, Form::kContribution, false});
      continue;
    }
    scaled.emplace_back(test.count * wide);
    const double scale = scale_of(static_cast<int>(r));
    const kernels::Source source{inputs[r].data() + offset, Form::kContribution, true};
    const kernels::Target target{scaled.back().data(), Form::kPartial};
    kernels::reduce_reference(
        {test.type, test.op, test.ranks, scale, static_cast<std::int64_t>(scale)},
        std::span(&source, 1), std::span(&target, 1), test.count);
    sources.push_back({scaled.back().data(), Form::kPartial, false});
  }
  const kernels::Target target{result.data(), Form::kResult};
  kernels::reduce_reference({test.type, test.op, test.ranks, 1, 1}, sources, std::span(&target, 1),
                            test.count);
  return result;
}

/// Rounds float32 values that begin at an element of the message, as `source` does.
inline void round_to_wire(const Case& test, std::uint32_t source, std::uint64_t element,
                          std::byte* data) {
  Buffer scales(test.count / kernels::kWireBlock + 1);
  kernels::encode_reference(test.wire, {.from = data,
                                        .count = test.count,
                                        .stream = kernels::stream_key(test.wire_call, source),
                                        .element = element,
                                        .scales = scales.data(),
                                        .decoded = data});
}

/// The same of a call with a wire: each input is rounded, and the result.
inline Buffer expected_on_wire(Case test, int rank, std::vector<Buffer> inputs) {
  const CollectiveTraits traits = traits_of(test.collective);
  const std::size_t block = test.count * sizeof(float);
  const auto n = static_cast<std::uint64_t>(test.ranks);
  for (std::uint64_t r = 0; r < n; ++r) {
    Buffer& input = inputs[r];
    if (test.op == ReduceOp::kPreMulSum && traits.reduces()) {
      const kernels::Source source{input.data(), Form::kContribution, true};
      const kernels::Target target{input.data(), Form::kPartial};
      const double scale = scale_of(static_cast<int>(r));
      kernels::reduce_reference({test.type, test.op, test.ranks, scale, 1}, std::span(&source, 1),
                                std::span(&target, 1), input.size() / sizeof(float));
    }
    for (std::uint64_t b = 0; b < (traits.input_each ? n : 1); ++b) {
      const std::uint64_t of_message = traits.output_each ? r * (traits.input_each ? n : 1) + b : b;
      round_to_wire(test, static_cast<std::uint32_t>(r), of_message * test.count,
                    input.data() + b * block);
    }
  }
  if (test.op == ReduceOp::kPreMulSum) test.op = ReduceOp::kSum;
  Buffer result = expected(test, rank, inputs);
  if (traits.reduces() && !result.empty()) {
    const std::uint64_t first = traits.input_each ? static_cast<std::uint64_t>(rank) : 0;
    round_to_wire(test, kernels::kResultSource, first * test.count, result.data());
  }
  return result;
}

/// Memory for one buffer of one rank: from mem_alloc or from the heap, a little off a cache line.
class Memory {
 public:
  Memory(std::size_t bytes, bool mapped, std::size_t misalign) : mapped_(mapped) {
    const std::size_t total = bytes + misalign + 64;
    if (mapped) {
      auto allocated = mem_alloc(total);
      if (allocated) base_ = static_cast<std::byte*>(*allocated);
    } else {
      base_ = static_cast<std::byte*>(std::aligned_alloc(64, (total + 63) / 64 * 64));
    }
    data_ = base_ + misalign;
  }
  ~Memory() {
    if (mapped_)
      (void)mem_free(base_);
    else
      std::free(base_);
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  std::byte* data() const { return data_; }

 private:
  bool mapped_;
  std::byte* base_ = nullptr;
  std::byte* data_ = nullptr;
};

/// A rank's request for the case.
inline Request request_of(const Communicator& comm, const Case& test, const void* input,
                          void* output) {
  Reduction reduction(test.op);
  reduction.scale = scale_of(comm.rank().value);
  Request request{test.collective, input,     output,         test.count,
                  test.type,       reduction, Rank{test.root}};
  request.algorithm = test.algorithm;
  request.wire = test.wire;
  return request;
}

inline Status call(Communicator& comm, const Case& test, const void* input, void* output) {
  return comm.call(request_of(comm, test, input, output));
}

/// Runs the case on one rank of `comm` and compares bits. Empty, or what was wrong.
inline std::string run_case(Communicator& comm, const Case& test, std::uint64_t seed) {
  const int me = comm.rank().value;
  std::vector<Buffer> inputs(static_cast<std::size_t>(test.ranks), Buffer(test.input_bytes()));
  for (int rank = 0; rank < test.ranks; ++rank)
    fill(test, rank, seed, inputs[static_cast<std::size_t>(rank)].data());
  const Buffer want =
      test.wire.is_plain() ? expected(test, me, inputs) : expected_on_wire(test, me, inputs);
  const std::size_t block = test.count * size_of(test.type);
  const std::size_t own = static_cast<std::size_t>(me) * block;
  Memory output(std::max(test.input_bytes(), test.output_bytes()), test.mapped, test.misalign);
  Memory separate(test.input_bytes(), test.mapped, test.misalign);
  std::byte* in = separate.data();
  std::byte* out = output.data();
  const CollectiveTraits traits = traits_of(test.collective);
  if (test.in_place) {
    in = output.data() + (traits.output_each && !traits.input_each ? own : 0);
    if (traits.input_each && !traits.output_each) out = output.data() + own;
  }
  const bool has_input = tutti::has_input(test.collective, me, test.root);
  const bool has_output = tutti::has_output(test.collective, me, test.root);
  const Buffer& mine = inputs[static_cast<std::size_t>(me)];
  if (!mine.empty() && has_input) std::memcpy(in, mine.data(), mine.size());
  // A buffer that a rank does not have is not looked at. Every other time the rank passes null for
  // it.
  if (!has_input && seed % 2 == 0) in = nullptr;
  if (!has_output && seed % 2 == 0) out = nullptr;
  if (auto status = call(comm, test, in, out); !status)
    return test.to_string() + ": " + status.error().to_string();
  if (!want.empty() && std::memcmp(out, want.data(), want.size()) != 0) {
    std::size_t at = 0;
    while (out[at] == want[at]) ++at;
    return test.to_string() + ": rank " + std::to_string(me) + " differs at byte " +
           std::to_string(at);
  }
  const bool input_kept =
      test.in_place || mine.empty() || !has_input || std::memcmp(in, mine.data(), mine.size()) == 0;
  return input_kept ? ""
                    : test.to_string() + ": rank " + std::to_string(me) + "'s input was changed";
}

/// A case of any collective, with one of these counts.
inline Case draw_case(std::mt19937_64& random, int ranks, std::span<const std::size_t> counts) {
  Case test;
  test.collective = static_cast<Collective>(random() % kCollectiveCount);
  test.type = random() % 2 == 0 ? DataType::kFloat32 : DataType::kUint8;
  test.op = random() % 4 == 0 ? ReduceOp::kPreMulSum : ReduceOp::kSum;
  test.ranks = ranks;
  test.count = counts[random() % counts.size()];
  test.root = static_cast<int>(random() % static_cast<unsigned>(ranks));
  return test;
}

/// Runs `body(comm)` on every rank, each on a thread of its own; returns all complaints.
template <class Body>
std::string on_all_ranks(std::vector<Communicator>& comms, Body body) {
  std::vector<std::string> complaints(comms.size());
  {
    std::vector<std::jthread> threads;
    for (std::size_t rank = 0; rank < comms.size(); ++rank) {
      threads.emplace_back([&, rank] { complaints[rank] = body(comms[rank]); });
    }
  }
  std::string all;
  for (const std::string& complaint : complaints) {
    if (!complaint.empty()) all += (all.empty() ? "" : "\n") + complaint;
  }
  return all;
}

/// All leave at once, as the ranks of a job do: over some networks each waits for the others' word.
inline void leave(std::vector<Communicator>& comms) {
  std::vector<std::jthread> threads;
  for (Communicator& comm : comms) threads.emplace_back([one = std::move(comm)] {});
}

}  // namespace tutti::test
