// Messages between the renewals of two ranks about a lost rail, over those that are left
// (net/rails.h).
#include "support/catch.h"
#include "support/net/streams.h"

namespace tutti::tcp {
namespace {

/// A renewal that brings nothing, and notes what it receives.
class Recorder final : public net::Renewal {
 public:
  explicit Recorder(std::vector<std::string>& received) : received_(received) {}
  std::unique_ptr<net::Carrier> renew(std::size_t) override { return nullptr; }
  void drop(std::size_t) override {}
  std::size_t next_message(std::size_t rail,
                           std::span<std::byte, kMostMessageBytes> into) override {
    into[0] = static_cast<std::byte>('0' + rail);
    into[1] = static_cast<std::byte>('a' + sent_++ % 26);
    return 2;
  }
  bool take_message(std::size_t rail, std::span<const std::byte> bytes) override {
    received_.push_back(std::to_string(rail) + ": ");
    for (const std::byte one : bytes) received_.back() += static_cast<char>(one);
    return bytes.size() == 2;
  }

 private:
  std::vector<std::string>& received_;
  int sent_ = 0;
};

TEST_CASE("renewals get each other's messages about a lost rail, over those that are left") {
  Pair pair = connect(3);
  std::vector<Stream*> ends;
  std::array<std::vector<std::string>, 2> received;
  const auto a =
      rails_of(std::move(pair.ends[0]), 0, &ends, std::make_unique<Recorder>(received[0]));
  const auto b =
      rails_of(std::move(pair.ends[1]), 0, nullptr, std::make_unique<Recorder>(received[1]));
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
  drive([&] { return received[0].size() > 2 && received[1].size() > 2; });
  for (const auto& one : received) CHECK((one[0] == "1: 1a" && one[1] == "1: 1b"));
  // They go over the first one, which is lost as well.
  reset(*ends[0]);
  const auto has_received = [&](std::size_t side, const char* message) {
    return std::ranges::any_of(received[side],
                               [&](const std::string& one) { return one.starts_with(message); });
  };
  drive([&] { return has_received(0, "0: 0") && has_received(1, "0: 0"); });
  const std::size_t before = received[0].size();
  drive([&] { return received[0].size() > before + 4; });
}

/// A connection that gives nothing to the network while it is full.
class Full final : public net::Carrier {
 public:
  void send(FrameHeader header, std::span<const Piece> pieces) override {
    if (header.kind == 0xff04) messages.push_back(pieces[0]);
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
  std::vector<Piece> messages;
  std::size_t queued = 0;
  bool is_full = true;
};

TEST_CASE("a message stays as it is until the rail that carries it has given it away") {
  std::array<Full*, 2> ends{};
  std::vector<std::unique_ptr<net::Carrier>> carriers;
  for (Full*& end : ends) {
    auto made = std::make_unique<Full>();
    end = made.get();
    carriers.push_back(std::move(made));
  }
  std::vector<std::string> received;
  net::Rails rails(std::move(carriers), 0, 0, std::make_unique<Recorder>(received));
  Memory sink(0);
  const auto drive = [&](std::chrono::milliseconds time) {
    const auto end = std::chrono::steady_clock::now() + time;
    while (std::chrono::steady_clock::now() < end) REQUIRE(rails.progress(sink));
  };
  ends[0]->next = FrameHeader{};
  drive(std::chrono::milliseconds(10));
  ends[1]->next = FrameHeader{.kind = 0xff02, .channel = 0};  // The peer has given it up as well.
  drive(std::chrono::milliseconds(500));                      // Five ticks.
  REQUIRE(ends[1]->messages.size() == 1);
  // The peer has had it once more, and lost it: this message is of a time that is not here yet.
  FrameHeader theirs{.bytes = 2, .kind = 0xff04, .channel = 0, .position = 1};
  ends[1]->next = theirs;
  drive(std::chrono::milliseconds(10));
  CHECK((received.empty() && !ends[1]->next));
  theirs.position = 0;
  ends[1]->next = theirs;
  drive(std::chrono::milliseconds(10));
  CHECK(received.size() == 1);
  const Piece message = ends[1]->messages[0];
  CHECK(message[1] == std::byte{'a'});
  ends[1]->is_full = false;
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(100);
  while (ends[1]->messages.size() < 3 && std::chrono::steady_clock::now() < end)
    REQUIRE(rails.progress(sink));
  REQUIRE(ends[1]->messages.size() == 3);
  CHECK(message[1] == std::byte{'c'});  // In the same place.
}

TEST_CASE("messages that no renewal sends are refused") {
  std::vector<std::string> received;
  const auto error_after = [&](const FrameHeader& header, bool renews = true) {
    Pair pair = connect(2);
    const auto a = rails_of(std::move(pair.ends[0]), 0, nullptr,
                            renews ? std::make_unique<Recorder>(received) : nullptr);
    Memory sink(100);
    const auto bytes = encode(header);
    const int raw = pair.ends[1].front().socket.get();
    REQUIRE(::send(raw, bytes.data(), bytes.size(), MSG_NOSIGNAL) == kHeaderBytes);
    return first_error(*a, sink);
  };
  const FrameHeader message{.kind = 0xff04, .channel = 1};
  CHECK(error_after(message, false).find("connection anew that is none") != std::string::npos);
  CHECK(error_after(message).find("anew that was not lost") != std::string::npos);
  CHECK(error_after({.kind = 0xff04, .channel = 9}).find("anew that is none") != std::string::npos);
  CHECK(error_after({.kind = 0xff04, .channel = 0}).find("anew that is none") != std::string::npos);
  CHECK(error_after({.kind = 0xff04, .channel = 1, .position = 2}).find("there never was") !=
        std::string::npos);
  CHECK(error_after({.bytes = 129, .kind = 0xff04, .channel = 1})
            .find("message between rails is too") != std::string::npos);
  CHECK(error_after({.bytes = 9, .kind = 0xff04, .channel = 1}, false).find("has a payload") !=
        std::string::npos);
  CHECK(received.empty());
}

}  // namespace
}  // namespace tutti::tcp
