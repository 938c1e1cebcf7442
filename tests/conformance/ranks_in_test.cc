// Which rank is which in two communicators that come from one, and duplicates.
#include <algorithm>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "support/catch.h"
#include "support/cluster.h"
#include "tutti/rendezvous.h"

namespace tutti::test {
namespace {

/// Each rank's number in the first communicator, by rank in `comm`: told by the ranks themselves.
std::vector<int> told(Communicator& comm, int number) {
  std::vector<int> all(static_cast<std::size_t>(comm.rank_count()), -2);
  if (!comm.all_gather(&number, all.data(), 1, DataType::kInt32)) all.clear();
  return all;
}

/// Compares with what the ranks of both say. Empty, or what is wrong.
std::string check_ranks(const Communicator& mine, const std::vector<int>& here,
                        const Communicator& other, const std::vector<int>& there) {
  const auto ranks = mine.ranks_in(other);
  if (!ranks) return ranks.error().to_string();
  if (ranks->size() != here.size() || here.empty() || there.empty()) return "another count";
  for (std::size_t rank = 0; rank < here.size(); ++rank) {
    const auto found = std::ranges::find(there, here[rank]);
    const int want = found == there.end() ? -1 : static_cast<int>(found - there.begin());
    if ((*ranks)[rank].value != want)
      return "rank " + std::to_string(rank) + " is " + std::to_string((*ranks)[rank].value) +
             " there, not " + std::to_string(want);
  }
  return "";
}

TEST_CASE("ranks are found again in parts of parts, duplicates and what was shrunk") {
  const std::uint64_t seed = Catch::rngSeed();
  INFO("--rng-seed " << seed);
  auto comms = Communicator::in_process(7, {});
  REQUIRE(comms);
  CHECK(on_all_ranks(*comms, [&](Communicator& whole) -> std::string {
          const int me = whole.rank().value;
          std::mt19937_64 random(seed);  // The same on every rank.
          // By rank of the whole.
          const auto draw = [&](unsigned below) {
            std::vector<int> all;
            for (int rank = 0; rank < 7; ++rank) all.push_back(static_cast<int>(random() % below));
            return all[static_cast<std::size_t>(me)];
          };
          auto one = whole.split(draw(2), draw(100));
          auto other = whole.split(draw(2), draw(100));
          if (!one || !other) return "a split failed";
          auto part = one->split(draw(2), draw(100));
          auto copy = other->duplicate();
          if (!part || !copy) return "a part or a duplicate failed";
          const Rank out{copy->rank_count() - 1};
          const bool shrinks = copy->rank_count() > 1;
          std::vector<const Communicator*> made{&whole, &*one, &*other, &*part, &*copy};
          std::vector<std::vector<int>> says{told(whole, me), told(*one, me), told(*other, me),
                                             told(*part, me), told(*copy, me)};
          std::optional<Communicator> less;
          if (shrinks && copy->rank() != out) {
            auto shrunk = copy->shrink(std::span(&out, 1));
            if (!shrunk) return shrunk.error().to_string();
            less.emplace(std::move(shrunk->communicator));
            made.push_back(&*less);
            says.push_back(told(*less, me));
          }
          for (std::size_t a = 0; a < made.size(); ++a) {
            for (std::size_t b = 0; b < made.size(); ++b) {
              if (auto wrong = check_ranks(*made[a], says[a], *made[b], says[b]); !wrong.empty())
                return std::to_string(a) + " in " + std::to_string(b) + ": " + wrong;
            }
          }
          if (auto met = whole.barrier(); !met) return met.error().to_string();
          return "";
        }) == "");
  leave(*comms);
}

TEST_CASE("a communicator that has grown has the old ranks, and new ones") {
  const auto rendezvous = memory_rendezvous();
  auto comms = Communicator::in_process(2, {});
  REQUIRE(comms);
  std::vector<std::string> said(3);
  {
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < 3; ++rank) {
      threads.emplace_back([&, rank, at = static_cast<std::size_t>(rank)] {
        auto grown = rank < 2 ? (*comms)[at].grow(*rendezvous, 3)
                              : Communicator::create(*rendezvous, Rank{2}, 3);
        if (!grown) {
          said[at] = grown.error().to_string();
          return;
        }
        if (rank < 2) {
          const auto ranks = grown->ranks_in((*comms)[at]);
          if (!ranks || *ranks != std::vector{Rank{0}, Rank{1}, Rank{-1}}) said[at] = "others";
        }
        (void)grown->barrier();
      });
    }
  }
  CHECK(said == std::vector<std::string>(3));
}

TEST_CASE("strangers have no ranks in common, though they are of one process") {
  auto some = Communicator::in_process(2, {}), others = Communicator::in_process(2, {});
  REQUIRE(some);
  REQUIRE(others);
  const auto ranks = (*some)[0].ranks_in((*others)[0]);
  REQUIRE(ranks);
  CHECK(*ranks == std::vector{Rank{-1}, Rank{-1}});
}

TEST_CASE("calls on a duplicate do not mix with those on the first") {
  auto comms = Communicator::in_process(2, {});
  REQUIRE(comms);
  CHECK(on_all_ranks(*comms, [](Communicator& comm) -> std::string {
          auto copy = comm.duplicate();
          if (!copy) return copy.error().to_string();
          // The ranks make the two calls in different orders.
          const int one = 1, two = 10;
          int sum_one = 0, sum_two = 0;
          const auto start = [](Communicator& on, const int& in, int& out) {
            return on.start_all_reduce(&in, &out, 1, DataType::kInt32, {});
          };
          const bool first = comm.rank().value == 0;
          auto a = first ? start(comm, one, sum_one) : start(*copy, two, sum_two);
          auto b = first ? start(*copy, two, sum_two) : start(comm, one, sum_one);
          if (!a || !b || !a->wait() || !b->wait()) return "a call failed";
          return sum_one == 2 && sum_two == 20 ? "" : "they have mixed";
        }) == "");
  leave(*comms);
}

}  // namespace
}  // namespace tutti::test
