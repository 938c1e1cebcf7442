// File: support/net/gpudirect_cases.h: rings whose slots lie apart (transport/gpudirect_slots.h),
// over RDMA devices, real ones or not, in memory that the host can't touch while they are used. The
// file that includes it says which devices: fabric(), and what they have to know of such memory.
#pragma once
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <random>

#include "support/catch.h"
#include "support/net/verbs_network.h"
#include "transport/net/endpoint.h"

namespace tutti::test {

/// At least two devices, alike.
VerbsFabric fabric();
/// A rank's memory, which is closed to the host at `closed`, and known to the test at `open`.
void know_memory(std::size_t rank, std::span<std::byte> closed, std::byte* open);
void forget_memory(std::span<std::byte> closed);
/// The effect of a rank's flush.
void flush_memory(std::size_t rank);
/// Slots of so many bytes, and this many of a ring's are sent.
extern const std::size_t kGpuDirectSlotBytes;
extern const std::uint32_t kGpuDirectSlots;

namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;
constexpr auto kGpuDirectLimit = 120s;  // Only ends what hangs.

/// Memory that is mapped twice: what is registered is then closed to this process.
class ClosedMemory {
 public:
  ClosedMemory(std::size_t rank, std::size_t bytes) : bytes_(bytes) {
    const int file = memfd_create("apart", MFD_CLOEXEC);
    REQUIRE(ftruncate(file, static_cast<off_t>(bytes)) == 0);
    closed_ = map(file);
    open_ = map(file);
    ::close(file);
    know_memory(rank, closed(), open_);
  }
  ~ClosedMemory() {
    forget_memory(closed());
    munmap(closed_, bytes_);
    munmap(open_, bytes_);
  }
  ClosedMemory(const ClosedMemory&) = delete;
  ClosedMemory& operator=(const ClosedMemory&) = delete;

  std::span<std::byte> closed() const { return {closed_, bytes_}; }
  void close() { REQUIRE(mprotect(closed_, bytes_, PROT_NONE) == 0); }
  /// The bytes there, as the test sees them.
  std::byte* seen(const std::byte* at) const { return open_ + (at - closed_); }

 private:
  std::byte* map(int file) const {
    void* const at = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    REQUIRE(at != MAP_FAILED);
    return static_cast<std::byte*>(at);
  }
  std::size_t bytes_;
  std::byte* closed_ = nullptr;
  std::byte* open_ = nullptr;
};

struct GpuDirectOptions {
  int ranks = 2;
  bool all_rails = false;  // Else each rank has its own device.
  std::vector<int> hosts = {0, 1, 2};
  std::vector<bool> without = {false, false, false};  // By rank: whose slots are in the region.
  int dma_buf = -1;
  int short_rank = -1;  // The ranks that have too little memory.
};

struct GpuDirectRank {
  std::unique_ptr<ClosedMemory> memory;
  std::unique_ptr<Endpoint> endpoint;
  verbs::VerbsNetwork* network = nullptr;  // The endpoint's.
  std::atomic<int> flushes = 0;
  std::string error;
};

RegionConfig gpudirect_config(int ranks) {
  RegionConfig config;
  config.rank_count = static_cast<std::uint32_t>(ranks);
  config.lanes = 3;
  config.slot_count = 4;
  config.slot_bytes = kGpuDirectSlotBytes;
  config.multicast_slots = config.packet_slots = config.message_slots = 1;
  config.packet_bytes = kCacheLine;
  config.message_bytes = 2 * kCacheLine;
  return config;
}

void open_gpudirect(const VerbsFabric& fabric, const GpuDirectOptions& options,
                    std::span<const Peer> peers, int me, GpuDirectRank& mine, Rendezvous& meeting) {
  const auto at = static_cast<std::size_t>(me);
  const std::string devices = fabric.prefix + (options.all_rails ? "*" : std::to_string(me));
  const Deadline deadline = Deadline::after(20s);
  Opening opening{.me = me,
                  .peers = peers,
                  .rank = me,
                  .config = gpudirect_config(options.ranks),
                  .rdma_devices = devices,
                  .exchange =
                      [&](std::string_view phase, std::span<const std::byte> bytes) {
                        return exchange(meeting, Rank{me}, options.ranks, phase, bytes, deadline);
                      },
                  .deadline = deadline};
  if (!options.without[at]) {
    opening.gpudirect = {
        .memory = mine.memory->closed(), .hosts = options.hosts, .dma_buf = options.dma_buf};
    opening.gpudirect.flush = [&mine, at] {
      flush_memory(at);
      ++mine.flushes;
      return ok();
    };
  }
  auto endpoint =
      net::open_endpoint(opening, "verbs", [&](const net::Joining& to) -> Result<net::Connected> {
        TUTTI_TRY(auto network, verbs::connect(to, fabric.ports, {.spread_bytes = 4096}));
        mine.network = network.get();
        return net::Connected{std::move(network)};
      });
  if (endpoint)
    mine.endpoint = *std::move(endpoint);
  else
    mine.error = endpoint.error().what;
}

std::vector<std::unique_ptr<GpuDirectRank>> join_gpudirect(const GpuDirectOptions& options) {
  const VerbsFabric devices = fabric();
  const std::shared_ptr<Rendezvous> meeting = memory_rendezvous();
  const auto count = static_cast<std::size_t>(options.ranks);
  const std::span hosts = std::span(options.hosts).first(count);
  std::vector<std::unique_ptr<GpuDirectRank>> ranks;
  std::vector<Peer> peers(count, this_process());
  GpuDirectOptions cut = options;
  cut.hosts.assign(hosts.begin(), hosts.end());
  for (std::size_t rank = 0; rank < count; ++rank) {
    peers[rank].rdma = verbs::usable_layers(devices.ports);
    peers[rank].host[0] += rank;
    ranks.push_back(std::make_unique<GpuDirectRank>());
    auto bytes =
        gpudirect_bytes(gpudirect_config(options.ranks), cut.hosts, static_cast<int>(rank));
    if (static_cast<int>(rank) == options.short_rank) bytes /= 2;
    ranks[rank]->memory = std::make_unique<ClosedMemory>(rank, (bytes + 65535) / 65536 * 65536);
  }
  std::vector<std::jthread> threads;
  for (int me = 0; me < options.ranks; ++me) {
    threads.emplace_back([&, me] {
      open_gpudirect(devices, cut, peers, me, *ranks[static_cast<std::size_t>(me)], *meeting);
    });
  }
  threads.clear();
  for (const auto& rank : ranks) rank->memory->close();
  return ranks;
}

/// The bytes of the slot with that number in a ring from one rank to another, and how many there
/// are.
std::byte gpudirect_content(int from, int to, int lane, std::uint64_t number, std::size_t at) {
  return static_cast<std::byte>((static_cast<std::size_t>(from) * 131 +
                                 static_cast<std::size_t>(to) * 67 +
                                 static_cast<std::size_t>(lane) * 17 + number * 31 + at * 7) %
                                251);
}
std::uint32_t gpudirect_size(std::uint64_t seed, int from, int to, int lane, std::uint64_t number) {
  const std::size_t edges[] = {0,
                               1,
                               2,
                               verbs::kShortBytes - 1,
                               verbs::kShortBytes,
                               verbs::kShortBytes + 1,
                               4096,
                               kGpuDirectSlotBytes};
  std::mt19937_64 random(seed + number + 1000 * static_cast<std::uint64_t>(lane) +
                         100000 * static_cast<std::uint64_t>(from * 8 + to));
  const std::size_t pick = random() % (2 * std::size(edges));
  return static_cast<std::uint32_t>(pick < std::size(edges) ? edges[pick]
                                                            : 1 + random() % kGpuDirectSlotBytes);
}

/// One end of each ring between this rank and the others.
class GpuDirectTraffic {
 public:
  GpuDirectTraffic(GpuDirectRank& rank, int me, int ranks, std::uint64_t seed)
      : rank_(rank), me_(me), seed_(seed) {
    const int lanes = static_cast<int>(rank.endpoint->region().config().lanes);
    for (int peer = 0; peer < ranks; ++peer) {
      for (int lane = 0; lane < lanes && peer != me; ++lane) ends_.push_back({peer, lane});
    }
  }
  /// Until all has been sent, come and been read everywhere; empty, or what is wrong.
  std::string run(const std::function<void(std::uint64_t got)>& meanwhile) {
    const auto end = Clock::now() + kGpuDirectLimit;
    for (bool all = false; !all;) {
      if (Clock::now() > end) return "it hangs";
      rank_.endpoint->remote_link()->progress();
      std::uint64_t got = 0;
      for (const End& at : ends_) got += at.got;
      meanwhile(got);
      all = true;
      for (End& at : ends_) {
        if (!rank_.endpoint->alive(at.peer)) return rank_.endpoint->why_dead(at.peer);
        send(at);
        if (auto wrong = receive(at); !wrong.empty()) return wrong;
        const Ring out = ring(me_, at.peer, at.lane);
        all = all && at.got == kGpuDirectSlots && out.tails->value.load() == kGpuDirectSlots;
      }
    }
    return "";
  }

 private:
  struct End {
    int peer, lane;
    std::uint64_t sent = 0, got = 0;
  };
  Ring ring(int from, int to, int lane) const {
    return rank_.endpoint->region().channel(from, to, lane);
  }
  void send(End& at) {
    const Ring out = ring(me_, at.peer, at.lane);
    if (at.sent == kGpuDirectSlots || at.sent - out.tails->value.load() == out.slot_count) return;
    const std::uint32_t bytes = gpudirect_size(seed_, me_, at.peer, at.lane, at.sent);
    std::byte* const slot = rank_.memory->seen(out.slot(at.sent));
    for (std::size_t i = 0; i < bytes; ++i)
      slot[i] = gpudirect_content(me_, at.peer, at.lane, at.sent, i);
    out.used[at.sent % out.slot_count] = bytes;
    out.head->value.store(++at.sent, std::memory_order_release);
  }
  std::string receive(End& at) const {
    const Ring in = ring(at.peer, me_, at.lane);
    if (in.head->value.load(std::memory_order_acquire) == at.got) return "";
    if (rank_.flushes == 0) return "a slot was announced before a flush";
    const std::uint32_t bytes = gpudirect_size(seed_, at.peer, me_, at.lane, at.got);
    const std::byte* const slot = rank_.memory->seen(in.slot(at.got));
    for (std::size_t i = 0; i < bytes; ++i) {
      if (slot[i] != gpudirect_content(at.peer, me_, at.lane, at.got, i))
        return "slot " + std::to_string(at.got) + " of " + std::to_string(bytes) +
               " bytes differs at " + std::to_string(i);
    }
    in.tails->value.store(++at.got, std::memory_order_release);
    return "";
  }

  GpuDirectRank& rank_;
  int me_;
  std::uint64_t seed_;
  std::vector<End> ends_;
};

/// Called for a rank that has got so many slots.
using Meanwhile = std::function<void(std::size_t rank, std::uint64_t got)>;

std::vector<std::string> exchange_slots(std::vector<std::unique_ptr<GpuDirectRank>>& ranks,
                                        std::uint64_t seed, const Meanwhile& meanwhile) {
  std::vector<std::string> wrong(ranks.size());
  std::vector<std::jthread> threads;
  std::atomic<std::size_t> done = 0;
  for (std::size_t me = 0; me < ranks.size(); ++me) {
    threads.emplace_back([&, me] {
      GpuDirectTraffic traffic(*ranks[me], static_cast<int>(me), static_cast<int>(ranks.size()),
                               seed);
      wrong[me] = traffic.run([&](std::uint64_t got) { meanwhile(me, got); });
      ++done;
      // Others may still wait for what this one has to say.
      for (const auto end = Clock::now() + kGpuDirectLimit;
           done != ranks.size() && Clock::now() < end;)
        ranks[me]->endpoint->remote_link()->progress();
    });
  }
  threads.clear();
  return wrong;
}

void require_open(const std::vector<std::unique_ptr<GpuDirectRank>>& ranks) {
  for (const auto& rank : ranks) {
    INFO(rank->error);
    REQUIRE(rank->endpoint != nullptr);
  }
}

}  // namespace

TEST_CASE("slots apart are carried, of all sizes, and the host touches none of them") {
  const std::uint64_t seed = Catch::rngSeed();
  for (const bool all_rails : {false, true}) {
    const int count = all_rails ? 2 : 3;
    INFO(count << " ranks, --rng-seed " << seed);
    auto ranks = join_gpudirect({.ranks = count, .all_rails = all_rails});
    require_open(ranks);
    const auto wrong = exchange_slots(ranks, seed, [](std::size_t, std::uint64_t) {});
    CHECK(wrong == std::vector<std::string>(ranks.size()));
    for (std::size_t rail = 0; rail < ranks[0]->network->rail_count(); ++rail)
      CHECK(ranks[0]->network->link(1, rail)->bytes_given() > kGpuDirectSlotBytes);
  }
}

TEST_CASE("slots apart arrive though rails break at any moment") {
  const std::uint64_t seed = Catch::rngSeed();
  std::mt19937_64 random(seed);
  for (int round = 0; round < 2; ++round) {
    INFO("round " << round << ", --rng-seed " << seed);
    auto ranks = join_gpudirect({.ranks = 2, .all_rails = true});
    require_open(ranks);
    const std::size_t rails = ranks[0]->network->rail_count();
    REQUIRE(rails >= 2);
    const std::size_t who = random() % 2, rail = random() % rails, pair = random() % verbs::kPairs;
    // Rings hold fewer slots than go by them, so at half of them something is still to come.
    const std::uint64_t after = random() % (kGpuDirectSlots / 2);
    bool cut = false;
    const auto wrong = exchange_slots(ranks, seed, [&](std::size_t rank, std::uint64_t got) {
      if (rank != who || cut || got < after) return;
      cut = true;
      ibv_qp_attr attributes{};
      attributes.qp_state = IBV_QPS_ERR;
      ibv_qp* const broken = ranks[who]->network->link(static_cast<int>(1 - who), rail)->pair(pair);
      (void)verbs::library().modify_qp(broken, &attributes, IBV_QP_STATE);
    });
    CHECK(wrong == std::vector<std::string>(ranks.size()));
    CHECK(cut);
  }
}

TEST_CASE("ranks whose slots are not alike don't join, and say so") {
  const auto ranks = join_gpudirect({.ranks = 2, .without = {false, true, false}});
  // The region of one is laid out otherwise, so that is seen first.
  CHECK_THAT(ranks[0]->error, Catch::Contains("rank 1: verbs: its region has another size"));
  CHECK_THAT(ranks[1]->error, Catch::Contains("rank 0: verbs: its region has another size"));
  const auto others = join_gpudirect({.ranks = 2, .short_rank = 1});
  CHECK_THAT(others[0]->error,
             Catch::Contains("rank 1: verbs: its slots are not where this rank's are"));
}

TEST_CASE("what is not where a slot apart belongs breaks the connection, and is not copied") {
  constexpr std::uint16_t kSlot = 4, kAbort = 6;  // As in net/replicator_peer.cc.
  constexpr std::uint32_t kRing = 1;              // The first lane's.
  struct Lie {
    const char* what;
    std::uint16_t kind;
    std::uint32_t bytes;
    bool gpudirect;  // Where the payload is.
    std::size_t offset;
  };
  const auto lie = GENERATE(Lie{"the next slot", kSlot, 100, true, 0},
                            Lie{"the next slot, long", kSlot, 5000, true, 0},
                            Lie{"short, of the host", kSlot, 100, false, 0},
                            Lie{"long, of the region", kSlot, 5000, false, 0},
                            Lie{"an abort from there", kAbort, 912, true, 0});
  INFO(lie.what);
  auto ranks = join_gpudirect({.ranks = 2});
  require_open(ranks);
  const Region& region = ranks[0]->endpoint->region();
  const std::byte* const from =
      lie.gpudirect ? region.channel(0, 1, 0).slot(1)
                    : reinterpret_cast<const std::byte*>(&region.finished(0)) + kCacheLine;
  ranks[0]->network->carrier(1)->send({.bytes = lie.bytes, .kind = lie.kind, .channel = kRing},
                                      net::Piece(from, lie.bytes));
  const auto end = Clock::now() + kGpuDirectLimit;
  while (ranks[1]->endpoint->alive(0) && Clock::now() < end) {
    ranks[0]->endpoint->remote_link()->progress();
    ranks[1]->endpoint->remote_link()->progress();
  }
  CHECK_THAT(ranks[1]->endpoint->why_dead(0), Catch::Contains("a payload is not where it belongs"));
  CHECK(ranks[1]->endpoint->region().channel(0, 1, 0).head->value.load() == 0);
}

TEST_CASE("a slot of a ring that has none makes no sense") {
  // Ranks 0 and 1 are of one host, as far as slots are concerned.
  auto ranks = join_gpudirect({.ranks = 3, .hosts = {0, 0, 1}});
  require_open(ranks);
  CHECK(ranks[0]->endpoint->region().channel(0, 1, 0).slots == nullptr);
  const auto& finished = ranks[0]->endpoint->region().finished(0);
  ranks[0]->network->carrier(1)->send({.bytes = 8, .kind = 4, .channel = 1, .position = 1},
                                      net::Piece(reinterpret_cast<const std::byte*>(&finished), 8));
  const auto end = Clock::now() + kGpuDirectLimit;
  while (ranks[1]->endpoint->alive(0) && Clock::now() < end) {
    ranks[0]->endpoint->remote_link()->progress();
    ranks[1]->endpoint->remote_link()->progress();
  }
  CHECK_THAT(ranks[1]->endpoint->why_dead(0), Catch::Contains("makes no sense"));
}

}  // namespace tutti::test
