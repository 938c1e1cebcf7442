// Several connections to one peer: frames keep their order, none is lost and none comes twice, even
// if connections break in the middle of them; and nonsense is refused.
#include <random>

#include "support/catch.h"
#include "support/net/streams.h"

namespace tutti::tcp {
namespace {

TEST_CASE("frames keep their order over any number of rails") {
  const std::uint32_t seed = Catch::rngSeed();
  INFO("seed " << seed);
  for (const int rails : {1, 3}) {
    for (const std::size_t spread : {std::size_t{0}, std::size_t{4096}, std::size_t{1} << 30}) {
      INFO(rails << " rails, spread from " << spread);
      Pair pair = connect(rails, 65'536);
      const auto a = rails_of(std::move(pair.ends[0]), spread);
      const auto b = rails_of(std::move(pair.ends[1]), spread);
      CHECK(exchange(*a, *b, random_load(seed, 400, 100'000), random_load(seed + 1, 400, 50'000)) ==
            "");
    }
  }
}

TEST_CASE("many small frames in one direction are acknowledged all the same") {
  Pair pair = connect(2);
  const auto a = rails_of(std::move(pair.ends[0]), 0), b = rails_of(std::move(pair.ends[1]), 0);
  Load many, none;
  many.sizes.assign(20'000, 8);
  many.memory.resize(160'000, std::byte{5});
  CHECK(exchange(*a, *b, many, none) == "");
}

TEST_CASE("rails break at any moment, and the rest carries on") {
  const std::uint32_t seed = Catch::rngSeed();
  INFO("seed " << seed);
  std::mt19937 random(seed);
  for (int round = 0; round < 8; ++round) {
    INFO("round " << round);
    const int count = 2 + static_cast<int>(random() % 3);
    Pair pair = connect(count, 65'536);
    std::vector<Stream*> ends[2];
    const auto a = rails_of(std::move(pair.ends[0]), 4096, &ends[0]);
    const auto b = rails_of(std::move(pair.ends[1]), 4096, &ends[1]);
    const auto keep = static_cast<std::size_t>(random() % static_cast<unsigned>(count));
    const unsigned one_in = 1 + random() % 200;
    const auto cut = [&] {
      const std::size_t rail = random() % static_cast<unsigned>(count);
      if (rail != keep && random() % one_in == 0) reset(*ends[random() % 2][rail]);
    };
    CHECK(exchange(*a, *b, random_load(random(), 300, 100'000), random_load(random(), 300, 50'000),
                   cut) == "");
  }
}

/// Two sides whose rails are made anew, each as soon as both ask for it.
struct Anew {
  explicit Anew(std::uint32_t seed) : random(seed) {}
  struct Rail {
    bool asked[2] = {};
    std::optional<Connection> made[2];
  };
  std::mt19937 random;
  std::array<Rail, 3> rails{};
  std::vector<Stream*> ends[2];
  int taken = 0, missed = 0;

  std::unique_ptr<net::Carrier> renew(std::size_t side, std::size_t rail) {
    Rail& at = rails[rail];
    at.asked[side] = true;
    if (at.asked[0] && at.asked[1]) {
      Pair pair = connect(1, 65'536);
      for (const std::size_t which : {0, 1}) {
        at.asked[which] = false;
        at.made[which] = std::move(pair.ends[which].front());
      }
      // Now and then only one side gets it, and has to find out.
      if (random() % 2 == 0) {
        at.made[random() % 2].reset();
        ++missed;
      }
    }
    if (!at.made[side] || random() % 2 == 0) return nullptr;  // Not always at once.
    at.asked[side] = false;
    auto stream = std::make_unique<Stream>(*std::exchange(at.made[side], std::nullopt));
    ends[side][rail] = stream.get();
    ++taken;
    return stream;
  }
};
class OneSide final : public net::Renewal {
 public:
  OneSide(Anew& anew, std::size_t side) : anew_(anew), side_(side) {}
  std::unique_ptr<net::Carrier> renew(std::size_t rail) override {
    return anew_.renew(side_, rail);
  }
  void drop(std::size_t rail) override {
    anew_.rails[rail].asked[side_] = false;
    anew_.rails[rail].made[side_].reset();
  }

 private:
  Anew& anew_;
  std::size_t side_;
};

TEST_CASE("rails that broke are taken again, at any moment, and nothing is lost or comes twice") {
  const std::uint32_t seed = Catch::rngSeed();
  INFO("seed " << seed);
  Anew anew(seed);
  Pair pair = connect(3, 65'536);
  const auto a =
      rails_of(std::move(pair.ends[0]), 4096, &anew.ends[0], std::make_unique<OneSide>(anew, 0));
  const auto b =
      rails_of(std::move(pair.ends[1]), 4096, &anew.ends[1], std::make_unique<OneSide>(anew, 1));
  std::mt19937 random(seed);
  // One at a time: the others have to be there on both sides.
  const auto cut = [&] {
    if (random() % 20 != 0 || a->alive() < 3 || b->alive() < 3) return;
    reset(*anew.ends[random() % 2][random() % 3]);
  };
  while (anew.taken < 12 || anew.missed < 2) {
    const std::string wrong = exchange(*a, *b, random_load(random(), 300, 100'000),
                                       random_load(random(), 300, 50'000), cut);
    REQUIRE(wrong == "");
  }
}

TEST_CASE("once no rail is left, its error is one") {
  Pair pair = connect(3);
  const auto a = rails_of(std::move(pair.ends[0]), 0);
  pair.ends[1].clear();
  Memory sink(0);
  CHECK(first_error(*a, sink).find("its process has ended") != std::string::npos);
  CHECK(a->alive() == 0);
}

/// Notes the kinds of the frames that come.
class Kinds final : public FrameSink {
 public:
  Result<std::optional<std::byte*>> place(const FrameHeader& header) override {
    memory_.resize(header.bytes + 1);
    return std::optional(memory_.data());
  }
  bool takes_turns(const FrameHeader& header) const override { return header.kind == 7; }
  Status arrived(const FrameHeader& header) override {
    kinds.push_back(header.kind);
    last = {memory_.begin(), memory_.begin() + header.bytes};
    return ok();
  }
  std::vector<int> kinds;
  std::vector<std::byte> last;

 private:
  std::vector<std::byte> memory_;
};

TEST_CASE("what goes ahead does not wait until the peer has confirmed that a rail is lost") {
  const auto before = GENERATE(false, true);  // The rail is lost before, or after.
  const auto both = GENERATE(false, true);    // The next one is lost as well.
  INFO("before " << before << ", both " << both);
  Pair pair = connect(3);
  std::vector<Stream*> ends;
  const auto a = rails_of(std::move(pair.ends[0]), 0, &ends);
  const auto b = rails_of(std::move(pair.ends[1]), 0);
  Kinds to_a, to_b;
  const std::vector<std::byte> payload(100, std::byte{42});
  const auto lose = [&](std::size_t rail) {
    reset(*ends[rail]);
    while (a->alive() == 3 - rail) REQUIRE(a->progress(to_a));
  };
  const auto ahead = [&] { a->send_ahead({.bytes = 100, .kind = 3}, payload); };
  if (!before) ahead();
  lose(0);
  a->send({.bytes = 100, .kind = 2}, payload);
  if (before) ahead();
  if (both) lose(1);
  // Here nothing is received any more, as after a call that failed.
  REQUIRE(a->flush());
  while (to_b.kinds.empty()) REQUIRE(b->progress(to_b));
  CHECK(to_b.kinds == std::vector{3});
  CHECK(to_b.last == payload);
  while (to_b.kinds.back() != 2) {
    REQUIRE(a->progress(to_a));
    REQUIRE(b->progress(to_b));
  }
}

TEST_CASE("frames that no rails send are refused") {
  const auto said = [](const FrameHeader& header, int times, int rails = 2) {
    Pair pair = connect(rails);
    const auto a = rails_of(std::move(pair.ends[0]), 0);
    Memory sink(100);
    const auto bytes = encode(header);
    const int raw = pair.ends[1].front().socket.get();
    for (int i = 0; i < times; ++i)
      REQUIRE(::send(raw, bytes.data(), bytes.size(), MSG_NOSIGNAL) == kHeaderBytes);
    return first_error(*a, sink);
  };
  CHECK(said({.kind = 1, .order = 5}, 2).find("a frame came twice") != std::string::npos);
  CHECK(said({.kind = 1, .order = 5}, 1, 1).find("a frame is out of order") != std::string::npos);
  CHECK(said({.kind = 1, .order = 1000}, 1).find("stream is corrupt") != std::string::npos);
  CHECK(said({.kind = 1, .acked = 1}, 1).find("it acknowledges more than was sent") !=
        std::string::npos);
  CHECK(said({.bytes = 8, .kind = 0xff00}, 1).find("stream is corrupt") != std::string::npos);
  CHECK(said({.kind = 0xff01, .channel = 9}, 1).find("stream is corrupt") != std::string::npos);
  CHECK(said({.kind = 0xff01, .channel = 0}, 1).find("stream is corrupt") != std::string::npos);
  CHECK(said({.kind = 0xff01, .channel = 1, .position = 1}, 1).find("stream is corrupt") !=
        std::string::npos);
  CHECK(said({.kind = 0xff02, .channel = 1, .position = 1}, 1).find("stream is corrupt") !=
        std::string::npos);
  for (const std::uint32_t kind : {0U, 0xff00U, 0x10001U})
    CHECK(said({.kind = 0xff03, .channel = kind}, 1).find("does not go ahead") !=
          std::string::npos);
  // Each one needs a confirmation; so many don't fit into the queue.
  CHECK(said({.kind = 0xff01, .channel = 1}, 300).find("it takes no confirmations") !=
        std::string::npos);
}

/// A connection whose peer is the test: each look takes one step, such as half of a frame.
class Scripted final : public net::Carrier {
 public:
  using Step = std::function<Result<bool>(FrameSink&)>;
  void send(FrameHeader, std::span<const Piece>) override { ++queued; }
  using Carrier::send;
  Result<bool> progress(FrameSink& sink) override {
    const Step now = std::exchange(step, nullptr);
    return now ? now(sink) : false;
  }
  bool ready() const override { return step != nullptr; }
  std::size_t pending() const override { return full ? queued : 0; }
  std::string where() const override { return "scripted: rank 1"; }
  void leave() override {}
  bool left() override { return true; }
  Step step;
  std::size_t queued = 0;
  bool full = false;  // Nothing leaves.
};

/// As net/replicator.h's: payloads of kind 7 have one place, which one frame has at a time, and
/// belong to a note that `place` has checked.
class Notes final : public FrameSink {
 public:
  static constexpr std::uint16_t kKind = 7;
  Result<std::optional<std::byte*>> place(const FrameHeader& header) override {
    if (header.kind != kKind) return std::optional(&other_);
    if (header.position >= notes.size()) return Error{Code::kPeerFailed, "no such note"};
    if (turn_ && *turn_ != header.position) return std::optional<std::byte*>{};
    turn_ = header.position;
    return std::optional(&shared_);
  }
  bool takes_turns(const FrameHeader& header) const override { return header.kind == kKind; }
  Status arrived(const FrameHeader& header) override {
    if (header.kind != kKind) return ok();
    unchecked = unchecked || turn_ != header.position;
    turn_.reset();
    if (!unchecked) notes[header.position] = std::to_integer<int>(shared_);
    return ok();
  }
  std::array<int, 4> notes{};
  bool unchecked = false;  // A note was announced whose place was not asked for.

 private:
  std::byte shared_{}, other_{};
  std::optional<std::uint64_t> turn_;
};

/// Three rails to a peer that may lie.
struct ThreeRails {
  ThreeRails() {
    std::vector<std::unique_ptr<net::Carrier>> carriers;
    for (Scripted*& one : ends) {
      auto made = std::make_unique<Scripted>();
      one = made.get();
      carriers.push_back(std::move(made));
    }
    rails.emplace(std::move(carriers));
  }
  /// The first half of a frame, whose payload is one byte or none.
  void begin(std::size_t rail, const FrameHeader& header) {
    look(rail, [&, rail](FrameSink& sink) -> Result<bool> {
      coming[rail] = header;
      TUTTI_TRY(places[rail], sink.place(header));
      return true;
    });
  }
  void end(std::size_t rail, int payload = 0) {
    look(rail, [&, rail, payload](FrameSink& sink) -> Result<bool> {
      REQUIRE(places[rail]);
      if (coming[rail].bytes != 0) **places[rail] = static_cast<std::byte>(payload);
      TUTTI_RETURN_IF_ERROR(sink.arrived(coming[rail]));
      return true;
    });
  }
  void whole(std::size_t rail, const FrameHeader& header, int payload = 0) {
    begin(rail, header);
    end(rail, payload);
  }
  /// The peer says so by another rail.
  void lose(std::size_t rail, std::size_t by) {
    look(rail, [](FrameSink&) -> Result<bool> { return Error{Code::kPeerFailed, "cut"}; });
    whole(by, {.kind = 0xff01, .channel = static_cast<std::uint32_t>(rail)});
  }
  /// Nothing happens any more once there was an error.
  void look(std::size_t rail, Scripted::Step step) {
    if (!error.empty()) return;
    ends[rail]->step = std::move(step);
    if (auto moved = rails->progress(notes); !moved) error = moved.error().what;
  }

  std::array<Scripted*, 3> ends{};
  std::array<FrameHeader, 3> coming{};
  std::array<std::optional<std::byte*>, 3> places{};
  std::optional<net::Rails> rails;
  Notes notes;
  std::string error;
};

FrameHeader note(std::uint32_t order, std::uint64_t position) {
  return {.bytes = 1, .kind = Notes::kKind, .position = position, .order = order};
}

TEST_CASE("a frame that comes by two rails at once is refused") {
  ThreeRails peer;
  peer.begin(0, note(1, 1'000'000));  // Waits for its turn, and so is not checked.
  peer.begin(1, {.kind = 2, .order = 1});
  peer.end(0);
  peer.whole(2, {.kind = 2, .order = 0});
  CHECK(peer.error.find("a frame comes by two ways: the stream is corrupt") != std::string::npos);
  CHECK_FALSE(peer.notes.unchecked);
}

// Its payload is the user's again once it is acknowledged.
TEST_CASE("a frame that has not left can't be acknowledged") {
  for (const bool full : {false, true}) {
    ThreeRails peer;
    peer.ends[0]->full = full;
    peer.rails->send({.kind = 2}, Piece());
    peer.whole(1, {.kind = 0xff00, .acked = 1});
    CHECK(peer.rails->held() == (full ? 1 : 0));
    CHECK((peer.error.find("it acknowledges what was not sent: the stream is corrupt") !=
           std::string::npos) == full);
  }
}

TEST_CASE("a frame whose turn comes while another one has its place is refused") {
  ThreeRails peer;
  peer.begin(0, note(0, 0));
  peer.whole(1, note(1, 1));
  peer.lose(0, 2);
  peer.whole(1, {.kind = 2, .order = 0});  // Not what the lost rail brought.
  CHECK(peer.error.find("a frame came out of turn: the stream is corrupt") != std::string::npos);
}

TEST_CASE("a frame that comes before its turn outlives the loss of another rail") {
  for (const std::size_t lost : {0U, 1U, 2U}) {
    INFO("rail " << lost << " is lost");
    const std::size_t rail = lost == 1 ? 0 : 1, other = 3 - lost - rail;
    ThreeRails peer;
    peer.begin(rail, note(1, 1));
    peer.lose(lost, other);
    peer.end(rail, 42);
    peer.whole(other, note(0, 0), 41);
    CHECK(peer.error == "");
    CHECK_FALSE(peer.notes.unchecked);
    CHECK(peer.notes.notes[0] == 41);
    CHECK(peer.notes.notes[1] == 42);
  }
}

}  // namespace
}  // namespace tutti::tcp
