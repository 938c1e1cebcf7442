// Executors over a network that takes its time (support/net/slow_network.h). What is lent to the
// wire must not change before it has left, and is left alone once a call has ended.
#include <random>

#include "support/catch.h"
#include "support/net/slow_network.h"

namespace tutti::test {

TEST_CASE("A slow network changes nothing, in place or not") {
  const std::uint64_t seed = Catch::rngSeed();
  INFO("seed " << seed);
  std::mt19937_64 random(seed);
  for (const Algorithm* algorithm : algorithms()) {
    for (const int count : {2, 3, 4}) {
      const plan::Shape shape{algorithm->collective, count, count - 1};
      if (!algorithm->applies(shape) || algorithm->contract(shape) != Contract::kDeterministic)
        continue;
      Ranks ranks(count, std::string(algorithm->name), random());
      for (const bool in_place : {false, true, true}) {
        if (in_place && algorithm->collective == Collective::kAllToAll) continue;
        Case test;
        test.collective = algorithm->collective;
        test.count = 1 + random() % 9000;
        test.ranks = count;
        test.root = count - 1;
        test.in_place = in_place;
        ranks.slowness().most = 1 + static_cast<unsigned>(random() % 4);
        INFO(algorithm->name << ", " << test.to_string());
        const std::string said = run(ranks, test, random());
        CHECK(said.empty());
        if (!said.empty()) FAIL(said);
      }
    }
  }
}

TEST_CASE("Rails that are lost in the middle of calls change nothing") {
  const std::uint64_t seed = Catch::rngSeed();
  INFO("seed " << seed);
  std::mt19937_64 random(seed);
  for (const Algorithm* algorithm : algorithms()) {
    const int count = 2 + static_cast<int>(random() % 3);
    const plan::Shape shape{algorithm->collective, count, 0};
    if (!algorithm->applies(shape) || algorithm->contract(shape) != Contract::kDeterministic)
      continue;
    for (int round = 0; round < 4; ++round) {
      Ranks ranks(count, std::string(algorithm->name), random(), 2 + random() % 2);
      ranks.slowness().cut_one_in = 20 + static_cast<unsigned>(random() % 2000);
      for (int call = 0; call < 6; ++call) {
        Case test;
        test.collective = algorithm->collective;
        test.count = 1 + random() % (call % 2 == 0 ? 9000 : 200);
        test.ranks = count;
        test.in_place = random() % 2 == 0 && algorithm->collective != Collective::kAllToAll;
        INFO(algorithm->name << ", call " << call << ", " << test.to_string());
        const std::string said = run(ranks, test, random());
        CHECK(said.empty());
        if (!said.empty()) FAIL(said);
      }
    }
  }
}

// Such a rank is done with the call at once, and may then wait for others on another communicator,
// while nobody reads what comes for it here.
TEST_CASE("What only the root reads goes to no other rank") {
  constexpr int kRanks = 3, kRoot = 1;
  const std::uint64_t seed = Catch::rngSeed();
  INFO("seed " << seed);
  for (const Collective collective : {Collective::kReduce, Collective::kGather}) {
    // In one line, in several, in a packet.
    for (const std::size_t count : {4U, 40U, 1000U}) {
      Case test;
      test.collective = collective;
      test.count = count;
      test.ranks = kRanks;
      test.root = kRoot;
      INFO(test.to_string());
      std::vector<Frame> to_root, to_other;
      Ranks::Options options{.region = slow_region(kRanks)};
      options.eager_limit_bytes.fill(options.region.packet_bytes);
      Ranks ranks(options, std::make_shared<OneAlgorithm>("direct", kRanks), seed);
      ranks.copy_frames(2, kRoot, to_root);
      ranks.copy_frames(2, 0, to_other);
      for (int call = 0; call < 5; ++call) REQUIRE(run(ranks, test, seed).empty());
      const auto longest = [](const std::vector<Frame>& frames) {
        std::size_t bytes = 0;
        for (const Frame& frame : frames) bytes = std::max(bytes, frame.payload.size());
        return bytes;
      };
      CHECK(longest(to_root) >= test.input_bytes());
      // Which call it is.
      REQUIRE(!to_other.empty());
      CHECK(longest(to_other) <= 2 * kCacheLine);
    }
  }
}

TEST_CASE("An abort beside messages reaches the other ranks") {
  const std::uint64_t seed = Catch::rngSeed();
  for (const bool messages_end : {false, true}) {
    INFO("messages that " << (messages_end ? "end" : "wait"));
    Ranks ranks(2, "one_shot", seed);
    ranks.slowness().least = 1;
    Buffer data(100);
    exec::Message message;
    message.sends = messages_end;
    message.peer = 1;
    message.data = data.data();
    message.count = data.size();
    exec::MessageBatch batch{.messages = std::span(&message, 1), .open = 0, .start = {}};
    ranks[0].messages().post(batch);
    for (int turn = 0; turn < 20; ++turn) ranks[0].messages().poll();
    REQUIRE((batch.open == 0) == messages_end);
    ranks[0].abort({Code::kAborted, "enough", Rank{0}, Rank{0}});
    if (!messages_end) ranks[0].messages().poll();
    ranks[0].messages().retire(batch);
    for (int turn = 0; turn < 20; ++turn) ranks[1].endpoint().remote_link()->progress();
    CHECK(ranks[1].endpoint().region().aborted());
  }
}

TEST_CASE("A note follows the one before, though the peer has sent nothing meanwhile") {
  for (const std::size_t rails : {1U, 2U}) {
    INFO(rails << " rails");
    Ranks ranks(2, "one_shot", Catch::rngSeed(), rails);
    ranks.slowness().least = 1;
    Note& mine = ranks[0].endpoint().region().board(0);
    const Note& arrived = ranks[1].endpoint().region().board(0);
    for (std::uint64_t version = 1; version < 5; ++version) {
      mine.words[3].store(10 * version);
      mine.version.store(version);
      for (int turn = 0; turn < 20; ++turn) ranks[turn % 2].endpoint().remote_link()->progress();
      REQUIRE(arrived.version.load() == version);
      CHECK(arrived.words[3].load() == 10 * version);
    }
  }
}

TEST_CASE("A rank that leaves while a rail is reset is not taken for a dead one") {
  const std::uint64_t seed = Catch::rngSeed();
  INFO("seed " << seed);
  for (int round = 0; round < 20; ++round) {
    Ranks ranks(2, "one_shot", seed + static_cast<std::uint64_t>(round), 2);
    Case test;
    test.count = 100;
    test.ranks = 2;
    REQUIRE(run(ranks, test, 1).empty());
    RemoteLink& stays = *ranks[1].endpoint().remote_link();
    for (int turn = 0; turn < 100; ++turn) ranks[turn % 2].endpoint().remote_link()->progress();
    bool lost = false;
    const auto go_on = [&] {
      // The first rail carries short frames; the second one still works.
      if (!std::exchange(lost, lost || ranks.under_way_from(0) != 0) && lost) ranks.reset(0, 0, 1);
      stays.progress();
    };
    ranks.slowness().asleep = [&] {
      if (lost || ranks.under_way_from(0) != 0) go_on();
    };
    ranks.leave(0);
    for (int turn = 0; turn < 1000; ++turn) go_on();
    CHECK(lost);
    CHECK(ranks[1].endpoint().region().status(0).left.load() != 0);
  }
}

TEST_CASE("A call that fails gives lent memory back at once") {
  Ranks ranks(2, "one_shot", 7);
  Case test;
  test.count = 4000;
  test.ranks = 2;
  REQUIRE(run(ranks, test, 1).empty());  // The plan is agreed on.
  std::vector<Buffer> input(2, Buffer(test.input_bytes(), std::byte{1})), output = input;
  for (int rank = 0; rank < 2; ++rank) {
    const auto r = static_cast<std::size_t>(rank);
    ranks[rank].begin(call_of(test, input[r].data(), output[r].data()));
  }
  RemoteLink& remote_link = *ranks[0].endpoint().remote_link();
  const auto zero_copy = [&] { return remote_link.is_sending(input[0]); };
  ranks.slowness().longest = 1000;  // Call lines pass.
  for (int turn = 0; turn < 10'000 && !zero_copy(); ++turn) ranks[turn % 2].poll();
  REQUIRE(zero_copy());
  ranks[0].abort({Code::kAborted, "enough", Rank{0}, Rank{0}});
  CHECK_FALSE(ranks[0].check_health());
  CHECK_FALSE(ranks[0].take_status());
  CHECK_FALSE(zero_copy());
}

TEST_CASE("A rank whose last bytes do not leave names a rank that does not take them") {
  exec::EagerLimits::Bytes eager{};
  eager.fill(4096);
  Ranks ranks({.region = slow_region(3, 8),
               .eager_limit_bytes = eager,
               .timeout = std::chrono::milliseconds(50)},
              std::make_shared<OneAlgorithm>("one_shot", 3), 7);
  ranks.slowness().longest = 0;
  Case test;
  test.collective = Collective::kBroadcast;
  test.count = 10;
  test.ranks = 3;
  Buffer data(test.input_bytes(), std::byte{1});
  ranks[0].begin(call_of(test, data.data(), data.data()));
  // It waits for no rank, but for the network.
  while (ranks[0].check_health()) REQUIRE(ranks[0].poll() != exec::Poll::kDone);
  const Status status = ranks[0].take_status();
  REQUIRE(!status);
  CHECK(status.error().code == Code::kTimeout);
  CHECK(status.error().peer.value > 0);
  CHECK_THAT(status.error().what, Catch::Contains("waited 50 ms for rank"));
  ranks.slowness().longest = SIZE_MAX;
}

TEST_CASE("How far messages were read goes with the next message, and in time") {
  const std::uint64_t seed = Catch::rngSeed();
  INFO("seed " << seed);
  for (const std::uint32_t slots : {1U, 2U, 3U, 8U}) {
    Ranks ranks(2, "one_shot", seed, 1, slots);
    std::uint64_t sent = 0, got = 0;
    const auto move = [&](int me, bool sends) {
      exec::Message message;
      message.sends = sends;
      message.peer = 1 - me;
      message.data = reinterpret_cast<std::byte*>(sends ? &++sent : &got);
      message.count = sizeof(sent);
      exec::MessageBatch batch{.messages = std::span(&message, 1), .open = 0, .start = {}};
      return ranks[me].run(batch);
    };
    INFO(slots << " slots");
    // There and back: what a rank has to say when it has received, it says when it answers.
    for (std::size_t turn = 0; turn < 200; ++turn) {
      const std::size_t me = turn % 2, peer = 1 - me;
      const std::size_t mine = ranks.sent_by(me), peers = ranks.sent_by(peer);
      REQUIRE(move(static_cast<int>(me), true));
      CHECK(ranks.sent_by(me) - mine == (turn == 0 || slots == 1 ? 1 : 2));
      REQUIRE(move(static_cast<int>(peer), false));
      CHECK(ranks.sent_by(peer) - peers == (slots == 1 ? 1 : 0));
      REQUIRE(got == sent);
    }
    // One way: as many as there is room for, though the receiver takes what has come without a look
    // at the network.
    ranks.slowness().most = 64;
    const std::size_t before = sent, said = ranks.sent_by(1);
    for (int turn = 0; turn < 50; ++turn) {
      const std::uint32_t room = turn == 0 ? slots : slots - slots / 2;
      for (std::uint32_t i = 0; i < room; ++i) REQUIRE(move(0, true));
      for (std::uint32_t i = 0; i < room; ++i) REQUIRE(move(1, false));
      REQUIRE(got == sent);
    }
    if (slots >= 8) CHECK(2 * (ranks.sent_by(1) - said) < sent - before);
  }
}

TEST_CASE("Who waits for a message sleeps only once all that has come is taken") {
  const std::uint64_t seed = Catch::rngSeed();
  INFO("seed " << seed);
  for (const std::uint32_t slots : {1U, 2U, 8U}) {
    Ranks ranks(2, "one_shot", seed, 1, slots);
    ranks.slowness().least = 1;
    Buffer from(1'000'000), to(from.size());
    std::generate(from.begin(), from.end(), [&] { return std::byte(ranks.slowness().random()); });
    const auto message = [](bool sends, int peer, Buffer& data) {
      exec::Message one;
      one.sends = sends;
      one.peer = peer;
      one.data = data.data();
      one.count = data.size();
      return one;
    };
    exec::Message sent = message(true, 1, from), received = message(false, 0, to);
    exec::MessageBatch sends{.messages = std::span(&sent, 1), .open = 0, .start = {}};
    exec::MessageBatch receives{.messages = std::span(&received, 1), .open = 0, .start = {}};
    ranks[0].messages().post(sends);
    std::size_t naps = 0, too_soon = 0;
    ranks.slowness().asleep = [&] {
      ++naps;
      if (ranks.under_way_from(0) != 0) ++too_soon;
      while (ranks[0].messages().poll()) {
      }
    };
    REQUIRE(ranks[1].run(receives));
    CHECK(naps != 0);
    CHECK(too_soon == 0);
    CHECK(from == to);
    while (sends.open != 0 || !ranks[0].messages().left()) ranks[0].messages().poll();
    ranks[0].messages().retire(sends);
  }
}

/// The connections to rank 1, whose frames the test begins and ends.
class Begun final : public net::Carrier {
 public:
  struct Half {
    FrameHeader header;
    std::byte* to;
  };
  void send(FrameHeader, std::span<const Piece>) override {}
  using Carrier::send;
  Result<bool> progress(FrameSink& sink) override { return sink_ = &sink, false; }
  bool any_memory() const override { return true; }
  void moved(Piece from, std::byte* to) override {
    for (Half& one : halves) {
      if (net::overlap(from, {one.to, 1})) one.to = to + (one.to - from.data());
    }
  }
  std::size_t pending() const override { return 0; }
  std::string where() const override { return "begun: rank 1"; }
  void leave() override {}
  bool left() override { return true; }
  /// A slot of lane 0; as net/replicator_peer.cc has its kind and its ring.
  void begin(std::uint64_t position, std::size_t bytes) {
    const FrameHeader header{
        .bytes = static_cast<std::uint32_t>(bytes), .kind = 4, .channel = 1, .position = position};
    const auto to = sink_->place(header);
    REQUIRE((to && *to));
    halves.push_back({header, **to});
  }
  Status end(std::size_t which, std::byte with) {
    const Half one = halves[which];
    halves.erase(halves.begin() + static_cast<std::ptrdiff_t>(which));
    std::fill_n(one.to, one.header.bytes, with);
    return sink_->arrived(one.header);
  }
  bool writes_to(const Buffer& memory) const {
    return std::ranges::any_of(halves, [&](const Half& one) {
      return net::overlap({one.to, one.header.bytes}, memory);
    });
  }
  std::vector<Half> halves;

 private:
  FrameSink* sink_ = nullptr;
};
/// Rank 0, which may receive into memory of its calls.
struct Receiver {
  Receiver() { link.progress(); }
  void expect(std::uint64_t position, Buffer& to) { link.expect(1, false, 0, position, to); }
  const std::byte* placed(std::uint64_t position) const {
    return link.placed(1, false, 0, position);
  }
  Begun carrier;
  SlowEndpoint endpoint{slow_region(2), 0, std::make_unique<OnePeerNetwork>(carrier)};
  RemoteLink& link = *endpoint.remote_link();
};

TEST_CASE("A slot that is sent twice does not go to memory of a call that has returned") {
  const auto ends = GENERATE(as<std::size_t>{}, 0, 1);  // Which of the two ends.
  INFO("frame " << ends << " ends");
  Receiver rank;
  Buffer first(64), second(64);
  rank.expect(0, first);
  rank.carrier.begin(0, first.size());
  rank.carrier.begin(0, first.size());
  REQUIRE(rank.carrier.end(ends, std::byte{1}));
  rank.expect(1, second);
  rank.carrier.begin(1, second.size());
  REQUIRE(rank.carrier.end(1, std::byte{2}));
  rank.link.keep();
  CHECK_FALSE(rank.carrier.writes_to(first));
  CHECK_FALSE(rank.carrier.writes_to(second));
  CHECK(second == Buffer(64, std::byte{2}));
  CHECK_FALSE(rank.carrier.end(0, std::byte{3}));  // It is not the next one.
}

TEST_CASE("A slot on its way to memory that is to be sent first does not go there after the call") {
  Receiver rank;
  Buffer memory(64);
  rank.expect(0, memory);
  rank.carrier.begin(0, memory.size());
  rank.link.send_zero_copy(1, 0, 0, memory);
  rank.link.keep();
  CHECK_FALSE(rank.carrier.writes_to(memory));
  // It may still be of use, where it is now.
  CHECK(rank.carrier.end(0, std::byte{1}));
  CHECK(memory == Buffer(64));
  CHECK(rank.placed(0) == nullptr);
  CHECK(*rank.endpoint.region().channel(1, 0, 0).slot(0) == std::byte{1});
}

TEST_CASE("A slot that comes again after a rail was lost is found where it is") {
  Receiver rank;
  Buffer memory(64);
  rank.expect(0, memory);
  rank.carrier.begin(0, memory.size());
  std::ranges::fill(memory, std::byte{9});  // In part.
  rank.carrier.halves.clear();
  rank.carrier.begin(0, memory.size());
  REQUIRE(rank.carrier.end(0, std::byte{1}));
  const std::byte* const slot = rank.endpoint.region().channel(1, 0, 0).slot(0);
  const std::byte* const at = rank.placed(0) != nullptr ? rank.placed(0) : slot;
  CHECK(std::ranges::count(std::span(at, 64), std::byte{1}) == 64);
}

}  // namespace tutti::test
