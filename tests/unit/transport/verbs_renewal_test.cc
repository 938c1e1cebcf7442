// How the queue pairs of a lost rail are made anew: words between ranks, and a peer that lies. What
// two ranks do with it is in support/net/verbs_cases.h and verbs_link_test.cc.
#include "transport/verbs/renewal.h"

#include "support/catch.h"
#include "support/net/fake_rdma.h"

namespace tutti::verbs {
namespace {

using test::FakeRdma;
using What = RenewalWords::What;
using namespace std::chrono_literals;

using Bytes = std::array<std::byte, kRenewalWordBytes>;

RenewalWords sound_words() {
  return {.what = What::kAsk,
          .serial = 7,
          .from = {.gid = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 99, 0, 2},
                   .lid = 0,
                   .mtu = IBV_MTU_1024},
          .psn = 0xabcdef,
          .pairs = 2,
          .numbers = {300, 0xffffff, 0, 0}};
}

Bytes bytes_of(const RenewalWords& words) {
  Bytes bytes{};
  encode(words, bytes);
  return bytes;
}

bool is_taken(const RenewalWords& words, LinkLayer layer = kRoce) {
  return parse_renewal_words(bytes_of(words), 2, layer).has_value();
}

TEST_CASE("words are what was said") {
  const RenewalWords words = sound_words();
  const auto parsed = parse_renewal_words(bytes_of(words), 2, kRoce);
  REQUIRE(parsed);
  CHECK(parsed->what == words.what);
  CHECK(parsed->serial == words.serial);
  CHECK(parsed->from.gid == words.from.gid);
  CHECK(parsed->from.lid == words.from.lid);
  CHECK(parsed->from.mtu == words.from.mtu);
  CHECK(parsed->psn == words.psn);
  CHECK(parsed->pairs == words.pairs);
  CHECK(parsed->numbers == words.numbers);
}

TEST_CASE("words with any field that can't be are none") {
  const auto with = [](auto change) {
    RenewalWords words = sound_words();
    change(words);
    return words;
  };
  REQUIRE(is_taken(sound_words()));
  CHECK_FALSE(is_taken(with([](auto& words) { words.what = static_cast<What>(0); })));
  CHECK_FALSE(is_taken(with([](auto& words) { words.what = static_cast<What>(3); })));
  CHECK_FALSE(is_taken(with([](auto& words) { words.serial = 0; })));
  CHECK_FALSE(is_taken(with([](auto& words) { words.psn = kMostPsn + 1; })));
  CHECK_FALSE(is_taken(with([](auto& words) { words.from.mtu = 0; })));
  CHECK_FALSE(is_taken(with([](auto& words) { words.from.mtu = IBV_MTU_4096 + 1; })));
  CHECK_FALSE(is_taken(with([](auto& words) { words.pairs = 1; })));
  CHECK_FALSE(is_taken(with([](auto& words) { words.pairs = 255; })));
  CHECK_FALSE(is_taken(with([](auto& words) { words.numbers[1] = 0; })));
  CHECK_FALSE(is_taken(with([](auto& words) { words.numbers[1] = kMostNumber + 1; })));
  CHECK_FALSE(is_taken(with([](auto& words) { words.numbers[2] = 5; })));
  CHECK_FALSE(is_taken(with([](auto& words) { words.from.gid = {}; })));
  CHECK_FALSE(is_taken(with([](auto& words) { words.from.gid[0] = 0xff; })));
  // InfiniBand goes by LIDs.
  CHECK_FALSE(is_taken(sound_words(), kInfiniBand));
  CHECK(is_taken(with([](auto& words) { words.from.lid = kMostUnicastLid; }), kInfiniBand));
  CHECK_FALSE(
      is_taken(with([](auto& words) { words.from.lid = kMostUnicastLid + 1; }), kInfiniBand));
  // Shorter, longer, and what is zero.
  const Bytes bytes = bytes_of(sound_words());
  for (std::size_t length = 0; length < bytes.size(); ++length)
    CHECK_FALSE(parse_renewal_words(std::span(bytes).first(length), 2, kRoce));
  std::array<std::byte, kRenewalWordBytes + 1> longer{};
  std::ranges::copy(bytes, longer.begin());
  CHECK_FALSE(parse_renewal_words(longer, 2, kRoce));
  for (const std::size_t at : {3U, 10U, 11U}) {
    Bytes other = bytes;
    other[at] = std::byte{1};
    CHECK_FALSE(parse_renewal_words(other, 2, kRoce));
  }
}

/// One rank's end of a rail that was given up.
struct End {
  struct Times {
    std::chrono::milliseconds pause{0}, longest_pause{0}, patience{1h};
  };
  End(std::size_t which, int me, int peer, const Times& times)
      : device(open(which)), in(memory()), out(memory()), key_in(enroll(in)), key_out(enroll(out)) {
    const auto peer_in = RemoteMemory{reinterpret_cast<std::uintptr_t>(in.data()), in.size(),
                                      key_in->rkey};  // Nobody reads records here.
    link = std::make_unique<Link>(*device,
                                  LinkParts{.me = me,
                                            .peer = peer,
                                            .index = 0,
                                            .where = "verbs: a lost rail",
                                            .peer_host = "node7",
                                            .peer_device = "fake1:1",
                                            .depth = kDepth,
                                            .inline_bytes = 0,
                                            .most_message = 1 << 20,
                                            .told_bytes = 4096,
                                            .near = {in, key_in->lkey},
                                            .replica = {out, key_out->lkey},
                                            .peer_near = peer_in,
                                            .peer_replica = peer_in,
                                            .gpudirect = {},
                                            .in = {in, key_in->lkey},
                                            .out = {out, key_out->lkey},
                                            .peer_in = peer_in,
                                            .patience = 1h},
                                  pairs());
    // It failed, and nobody took what the device said of it.
    REQUIRE(link->begin());
    link->give_up();
    link->abandon();
    renewal = std::make_unique<Renewal>(
        std::vector{Renewal::Rail{device.get(), link.get()}},
        [this](std::size_t, Link&) { ++taken; },
        RenewalTimes{.first_pause = times.pause,
                     .longest_pause = times.longest_pause,
                     .repeat = 0ms,
                     .patience = times.patience});
  }
  /// What it says at its next look; empty: nothing.
  std::optional<RenewalWords> say() {
    if (auto made = renewal->renew(0)) carrier = std::move(made);
    std::array<std::byte, net::Renewal::kMostWordBytes> words{};
    const std::size_t bytes = renewal->say(0, words);
    auto said = parse_renewal_words(std::span(words).first(bytes), 2, kRoce);
    CHECK(said.has_value() == (bytes != 0));
    if (said) serial = said->serial;
    return said;
  }
  bool hear(const RenewalWords& words) const { return renewal->hear(0, bytes_of(words)); }
  bool hear(const std::optional<RenewalWords>& words) const { return words && hear(*words); }

  static constexpr std::uint32_t kDepth = 16;
  std::unique_ptr<Device> device;
  std::vector<std::byte> in, out;
  Memory key_in, key_out;
  std::unique_ptr<Link> link;
  std::unique_ptr<net::Carrier> carrier;
  int taken = 0;
  std::uint32_t serial = 0;  // Said last.
  std::unique_ptr<Renewal> renewal;

 private:
  static std::unique_ptr<Device> open(std::size_t which) {
    use_library(FakeRdma::library());
    use_ports(FakeRdma::ports());
    const Port port = FakeRdma::ports()[which];
    auto device = Device::open({.port = port, .gid = port.gids.front(), .near = ""}, 4096);
    REQUIRE(device);
    return *std::move(device);
  }
  static std::vector<std::byte> memory() {
    return std::vector<std::byte>(2 * kDepth * kRecordBytes);
  }
  Memory enroll(std::span<std::byte> bytes) const {
    auto key = device->enroll(bytes);
    REQUIRE(key);
    return *std::move(key);
  }
  std::vector<Pair> pairs() const {
    std::vector<Pair> made;
    for (int i = 0; i < 2; ++i) {
      ibv_qp_cap wanted = capacity(kDepth);
      auto pair = device->make_pair(wanted);
      REQUIRE(pair);
      made.push_back(*std::move(pair));
    }
    return made;
  }
};

TEST_CASE("an ask is answered each time, and one of an earlier attempt never") {
  End asks(0, 0, 1, {}), answers(1, 1, 0, {});
  CHECK_FALSE(answers.say());  // Nobody has asked.
  const auto ask = asks.say();
  REQUIRE(ask);
  CHECK(ask->what == What::kAsk);
  REQUIRE(answers.hear(ask));
  const auto answer = answers.say();
  REQUIRE(answer);
  CHECK(answer->serial == ask->serial);
  CHECK_FALSE(answers.say());  // Once for each ask.
  REQUIRE(answers.hear(ask));
  const auto again = answers.say();
  REQUIRE(again);
  CHECK(again->numbers == answer->numbers);  // The same queue pairs.
  RenewalWords later = *ask;
  later.serial += 5;
  REQUIRE(answers.hear(later));
  const auto other = answers.say();
  REQUIRE(other);
  CHECK(other->serial == later.serial);
  CHECK(other->numbers != answer->numbers);
  REQUIRE(answers.hear(ask));  // Late, by another rail.
  CHECK_FALSE(answers.say());
}

TEST_CASE("an answer counts for the attempt that asked for it, and lies are refused") {
  End asks(0, 0, 1, {}), answers(1, 1, 0, {});
  const auto first = asks.say();
  REQUIRE(answers.hear(first));
  const auto answer = answers.say();
  REQUIRE(answer);
  RenewalWords lie = *answer;
  lie.serial += 1;
  CHECK_FALSE(asks.hear(lie));        // It was not asked yet.
  CHECK_FALSE(asks.hear(*first));     // It is the one that asks,
  CHECK_FALSE(answers.hear(answer));  // and the other one answers.
  asks.renewal->drop(0);              // The attempt is over.
  const auto second = asks.say();
  REQUIRE(second);
  CHECK(second->serial == first->serial + 1);
  CHECK(second->psn != first->psn);  // But for one in 2^24 runs.
  CHECK(asks.hear(answer));          // Late, and no lie,
  const int open = FakeRdma::the().open_count();
  const auto repeated = asks.say();
  REQUIRE(repeated);  // but it has not connected anything.
  CHECK(repeated->serial == second->serial);
  CHECK(FakeRdma::the().open_count() == open);
}

/// Looks of both ends at each other; words of the answering one wait until `held` looks are over.
void look(End& asks, End& answers, int looks, int held = 0) {
  for (int look = 0; look < looks && asks.taken + answers.taken < 2; ++look) {
    if (const auto ask = asks.say()) REQUIRE(answers.hear(*ask));
    if (answers.taken == 0) CHECK(asks.taken == 0);  // Its greeting comes last.
    const auto answer = answers.say();
    if (answer && look >= held) REQUIRE(asks.hear(*answer));
  }
}

TEST_CASE("both ends take the link, and what was completed before does not end it") {
  const int held = GENERATE(0, 50);  // Nothing is sent to a queue pair that is not connected yet.
  End asks(0, 0, 1, {}), answers(1, 1, 0, {});
  look(asks, answers, 1000, held);
  CHECK(asks.taken == 1);
  CHECK(answers.taken == 1);
  CHECK(asks.serial == 1);  // By the first attempt.
  CHECK(asks.carrier->where() ==
        "verbs: rank 1 (node7) over fake0:1, 10.99.0.1 to fake1:1 10.99.0.2");
  CHECK(FakeRdma::the().complaint() == "");
}

TEST_CASE("nothing is taken that does not carry something in both directions") {
  const std::uint32_t cut = GENERATE(1U, 2U);  // What the one that asks sends, or the other one.
  // Its own device says at once that it was in vain; what the other one sends is only missed.
  End asks(0, 0, 1, {.patience = cut == 1 ? 1h : 20ms}), answers(1, 1, 0, {.patience = 20ms});
  FakeRdma::the().cut(true, cut);
  FakeRdma::the().stray(true);  // Devices are slow to say that it was in vain.
  const auto end = std::chrono::steady_clock::now() + 60s;
  while (asks.serial < 10 && std::chrono::steady_clock::now() < end) look(asks, answers, 1);
  CHECK(asks.serial == 10);
  CHECK(asks.taken + answers.taken == 0);
  FakeRdma::the().cut(false);
  FakeRdma::the().stray(false);
  while (asks.taken + answers.taken < 2 && std::chrono::steady_clock::now() < end)
    look(asks, answers, 1);
  CHECK(asks.taken + answers.taken == 2);
}

TEST_CASE("pauses between attempts double, up to the longest one") {
  const End::Times times{.pause = 40ms, .longest_pause = 160ms};
  End asks(0, 0, 1, times), answers(1, 1, 0, times);
  FakeRdma::the().cut(true, 1);
  const auto begin = std::chrono::steady_clock::now();
  while (asks.serial < 5 && std::chrono::steady_clock::now() < begin + 60s) look(asks, answers, 1);
  FakeRdma::the().cut(false);
  CHECK(asks.serial == 5);
  CHECK(std::chrono::steady_clock::now() - begin >= 40ms + 80ms + 160ms + 160ms);
}

TEST_CASE("nothing begins while the port is down or has no address, and a new address is said") {
  End asks(0, 0, 1, {});
  const int open = FakeRdma::the().open_count();
  FakeRdma::the().pull(1);
  CHECK_FALSE(asks.say());
  FakeRdma::the().pull(0);
  auto ports = FakeRdma::ports();
  ports[0].gids.clear();
  use_ports(ports);
  CHECK_FALSE(asks.say());
  CHECK(FakeRdma::the().open_count() == open);
  // The same address may be at another index, though others are there that would be as good.
  ports = FakeRdma::ports();
  const ChosenPort chosen{.port = ports[0], .gid = ports[0].gids.front(), .near = ""};
  GidEntry other = chosen.gid;
  other.gid.back() = 77;
  ports[0].gids.insert(ports[0].gids.begin(), other);
  ports[0].gids.back().index = 5;
  use_ports(ports);
  REQUIRE(gid_again(chosen));
  CHECK(gid_again(chosen)->index == 5);
  ports[0].gids.pop_back();
  use_ports(ports);
  const auto ask = asks.say();
  REQUIRE(ask);
  CHECK(ask->from.gid == other.gid);
  ports[0].layer = kInfiniBand;
  use_ports(ports);
  CHECK_FALSE(gid_again(chosen));
}

TEST_CASE("packets that are counted otherwise are those of another queue pair") {
  End asks(0, 0, 1, {}), answers(1, 1, 0, {});
  REQUIRE(answers.hear(asks.say()));
  auto answer = answers.say();
  REQUIRE(answer);
  answer->psn ^= 1;
  REQUIRE(asks.hear(*answer));
  for (int look = 0; look < 200; ++look) {
    (void)asks.say();
    (void)answers.say();
  }
  CHECK(asks.taken + answers.taken == 0);
}

}  // namespace
}  // namespace tutti::verbs
