// The members of Communicator that take arguments one by one: each is the collective that its name
// says, with every argument in its place. What collectives do is collectives_test's and
// uneven_test's, which call by requests.
#include <array>
#include <cstring>
#include <functional>
#include <numeric>
#include <vector>

#include "support/catch.h"
#include "support/cluster.h"

namespace tutti::test {
namespace {

constexpr int kRanks = 3;
constexpr auto kType = DataType::kInt32;
using Ints = std::vector<std::int32_t>;

std::vector<Communicator> three_ranks() {
  auto comms = Communicator::in_process(kRanks);
  if (!comms) FAIL(comms.error().to_string());
  return *std::move(comms);
}

/// A rank's call of one member, as the request says.
struct Member {
  Collective collective;
  std::function<Result<Work>(Communicator&, const Request&)> start;
};

const std::array<Member, kCollectiveCount> kStarted{{
    {Collective::kAllReduce,
     [](Communicator& comm, const Request& of) {
       return comm.start_all_reduce(of.input, of.output, of.count, of.type, of.reduction);
     }},
    {Collective::kReduceScatter,
     [](Communicator& comm, const Request& of) {
       return comm.start_reduce_scatter(of.input, of.output, of.count, of.type, of.reduction);
     }},
    {Collective::kAllGather,
     [](Communicator& comm, const Request& of) {
       return comm.start_all_gather(of.input, of.output, of.count, of.type);
     }},
    {Collective::kBroadcast,
     [](Communicator& comm, const Request& of) {
       return comm.start_broadcast(of.input, of.output, of.count, of.type, of.root);
     }},
    {Collective::kReduce,
     [](Communicator& comm, const Request& of) {
       return comm.start_reduce(of.input, of.output, of.count, of.type, of.reduction, of.root);
     }},
    {Collective::kGather,
     [](Communicator& comm, const Request& of) {
       return comm.start_gather(of.input, of.output, of.count, of.type, of.root);
     }},
    {Collective::kScatter,
     [](Communicator& comm, const Request& of) {
       return comm.start_scatter(of.input, of.output, of.count, of.type, of.root);
     }},
    {Collective::kAllToAll,
     [](Communicator& comm, const Request& of) {
       return comm.start_all_to_all(of.input, of.output, of.count, of.type);
     }},
    {Collective::kScan,
     [](Communicator& comm, const Request& of) {
       return comm.start_scan(of.input, of.output, of.count, of.type, of.reduction);
     }},
    {Collective::kExclusiveScan,
     [](Communicator& comm, const Request& of) {
       return comm.start_exclusive_scan(of.input, of.output, of.count, of.type, of.reduction);
     }},
}};

TEST_CASE("every started collective against the reference") {
  const std::uint64_t seed = Catch::rngSeed();
  INFO("--rng-seed " << seed);
  auto comms = three_ranks();
  for (const Member& member : kStarted) {
    const Case test{.collective = member.collective,
                    .type = DataType::kFloat32,
                    .op = ReduceOp::kPreMulSum,  // The operation and each rank's scale count.
                    .count = 5000,
                    .ranks = kRanks,
                    .root = 1};
    INFO(test.to_string());
    CHECK(on_all_ranks(comms, [&](Communicator& comm) -> std::string {
            const int me = comm.rank().value;
            std::vector<Buffer> inputs(kRanks, Buffer(test.input_bytes()));
            for (int rank = 0; rank < kRanks; ++rank)
              fill(test, rank, seed, inputs[static_cast<std::size_t>(rank)].data());
            Buffer output(test.output_bytes());
            Request request{test.collective, inputs[static_cast<std::size_t>(me)].data(),
                            output.data(), test.count, test.type};
            request.reduction = Reduction::pre_mul_sum(scale_of(me));
            request.root = Rank{test.root};
            const Buffer want = expected(test, me, inputs);
            auto work = member.start(comm, request);
            if (!work) return work.error().to_string();
            if (auto status = work->wait(); !status) return status.error().to_string();
            return want.empty() || output == want ? "" : "a wrong result";
          }) == "");
  }
}

// With blocks of different sizes: rank r's has r + 1 elements, and an element's value says whose it
// is, which block, and where in it.
constexpr std::array<std::size_t, kRanks> kCounts{1, 2, 3};
constexpr std::array<std::size_t, kRanks> kGaps{1, 3, 6};  // Where blocks start, each after a gap.
constexpr std::size_t kWithGaps = 9;
constexpr int kRoot = 1;

std::int32_t value(int rank, std::size_t block, std::size_t i) {
  return 100 * rank + 10 * static_cast<int>(block) + static_cast<int>(i);
}

/// A block for each rank, of so many elements, at these offsets; -1 where there is none.
Ints blocks_of(const std::array<std::size_t, kRanks>& counts,
               const std::array<std::size_t, kRanks>& offsets,
               const std::function<std::int32_t(std::size_t block, std::size_t i)>& what) {
  Ints all(kWithGaps, -1);
  for (std::size_t block = 0; block < kRanks; ++block)
    for (std::size_t i = 0; i < counts[block]; ++i) all[offsets[block] + i] = what(block, i);
  return all;
}

/// Runs body(comm, rank, output) on every rank; its output has to be wanted(rank).
void check_vector(const std::function<Status(Communicator&, std::size_t, std::int32_t*)>& body,
                  const std::function<Ints(std::size_t)>& wanted) {
  auto comms = three_ranks();
  CHECK(on_all_ranks(comms, [&](Communicator& comm) -> std::string {
          const auto me = static_cast<std::size_t>(comm.rank().value);
          Ints output(kWithGaps, -1);
          if (auto status = body(comm, me, output.data()); !status)
            return status.error().to_string();
          return output == wanted(me) ? "" : "rank " + std::to_string(me) + " has a wrong result";
        }) == "");
}

/// What a rank gives or gets as one block: it stands at the front.
Ints alone(std::size_t count, const std::function<std::int32_t(std::size_t i)>& what) {
  Ints all(kWithGaps, -1);
  for (std::size_t i = 0; i < count; ++i) all[i] = what(i);
  return all;
}

const Blocks kBlocks{kCounts, kGaps};

/// Rank `me`'s own block, and one for each rank.
Ints own_block(std::size_t me) {
  return alone(kCounts[me], [me](std::size_t i) { return value(static_cast<int>(me), me, i); });
}
Ints blocks_from(int rank) {
  return blocks_of(kCounts, kGaps,
                   [rank](std::size_t block, std::size_t i) { return value(rank, block, i); });
}
Ints all_own_blocks() {
  return blocks_of(kCounts, kGaps, [](std::size_t block, std::size_t i) {
    return value(static_cast<int>(block), block, i);
  });
}

TEST_CASE("all_gather_v and gather_v") {
  check_vector(
      [](Communicator& comm, std::size_t me, std::int32_t* output) {
        return comm.all_gather_v(own_block(me).data(), output, kBlocks, kType);
      },
      [](std::size_t) { return all_own_blocks(); });
  check_vector(
      [](Communicator& comm, std::size_t me, std::int32_t* output) {
        const bool root = comm.rank().value == kRoot;
        return comm.gather_v(own_block(me).data(), kCounts[me], root ? output : nullptr,
                             root ? kBlocks : Blocks{}, kType, Rank{kRoot});
      },
      [](std::size_t me) { return me == kRoot ? all_own_blocks() : Ints(kWithGaps, -1); });
}

TEST_CASE("reduce_scatter_v and scatter_v") {
  const auto of_rank = [](int rank) {
    return [rank](std::size_t me) {
      return alone(kCounts[me], [&](std::size_t i) { return value(rank, me, i); });
    };
  };
  check_vector(
      [](Communicator& comm, std::size_t, std::int32_t* output) {
        return comm.reduce_scatter_v(blocks_from(comm.rank().value).data(), kBlocks, output, kType,
                                     ReduceOp::kMax);
      },
      of_rank(kRanks - 1));
  check_vector(
      [](Communicator& comm, std::size_t me, std::int32_t* output) {
        const bool root = comm.rank().value == kRoot;
        return comm.scatter_v(root ? blocks_from(kRoot).data() : nullptr, root ? kBlocks : Blocks{},
                              output, kCounts[me], kType, Rank{kRoot});
      },
      of_rank(kRoot));
}

TEST_CASE("all_to_all_v") {
  // Rank r sends s + 1 elements to rank s, and so gets r + 1 from each, which follow one another.
  const auto each = [](std::size_t me) {
    std::array<std::size_t, kRanks> counts;
    counts.fill(kCounts[me]);
    return counts;
  };
  check_vector(
      [&](Communicator& comm, std::size_t me, std::int32_t* output) {
        const auto counts = each(me);
        return comm.all_to_all_v(blocks_from(comm.rank().value).data(), kBlocks, output,
                                 {counts, {}}, kType);
      },
      [&](std::size_t me) {
        const std::size_t one = kCounts[me];
        return blocks_of(each(me), {0, one, 2 * one}, [me](std::size_t from, std::size_t i) {
          return value(static_cast<int>(from), me, i);
        });
      });
}

}  // namespace
}  // namespace tutti::test
