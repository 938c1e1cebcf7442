// Slots apart over devices that exist in this process alone: the cases of
// support/net/gpudirect_cases.h, with writes that are only seen once somebody has flushed; where
// slots are; and how a card comes to know of a device's memory.
#include <fcntl.h>

#include "support/net/fake_rdma.h"
#include "support/net/gpudirect_cases.h"

namespace tutti::test {

const std::size_t kGpuDirectSlotBytes = 65536;
const std::uint32_t kGpuDirectSlots = 60;

namespace {

std::array<std::span<std::byte>, 3> memories;  // By rank.

int rank_of(const void* at) {
  for (std::size_t rank = 0; rank < memories.size(); ++rank) {
    const auto& memory = memories[rank];
    if (!memory.empty() && at >= memory.data() && at < memory.data() + memory.size())
      return static_cast<int>(rank);
  }
  return -1;
}

FakeRdma::Devices kind{.of = rank_of, .late = ~std::uint64_t{0}};

}  // namespace

VerbsFabric fabric() {
  verbs::use_library(FakeRdma::library());
  FakeRdma::the().seed(Catch::rngSeed());
  FakeRdma::the().devices(kind);
  CHECK(FakeRdma::the().complaint() == "");
  return {"fake", FakeRdma::ports()};
}
void know_memory(std::size_t rank, std::span<std::byte> closed, std::byte* open) {
  memories[rank] = closed;
  FakeRdma::the().alias(closed, open);
}
void forget_memory(std::span<std::byte> closed) {
  for (auto& memory : memories) {
    if (memory.data() == closed.data()) memory = {};
  }
  FakeRdma::the().forget_alias(closed);
}
void flush_memory(std::size_t rank) { FakeRdma::the().flush(static_cast<int>(rank)); }

namespace {

/// One rank of two, that has memory for its slots.
struct Trial {
  Trial() : peers(2, this_process()) {
    peers[0].rdma = peers[1].rdma = verbs::kRoce;
    peers[1].host[0] += 1;
    memories[0] = memory.span();
    opening.peers = peers;
    opening.config = gpudirect_config(2);
    opening.rdma_devices = "fake0,fake2";
    opening.gpudirect = {.memory = memory.span(), .hosts = hosts};
  }
  ~Trial() { memories[0] = {}; }
  Trial(const Trial&) = delete;
  Trial& operator=(const Trial&) = delete;

  std::vector<Peer> peers;
  std::vector<int> hosts{0, 1};
  Pages memory{std::size_t{1} << 20};
  Opening opening;
  Result<std::vector<std::string>> cards() { return try_cards(opening, FakeRdma::ports()); }
};

/// What a trial with such devices says: the cards' names, or why not.
std::string said(Trial& trial, const FakeRdma::Devices& devices) {
  FakeRdma::the().devices(devices);
  const auto cards = trial.cards();
  FakeRdma::the().devices({});
  if (!cards) return cards.error().what;
  std::string names;
  for (const std::string& card : *cards) names += card + " ";
  return names;
}

}  // namespace

TEST_CASE("a card takes a device's memory by dma-buf, else by address, else says why not") {
  (void)fabric();
  Trial trial;
  const int before = FakeRdma::the().dma_bufs();
  const auto by_dma_buf = [before] { return FakeRdma::the().dma_bufs() - before; };
  // Without a descriptor.
  CHECK(said(trial, {.of = rank_of}) == "fake0:1 fake2:1 ");
  CHECK_THAT(
      said(trial, {.of = rank_of, .unknown = 1}),
      Catch::Contains("verbs: fake0:1: registering 1024 KiB of a GPU's memory: by address: ") &&
          Catch::Contains("modprobe nvidia_peermem"));
  CHECK(by_dma_buf() == 0);
  // With one: of every card.
  const Fd descriptor(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  trial.opening.gpudirect.dma_buf = descriptor.get();
  CHECK(said(trial, {.of = rank_of, .unknown = 1}) == "fake0:1 fake2:1 ");
  CHECK(by_dma_buf() == 2);
  CHECK(said(trial, {.of = rank_of, .no_dma_buf = 1}) == "fake0:1 fake2:1 ");
  CHECK(by_dma_buf() == 2);
  CHECK_THAT(said(trial, {.of = rank_of, .unknown = 1, .no_dma_buf = 1}),
             Catch::Contains("by dma-buf: ") && Catch::Contains(", by address: "));
  // An old library.
  verbs::Library old = FakeRdma::library();
  old.reg_dmabuf_mr = nullptr;
  verbs::use_library(old);
  CHECK(said(trial, {.of = rank_of}) == "fake0:1 fake2:1 ");
  CHECK(by_dma_buf() == 2);
  // Without memory nothing is tried. There are all that are as good as the best; with it those that
  // this rank would use, which shares them with others of its host.
  trial.peers.resize(4, trial.peers[0]);
  trial.opening.peers = trial.peers;
  trial.opening.rdma_devices = "";
  CHECK(said(trial, {}) == "fake0:1 fake1:1 ");
  trial.opening.gpudirect = {};
  CHECK(said(trial, {}) == "fake0:1 fake1:1 fake2:1 ");
  trial.opening.rdma_devices = "fake0,fake2";
  CHECK(said(trial, {.of = rank_of, .unknown = 1, .no_dma_buf = 1}) == "fake0:1 fake2:1 ");
}

TEST_CASE("slots go by what a dma-buf is registered as") {
  kind.unknown = ~std::uint64_t{0};
  const Fd descriptor(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  const int before = FakeRdma::the().dma_bufs();
  auto ranks = join_gpudirect({.ranks = 2, .dma_buf = descriptor.get()});
  require_open(ranks);
  CHECK(FakeRdma::the().dma_bufs() == before + 2);
  CHECK(exchange_slots(ranks, Catch::rngSeed(), [](std::size_t, std::uint64_t) {}) ==
        std::vector<std::string>(2));
  kind.unknown = 0;
}

TEST_CASE("slots apart have a place each, and ranges of both sides belong together") {
  std::mt19937_64 random(Catch::rngSeed());
  INFO("--rng-seed " << Catch::rngSeed());
  for (int round = 0; round < 20; ++round) {
    const int count = 2 + static_cast<int>(random() % 5);
    RegionConfig config = gpudirect_config(count);
    config.lanes = 1 + static_cast<std::uint32_t>(random() % 4);
    config.replica = config.gpudirect = 1;
    std::vector<int> hosts;
    for (int rank = 0; rank < count; ++rank) hosts.push_back(static_cast<int>(random() % 3));
    for (int me = 0; me < count; ++me) {
      const std::size_t bytes = gpudirect_bytes(config, hosts, me);
      std::vector<std::byte> memory(bytes), region_memory(Region::bytes_for(config));
      const GpuDirectSlots gpudirect{.memory = memory, .hosts = hosts};
      Region region(region_memory.data(), config);
      region.use_gpudirect_slots(me, gpudirect);
      std::vector<int> taken(bytes / config.slot_bytes);
      for (int peer = 0; peer < count; ++peer) {
        if (peer == me) continue;
        const auto mine = gpudirect_ranges(config, hosts, me, peer);
        const auto theirs = gpudirect_ranges(config, hosts, peer, me);
        CHECK(mine.bytes == theirs.bytes);
        CHECK((mine.bytes == 0) ==
              (hosts[static_cast<std::size_t>(me)] == hosts[static_cast<std::size_t>(peer)]));
        for (int lane = 0; lane < static_cast<int>(config.lanes); ++lane) {
          const Ring out = region.channel(me, peer, lane), in = region.channel(peer, me, lane);
          CHECK((out.slots != nullptr) == (mine.bytes != 0));
          if (mine.bytes == 0) continue;
          // What is at an offset of `out` lands at that offset of the peer's `in`.
          const auto offset = out.slots - (memory.data() + mine.out);
          CHECK(offset == in.slots - (memory.data() + mine.in));
          CHECK(static_cast<std::size_t>(offset) + out.slot_count * out.slot_bytes <= mine.bytes);
          for (const Ring& ring : {out, in}) {
            for (std::uint64_t i = 0; i < ring.slot_count; ++i)
              ++taken[static_cast<std::size_t>(ring.slot(i) - memory.data()) / config.slot_bytes];
          }
        }
      }
      CHECK(taken == std::vector<int>(taken.size(), 1));
    }
  }
}

}  // namespace tutti::test
