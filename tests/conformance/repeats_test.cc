// Calls like the one before, of which the executor looks at little again: as right as any, also
// amid others, and what is wrong with one is still told.
#include <algorithm>

#include "support/catch.h"
#include "support/cluster.h"

namespace tutti::test {
namespace {

/// A call that fits lines, or a packet in a slot.
Case small_case(std::mt19937_64& random, int ranks) {
  constexpr std::size_t kCounts[] = {1, 2, 3, 7, 13, 14, 15, 40, 64, 150};
  return draw_case(random, ranks, kCounts);
}

TEST_CASE("small calls in a row give the reference's bits, wherever their buffers are") {
  const std::uint64_t seed = Catch::rngSeed();
  for (const int ranks : {1, 2, 3, 5}) {
    INFO("seed " << seed << ", " << ranks << " ranks");
    auto comms = Communicator::in_process(ranks, {});
    REQUIRE(comms);
    CHECK(on_all_ranks(*comms, [&](Communicator& comm) -> std::string {
            std::mt19937_64 random(seed);  // The same on every rank.
            Case test;
            for (int call = 0; call < 400; ++call) {
              if (call == 0 || random() % 5 == 0) test = small_case(random, ranks);
              test.in_place = random() % 2 == 0;
              test.mapped = random() % 16 == 0;
              test.misalign = random() % 2 == 0 ? size_of(test.type) : 0;
              if (auto wrong = run_case(comm, test, random()); !wrong.empty()) return wrong;
              if (random() % 32 != 0) continue;
              if (auto met = comm.barrier(); !met) return met.error().to_string();
            }
            return "";
          }) == "");
    leave(*comms);
  }
}

TEST_CASE("a call like the one before but for a buffer that is missing is refused") {
  auto comms = Communicator::in_process(2, {});
  REQUIRE(comms);
  CHECK(on_all_ranks(*comms, [](Communicator& comm) -> std::string {
          float input = 1, output = 0;
          for (int call = 0; call < 5; ++call) {
            if (auto sum = comm.all_reduce(&input, &output, 1, DataType::kFloat32, {}); !sum)
              return sum.error().to_string();
            const auto none = comm.all_reduce(nullptr, &output, 1, DataType::kFloat32, {});
            if (none || none.error().code != Code::kInvalidArgument) return "a null is taken";
          }
          return output == 2 ? "" : "a wrong sum";
        }) == "");
  leave(*comms);
}

TEST_CASE("a call like the one before but for a root that no communicator has is refused") {
  auto comms = Communicator::in_process(2, {});
  REQUIRE(comms);
  CHECK(on_all_ranks(*comms, [](Communicator& comm) -> std::string {
          float value = 1;
          for (const int bad : {1 << 16, -(1 << 16), -1}) {
            if (auto sent = comm.broadcast(&value, &value, 1, DataType::kFloat32, Rank{0}); !sent)
              return sent.error().to_string();
            const auto none = comm.broadcast(&value, &value, 1, DataType::kFloat32, Rank{bad});
            if (none || none.error().code != Code::kInvalidArgument) return "a root is taken";
          }
          return "";
        }) == "");
  leave(*comms);
}

TEST_CASE("ranks of which one repeats its call and one does not are told so") {
  auto comms = Communicator::in_process(2, {});
  REQUIRE(comms);
  CHECK(on_all_ranks(*comms, [](Communicator& comm) -> std::string {
          const float input[2] = {1, 1};
          float output[2] = {};
          for (int call = 0; call < 3; ++call) {
            if (auto sum = comm.all_reduce(input, output, 1, DataType::kFloat32, {}); !sum)
              return sum.error().to_string();
          }
          const std::size_t count = comm.rank().value == 0 ? 1 : 2;
          const auto sum = comm.all_reduce(input, output, count, DataType::kFloat32, {});
          if (sum) return "no error";
          const auto again = comm.all_reduce(input, output, 1, DataType::kFloat32, {});
          return sum.error().code == Code::kMismatch && !again ? "" : sum.error().to_string();
        }) == "");
  leave(*comms);
}

}  // namespace
}  // namespace tutti::test
