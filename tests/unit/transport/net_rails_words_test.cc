// What the renewals of two ranks tell each other about a lost rail, over those that are left
// (net/rails.h).
#include "support/catch.h"
#include "support/net/streams.h"

namespace tutti::tcp {
namespace {

/// A renewal that brings nothing, and notes what it hears.
class Listener final : public net::Renewal {
 public:
  explicit Listener(std::vector<std::string>& heard) : heard_(heard) {}
  std::unique_ptr<net::Carrier> renew(std::size_t) override { return nullptr; }
  void drop(std::size_t) override {}
  std::size_t say(std::size_t rail, std::span<std::byte, kMostWordBytes> into) override {
    into[0] = static_cast<std::byte>('0' + rail);
    into[1] = static_cast<std::byte>('a' + said_++ % 26);
    return 2;
  }
  bool hear(std::size_t rail, std::span<const std::byte> words) override {
    heard_.push_back(std::to_string(rail) + ": ");
    for (const std::byte one : words) heard_.back() += static_cast<char>(one);
    return words.size() == 2;
  }

 private:
  std::vector<std::string>& heard_;
  int said_ = 0;
};

TEST_CASE("renewals hear each other's words about a lost rail, over those that are left") {
  Pair pair = connect(3);
  std::vector<Stream*> ends;
  std::array<std::vector<std::string>, 2> heard;
  const auto a = rails_of(std::move(pair.ends[0]), 0, &ends, std::make_unique<Listener>(heard[0]));
  const auto b =
      rails_of(std::move(pair.ends[1]), 0, nullptr, std::make_unique<Listener>(heard[1]));
  Memory at_a(0), at_b(0);
  const auto drive = [&](auto until) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(100);
    while (!until() && std::chrono::steady_clock::now() < end) {
      REQUIRE(a->progress(at_a));
      REQUIRE(b->progress(at_b));
    }
    REQUIRE(until());
  };
  reset(*ends[1]);
  drive([&] { return heard[0].size() > 2 && heard[1].size() > 2; });
  for (const auto& one : heard) CHECK((one[0] == "1: 1a" && one[1] == "1: 1b"));
  // They go over the first one, which is lost as well.
  reset(*ends[0]);
  const auto has_heard = [&](std::size_t side, const char* words) {
    return std::ranges::any_of(heard[side],
                               [&](const std::string& one) { return one.starts_with(words); });
  };
  drive([&] { return has_heard(0, "0: 0") && has_heard(1, "0: 0"); });
  const std::size_t before = heard[0].size();
  drive([&] { return heard[0].size() > before + 4; });
}

/// A connection that gives nothing to the network while it is full.
class Full final : public net::Carrier {
 public:
  void send(FrameHeader header, std::span<const Piece> pieces) override {
    if (header.kind == 0xff04) words.push_back(pieces[0]);
    ++queued;
  }
  using Carrier::send;
  Result<bool> progress(FrameSink& sink) override {
    if (!next) return false;
    if (next->kind == 0) return Error{Code::kPeerFailed, "cut"};
    const FrameHeader header = *std::exchange(next, std::nullopt);
    TUTTI_TRY(const auto place, sink.place(header));
    REQUIRE(place);
    TUTTI_RETURN_IF_ERROR(sink.arrived(header));
    return true;
  }
  bool ready() const override { return next.has_value(); }
  std::size_t pending() const override { return is_full ? queued : 0; }
  std::string where() const override { return "a full connection"; }
  void leave() override {}
  bool left() override { return true; }
  std::optional<FrameHeader> next;  // Comes; kind 0: it breaks.
  std::vector<Piece> words;
  std::size_t queued = 0;
  bool is_full = true;
};

TEST_CASE("words stay as they are until the rail that carries them has given them away") {
  std::array<Full*, 2> ends{};
  std::vector<std::unique_ptr<net::Carrier>> carriers;
  for (Full*& end : ends) {
    auto made = std::make_unique<Full>();
    end = made.get();
    carriers.push_back(std::move(made));
  }
  std::vector<std::string> heard;
  net::Rails rails(std::move(carriers), 0, 0, std::make_unique<Listener>(heard));
  Memory sink(0);
  const auto drive = [&](std::chrono::milliseconds time) {
    const auto end = std::chrono::steady_clock::now() + time;
    while (std::chrono::steady_clock::now() < end) REQUIRE(rails.progress(sink));
  };
  ends[0]->next = FrameHeader{};
  drive(std::chrono::milliseconds(10));
  ends[1]->next = FrameHeader{.kind = 0xff02, .channel = 0};  // The peer has given it up as well.
  drive(std::chrono::milliseconds(500));                      // Five ticks.
  REQUIRE(ends[1]->words.size() == 1);
  // The peer has had it once more, and lost it: these words are of a time that is not here yet.
  FrameHeader theirs{.bytes = 2, .kind = 0xff04, .channel = 0, .position = 1};
  ends[1]->next = theirs;
  drive(std::chrono::milliseconds(10));
  CHECK((heard.empty() && !ends[1]->next));
  theirs.position = 0;
  ends[1]->next = theirs;
  drive(std::chrono::milliseconds(10));
  CHECK(heard.size() == 1);
  const Piece words = ends[1]->words[0];
  CHECK(words[1] == std::byte{'a'});
  ends[1]->is_full = false;
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(100);
  while (ends[1]->words.size() < 3 && std::chrono::steady_clock::now() < end)
    REQUIRE(rails.progress(sink));
  REQUIRE(ends[1]->words.size() == 3);
  CHECK(words[1] == std::byte{'c'});  // In the same place.
}

TEST_CASE("words that no renewal says are refused") {
  std::vector<std::string> heard;
  const auto said = [&](const FrameHeader& header, bool renews = true) {
    Pair pair = connect(2);
    const auto a = rails_of(std::move(pair.ends[0]), 0, nullptr,
                            renews ? std::make_unique<Listener>(heard) : nullptr);
    Memory sink(100);
    const auto bytes = encode(header);
    const int raw = pair.ends[1].front().socket.get();
    REQUIRE(::send(raw, bytes.data(), bytes.size(), MSG_NOSIGNAL) == kHeaderBytes);
    return first_error(*a, sink);
  };
  const FrameHeader words{.kind = 0xff04, .channel = 1};
  CHECK(said(words, false).find("connection anew that is none") != std::string::npos);
  CHECK(said(words).find("anew that was not lost") != std::string::npos);
  CHECK(said({.kind = 0xff04, .channel = 9}).find("anew that is none") != std::string::npos);
  CHECK(said({.kind = 0xff04, .channel = 0}).find("anew that is none") != std::string::npos);
  CHECK(said({.kind = 0xff04, .channel = 1, .position = 2}).find("there never was") !=
        std::string::npos);
  CHECK(said({.bytes = 129, .kind = 0xff04, .channel = 1}).find("words between rails are too") !=
        std::string::npos);
  CHECK(said({.bytes = 9, .kind = 0xff04, .channel = 1}, false).find("has no payload") !=
        std::string::npos);
  CHECK(heard.empty());
}

}  // namespace
}  // namespace tutti::tcp
