// File: support/net/verbs_cases.h: the duties of links between RDMA devices, real ones or not:
// order, room, places, ends and faults. The file that includes it says which devices: fabric().
#pragma once
#include <array>
#include <chrono>
#include <cstring>
#include <optional>
#include <random>

#include "support/catch.h"
#include "support/net/verbs_network.h"

namespace tutti::test {

/// At least three devices, alike.
VerbsFabric fabric();
/// How often rails are broken: what a network needs to notice may be seconds.
extern const unsigned kBreakingRounds;

namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr std::size_t kPlaces = 8, kPlaceBytes = 65536;
constexpr auto kLongest = 60s;  // Only ends what hangs.

/// The byte at `at` of the frame with that number from that rank.
std::byte content(int from, std::uint32_t number, std::size_t at) {
  return static_cast<std::byte>((static_cast<std::size_t>(from) * 131 + number * 31 + at * 7) %
                                251);
}

/// The frames that a rank gets from another one. Long payloads belong into its replica, at
/// `position`.
class Sink final : public net::FrameSink {
 public:
  explicit Sink(std::span<std::byte> replica) : replica_(replica) {}
  Result<std::optional<std::byte*>> place(const net::FrameHeader& header) override {
    if (header.bytes <= verbs::kShortBytes) return std::optional(short_of(header));
    return std::optional(replica_.data() + header.position + shift);
  }
  Status arrived(const net::FrameHeader& header) override {
    const std::byte* const from =
        header.bytes <= verbs::kShortBytes ? short_of(header) : replica_.data() + header.position;
    bytes.assign(from, from + header.bytes);
    if (check) check(header, bytes);
    ++count;
    return ok();
  }
  std::uint32_t count = 0;
  std::size_t shift = 0;
  std::vector<std::byte> bytes;
  std::function<void(const net::FrameHeader&, const std::vector<std::byte>&)> check;

 private:
  std::span<std::byte> replica_;
  /// Rails announce later what came early.
  std::byte* short_of(const net::FrameHeader& header) {
    return shorts_[header.channel % shorts_.size()].data();
  }
  std::vector<std::array<std::byte, verbs::kShortBytes>> shorts_{net::Carrier::kMostQueued};
};

/// One look at all peers of a rank; the first error.
Status progress(const VerbsRank& rank, std::vector<std::unique_ptr<Sink>>& sinks) {
  std::vector<bool> ready(sinks.size());
  rank.network->look(ready);
  for (std::size_t peer = 0; peer < sinks.size(); ++peer) {
    auto* const carrier = rank.network->carrier(static_cast<int>(peer));
    if (carrier == nullptr) continue;
    TUTTI_TRY(const bool moved, carrier->progress(*sinks[peer]));
    (void)moved;
  }
  return ok();
}

std::vector<std::unique_ptr<Sink>> sinks_of(const VerbsRank& rank, std::size_t ranks) {
  std::vector<std::unique_ptr<Sink>> sinks;
  while (sinks.size() < ranks) sinks.push_back(std::make_unique<Sink>(rank.replica.span()));
  return sinks;
}

void require_joined(const std::vector<std::unique_ptr<VerbsRank>>& ranks) {
  for (const auto& rank : ranks) {
    INFO(rank->error);
    REQUIRE(rank->network != nullptr);
  }
}

/// The error of one of two ranks, which then forgets the other, as a link does.
std::string error_of(const std::vector<std::unique_ptr<VerbsRank>>& ranks, std::size_t rank) {
  auto sinks = sinks_of(*ranks[rank], ranks.size());
  const auto end = Clock::now() + kLongest;
  while (Clock::now() < end) {
    const Status status = progress(*ranks[rank], sinks);
    if (status) {
      ranks[rank]->network->sleep(20ms);
      continue;
    }
    ranks[rank]->network->forget(1 - static_cast<int>(rank));
    return status.error().what;
  }
  return "no error";
}

// A slot of a ring: written again only when the receiver is done with it, as rings see to.
struct Traffic {
  std::array<std::atomic<std::uint32_t>, 16> taken{};  // By sender * 4 + receiver.
};

/// Sends `count` frames of random sizes to each peer while it receives theirs; between looks
/// `meanwhile`, if there is one.
std::string exchange_frames(const VerbsRank& rank, int me, int ranks, std::uint32_t count,
                            std::uint64_t seed, Traffic& traffic,
                            const std::function<void()>& meanwhile = {}) {
  auto sinks = sinks_of(rank, static_cast<std::size_t>(ranks));
  std::string wrong;
  for (int from = 0; from < ranks; ++from) {
    Sink& sink = *sinks[static_cast<std::size_t>(from)];
    sink.check = [&, from](const net::FrameHeader& header, const std::vector<std::byte>& bytes) {
      if (header.channel != sink.count) wrong = "a frame is out of order";
      for (std::size_t at = 0; at < bytes.size() && wrong.empty(); ++at) {
        if (bytes[at] != content(from, header.channel, at))
          wrong = "frame " + std::to_string(header.channel) + " differs at " + std::to_string(at);
      }
      traffic.taken[static_cast<std::size_t>(from * 4 + me)] = header.channel + 1;
    };
  }
  std::mt19937_64 random(seed + static_cast<std::uint64_t>(me));
  std::vector<std::uint32_t> sent(static_cast<std::size_t>(ranks));
  const auto end = Clock::now() + kLongest;
  const auto done = [&] {
    for (int peer = 0; peer < ranks; ++peer) {
      const auto at = static_cast<std::size_t>(peer);
      if (peer != me && (sent[at] != count || sinks[at]->count != count)) return false;
      if (peer != me && traffic.taken[static_cast<std::size_t>(me * 4 + peer)] != count)
        return false;
    }
    return true;
  };
  while (!done() && wrong.empty()) {
    if (Clock::now() > end) return "it hangs";
    for (int peer = 0; peer < ranks; ++peer) {
      const auto at = static_cast<std::size_t>(peer);
      if (peer == me || sent[at] == count) continue;
      const std::uint32_t number = sent[at];
      if (number >= traffic.taken[static_cast<std::size_t>(me * 4 + peer)] + kPlaces) continue;
      if (rank.network->carrier(peer)->held() == net::Carrier::kMostQueued) continue;
      const std::size_t shape = random() % 4;
      const std::size_t bytes = shape == 0   ? 0
                                : shape == 1 ? random() % verbs::kShortBytes + 1
                                : shape == 2 ? verbs::kShortBytes + 1
                                             : random() % kPlaceBytes + 1;
      // Each two ranks have places of their own.
      const auto way = static_cast<std::size_t>(me * ranks + peer);
      const std::size_t position = (way * kPlaces + number % kPlaces) * kPlaceBytes;
      const auto payload = rank.near.span().subspan(position, bytes);
      for (std::size_t i = 0; i < bytes; ++i) payload[i] = content(me, number, i);
      // At the peer it lies where it lies here.
      rank.network->carrier(peer)->send({.bytes = static_cast<std::uint32_t>(bytes),
                                         .kind = 1,
                                         .channel = number,
                                         .position = position},
                                        payload);
      ++sent[at];
    }
    if (const Status status = progress(rank, sinks); !status) return status.error().what;
    if (random() % 16 == 0) rank.network->sleep(2ms);
    if (meanwhile) meanwhile();
  }
  return wrong;
}

/// Ranks on hosts of their own, which have all devices.
VerbsOptions with_rails(int ranks, const std::function<std::string(int rank)>& devices = {}) {
  const std::string all = fabric().prefix + "*";
  return {.ranks = ranks,
          .bytes = static_cast<std::size_t>(ranks * ranks) * kPlaces * kPlaceBytes,
          .options = {.spread_bytes = 4096},
          .one_host = false,
          .devices = devices ? devices : [all](int) { return all; }};
}

void break_link(const VerbsRank& rank, int peer, std::size_t rail, std::size_t pair) {
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_ERR;
  ibv_qp* const broken = rank.network->link(peer, rail)->pair(pair);
  if (broken != nullptr) (void)verbs::library().modify_qp(broken, &attributes, IBV_QP_STATE);
}

}  // namespace

TEST_CASE("frames of all sizes arrive in order, each with its own bytes") {
  const std::uint64_t seed = Catch::rngSeed();
  for (const int count : {2, 3}) {
    for (const std::size_t pairs : {std::size_t{1}, std::size_t{2}, verbs::kMostPairs}) {
      INFO(count << " ranks, " << pairs << " queue pairs, --rng-seed " << seed);
      const auto ranks = join_verbs(
          fabric(), {.ranks = count,
                     .bytes = static_cast<std::size_t>(count * count) * kPlaces * kPlaceBytes,
                     .options = {.pairs = pairs}});
      require_joined(ranks);
      Traffic traffic;
      std::vector<std::string> wrong(ranks.size());
      std::vector<std::jthread> threads;
      for (std::size_t me = 0; me < ranks.size(); ++me) {
        threads.emplace_back([&, me] {
          wrong[me] = exchange_frames(*ranks[me], static_cast<int>(me), count, 300, seed, traffic);
        });
      }
      threads.clear();
      for (const std::string& one : wrong) CHECK(one == "");
    }
  }
}

TEST_CASE("long frames go over all rails, and keep their order and bytes") {
  const std::uint64_t seed = Catch::rngSeed();
  INFO("--rng-seed " << seed);
  const auto ranks = join_verbs(fabric(), with_rails(2));
  require_joined(ranks);
  REQUIRE(ranks[0]->network->rail_count() == 3);
  Traffic traffic;
  std::array<std::string, 2> wrong;
  {
    std::jthread other([&] { wrong[1] = exchange_frames(*ranks[1], 1, 2, 1200, seed, traffic); });
    wrong[0] = exchange_frames(*ranks[0], 0, 2, 1200, seed, traffic);
  }
  for (const std::string& one : wrong) CHECK(one == "");
  for (std::size_t rail = 0; rail < 3; ++rail)
    CHECK(ranks[0]->network->link(1, rail)->bytes_given() > 4 * kPlaceBytes);
}

TEST_CASE("rails break at any moment, and the rest carries on, with every byte") {
  const std::uint64_t seed = Catch::rngSeed();
  std::mt19937_64 random(seed);
  for (unsigned round = 0; round < kBreakingRounds; ++round) {
    INFO("round " << round << ", --rng-seed " << seed);
    const auto ranks = join_verbs(fabric(), with_rails(2));
    require_joined(ranks);
    // By each rank: after how many looks, and which.
    struct Break {
      std::uint64_t after, rail, pair;
    };
    std::array<std::array<Break, 2>, 2> breaks{};
    const std::size_t kept = random() % 3;
    for (auto& of_rank : breaks) {
      for (std::size_t i = 0; i < 2; ++i)
        of_rank[i] = {random() % 2000, (kept + 1 + i) % 3, random() % verbs::kPairs};
    }
    Traffic traffic;
    std::array<std::string, 2> wrong;
    const auto work = [&](std::size_t me) {
      std::uint64_t looks = 0;
      wrong[me] =
          exchange_frames(*ranks[me], static_cast<int>(me), 2, 400, seed + round, traffic, [&] {
            ++looks;
            for (const Break& one : breaks[me]) {
              if (looks == one.after)
                break_link(*ranks[me], static_cast<int>(1 - me), one.rail, one.pair);
            }
          });
    };
    {
      std::jthread other([&] { work(1); });
      work(0);
    }
    for (const std::string& one : wrong) CHECK(one == "");
  }
}

TEST_CASE("once no rail is left, its error is one, that names both ends") {
  const auto ranks =
      join_verbs(fabric(), with_rails(2, [](int rank) {
                   return fabric().prefix + (rank == 0 ? "0," : "1,") + fabric().prefix + "2";
                 }));
  require_joined(ranks);
  REQUIRE(ranks[0]->network->rail_count() == 2);
  for (const std::size_t rail : {1U, 0U}) break_link(*ranks[0], 1, rail, 0);
  for (const std::size_t rank : {0U, 1U}) {
    const std::string said = error_of(ranks, rank);
    CHECK_THAT(said, Catch::StartsWith("verbs: rank " + std::to_string(1 - rank) + " (") &&
                         Catch::Contains(" over " + fabric().prefix));
    CHECK_THAT(said, Catch::Contains("the queue pair has failed") ||
                         Catch::Contains("no acknowledgement") ||
                         Catch::Contains("given up by the peer"));
  }
}

TEST_CASE("who sends to a peer that takes nothing is held up, and goes on later") {
  const auto ranks = join_verbs(fabric());
  require_joined(ranks);
  auto mine = sinks_of(*ranks[0], 2), theirs = sinks_of(*ranks[1], 2);
  auto* const carrier = ranks[0]->network->carrier(1);
  const std::vector<std::byte> payload(40);
  std::uint32_t sent = 0;
  const auto fill = [&] {
    for (; carrier->pending() < net::Carrier::kMostQueued; ++sent)
      carrier->send({.bytes = 40, .kind = 1, .channel = sent}, payload);
  };
  for (int look = 0; look < 50; ++look) {
    fill();
    REQUIRE(progress(*ranks[0], mine));
    ranks[0]->network->sleep(2ms);
  }
  const std::uint32_t stuck = sent;
  CHECK(carrier->pending() == net::Carrier::kMostQueued);  // The queue is full,
  CHECK(theirs[0]->count == 0);                            // and nothing was taken.
  std::uint32_t expected = 0;
  theirs[0]->check = [&](const net::FrameHeader& header, const auto&) {
    if (header.channel == expected) ++expected;
  };
  const auto end = Clock::now() + kLongest;
  while (expected < 4 * stuck && Clock::now() < end) {
    fill();
    REQUIRE(progress(*ranks[0], mine));
    REQUIRE(progress(*ranks[1], theirs));
  }
  CHECK(expected >= 4 * stuck);
  CHECK(theirs[0]->count == expected);
}

TEST_CASE("a payload that belongs elsewhere is an error, and nothing is announced") {
  const auto ranks = join_verbs(fabric());
  require_joined(ranks);
  auto mine = sinks_of(*ranks[0], 2), theirs = sinks_of(*ranks[1], 2);
  theirs[0]->shift = 64;
  ranks[0]->network->carrier(1)->send({.bytes = 5000, .kind = 1, .position = 4096},
                                      ranks[0]->near.span().subspan(4096, 5000));
  REQUIRE(progress(*ranks[0], mine));
  Status status = ok();
  const auto end = Clock::now() + kLongest;
  while (status && Clock::now() < end) status = progress(*ranks[1], theirs);
  REQUIRE(!status);
  CHECK_THAT(status.error().what, Catch::Contains("verbs: rank 0 (") &&
                                      Catch::Contains("a payload is not where it belongs"));
  CHECK(theirs[0]->count == 0);
}

TEST_CASE("a queue pair in its error state is an error on both sides, that names them") {
  for (const std::size_t pair : {0U, 1U}) {
    const auto ranks = join_verbs(fabric());
    require_joined(ranks);
    ibv_qp_attr attributes{};
    attributes.qp_state = IBV_QPS_ERR;
    REQUIRE(verbs::library().modify_qp(ranks[0]->network->link(1)->pair(pair), &attributes,
                                       IBV_QP_STATE) == 0);
    CHECK_THAT(error_of(ranks, 0),
               Catch::Contains("verbs: rank 1 (") &&
                   Catch::Contains("over " + fabric().prefix + "0:1, 10.99.0.1 to " +
                                   fabric().prefix + "1:1 10.99.0.2: ") &&
                   Catch::Contains("the queue pair has failed"));
    // The other side learns of it when it asks for a sign of life.
    CHECK_THAT(error_of(ranks, 1),
               Catch::Contains("verbs: rank 0 (") &&
                   Catch::Contains("over " + fabric().prefix + "1:1, 10.99.0.2 to " +
                                   fabric().prefix + "0:1 10.99.0.1: writing 0 bytes: ") &&
                   Catch::Contains("no acknowledgement"));
  }
}

TEST_CASE("who leaves has delivered all, and says so") {
  // The last one by any queue pair.
  const int count = GENERATE(1, 2, 3, 4, 5, 20);
  const auto ranks = join_verbs(fabric());
  require_joined(ranks);
  auto* const carrier = ranks[0]->network->carrier(1);
  auto mine = sinks_of(*ranks[0], 2), theirs = sinks_of(*ranks[1], 2);
  for (int i = 0; i < count; ++i)
    carrier->send({.bytes = 5000, .kind = 1, .position = static_cast<std::uint64_t>(i) * 8192},
                  ranks[0]->near.span().subspan(static_cast<std::size_t>(i) * 8192, 5000));
  REQUIRE(progress(*ranks[0], mine));
  carrier->leave();
  const auto end = Clock::now() + kLongest;
  while (!carrier->left() && Clock::now() < end) ranks[0]->network->sleep(1ms);
  REQUIRE(Clock::now() < end);
  ranks[0]->network.reset();
  Status status = ok();
  while (status && Clock::now() < end) status = progress(*ranks[1], theirs);
  REQUIRE(!status);
  CHECK(theirs[0]->count == static_cast<std::uint32_t>(count));
  CHECK_THAT(status.error().what, Catch::Contains("has closed the communicator"));
  // The rank that leaves second does not wait for an answer of the one that has gone.
  auto* const back = ranks[1]->network->carrier(0);
  back->leave();
  CHECK(back->left());
}

TEST_CASE("sleep ends when something comes, and when somebody wakes it") {
  const auto ranks = join_verbs(fabric());
  require_joined(ranks);
  auto mine = sinks_of(*ranks[0], 2), theirs = sinks_of(*ranks[1], 2);
  for (int i = 0; i < 3; ++i) {
    std::jthread sender([&] {
      std::this_thread::sleep_for(20ms);
      ranks[0]->network->carrier(1)->send({.kind = 1}, net::Piece());
      (void)progress(*ranks[0], mine);
    });
    const auto before = theirs[0]->count;
    const auto end = Clock::now() + kLongest;
    while (theirs[0]->count == before && Clock::now() < end) {
      ranks[1]->network->sleep(kLongest);
      REQUIRE(progress(*ranks[1], theirs));
    }
    CHECK(theirs[0]->count == before + 1);
  }
  std::jthread waker([&] { ranks[1]->network->wake(); });
  ranks[1]->network->sleep(kLongest);
}

TEST_CASE("a rank that can't join tells all others why") {
  const auto ranks = join_verbs(
      fabric(), {.ranks = 3, .devices = [](int rank) { return rank == 1 ? "mlx5_0" : ""; }});
  CHECK_THAT(ranks[1]->error,
             Catch::Contains("verbs: no port of an RDMA device can be used; there "
                             "is " +
                             fabric().prefix + "0:1 (not in TUTTI_RDMA_DEVICES)") &&
                 Catch::Contains("TUTTI_TRANSPORT=tcp does without"));
  for (const std::size_t rank : {0U, 2U})
    CHECK_THAT(ranks[rank]->error, Catch::StartsWith("rank 1: " + ranks[1]->error.substr(0, 60)));
}

}  // namespace tutti::test
