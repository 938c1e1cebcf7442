// How the queue pairs of a lost rail are made anew: messages between ranks, and a peer that lies.
// What two ranks do with it is in support/net/verbs_cases.h and verbs_link_test.cc.
#include "transport/verbs/renewal.h"

#include "support/catch.h"
#include "support/net/fake_link.h"

namespace tutti::verbs {
namespace {

using test::FakeRdma;
using Type = RenewalMessage::Type;
using namespace std::chrono_literals;

using Bytes = std::array<std::byte, kRenewalMessageBytes>;

RenewalMessage sound_message() {
  return {.type = Type::kRequest,
          .serial = 7,
          .from = {.gid = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 99, 0, 2},
                   .lid = 0,
                   .mtu = IBV_MTU_1024},
          .psn = 0xabcdef,
          .pairs = 2,
          .numbers = {300, 0xffffff, 0, 0}};
}

Bytes bytes_of(const RenewalMessage& message) {
  Bytes bytes{};
  encode(message, bytes);
  return bytes;
}

bool is_taken(const RenewalMessage& message, LinkLayer layer = kRoce) {
  return parse_renewal_message(bytes_of(message), 2, layer).has_value();
}

TEST_CASE("a message is received as it was sent") {
  const RenewalMessage message = sound_message();
  const auto parsed = parse_renewal_message(bytes_of(message), 2, kRoce);
  REQUIRE(parsed);
  CHECK(parsed->type == message.type);
  CHECK(parsed->serial == message.serial);
  CHECK(parsed->from.gid == message.from.gid);
  CHECK(parsed->from.lid == message.from.lid);
  CHECK(parsed->from.mtu == message.from.mtu);
  CHECK(parsed->psn == message.psn);
  CHECK(parsed->pairs == message.pairs);
  CHECK(parsed->numbers == message.numbers);
}

TEST_CASE("a message with any field that can't be is none") {
  const auto with = [](auto change) {
    RenewalMessage message = sound_message();
    change(message);
    return message;
  };
  REQUIRE(is_taken(sound_message()));
  CHECK_FALSE(is_taken(with([](auto& message) { message.type = static_cast<Type>(0); })));
  CHECK_FALSE(is_taken(with([](auto& message) { message.type = static_cast<Type>(3); })));
  CHECK_FALSE(is_taken(with([](auto& message) { message.serial = 0; })));
  CHECK_FALSE(is_taken(with([](auto& message) { message.psn = kMostPsn + 1; })));
  CHECK_FALSE(is_taken(with([](auto& message) { message.from.mtu = 0; })));
  CHECK_FALSE(is_taken(with([](auto& message) { message.from.mtu = IBV_MTU_4096 + 1; })));
  CHECK_FALSE(is_taken(with([](auto& message) { message.pairs = 1; })));
  CHECK_FALSE(is_taken(with([](auto& message) { message.pairs = 255; })));
  CHECK_FALSE(is_taken(with([](auto& message) { message.numbers[1] = 0; })));
  CHECK_FALSE(is_taken(with([](auto& message) { message.numbers[1] = kMostNumber + 1; })));
  CHECK_FALSE(is_taken(with([](auto& message) { message.numbers[2] = 5; })));
  CHECK_FALSE(is_taken(with([](auto& message) { message.from.gid = {}; })));
  CHECK_FALSE(is_taken(with([](auto& message) { message.from.gid[0] = 0xff; })));
  // InfiniBand goes by LIDs.
  CHECK_FALSE(is_taken(sound_message(), kInfiniBand));
  CHECK(is_taken(with([](auto& message) { message.from.lid = kMostUnicastLid; }), kInfiniBand));
  CHECK_FALSE(
      is_taken(with([](auto& message) { message.from.lid = kMostUnicastLid + 1; }), kInfiniBand));
  // Shorter, longer, and what is zero.
  const Bytes bytes = bytes_of(sound_message());
  for (std::size_t length = 0; length < bytes.size(); ++length)
    CHECK_FALSE(parse_renewal_message(std::span(bytes).first(length), 2, kRoce));
  std::array<std::byte, kRenewalMessageBytes + 1> longer{};
  std::ranges::copy(bytes, longer.begin());
  CHECK_FALSE(parse_renewal_message(longer, 2, kRoce));
  for (const std::size_t at : {3U, 10U, 11U}) {
    Bytes other = bytes;
    other[at] = std::byte{1};
    CHECK_FALSE(parse_renewal_message(other, 2, kRoce));
  }
}

/// One rank's end of a rail that was given up.
struct End {
  struct Times {
    std::chrono::milliseconds pause{0}, longest_pause{0}, patience{1h};
  };
  End(std::size_t which, int me, int peer, const Times& times)
      : device(test::open_fake_device(which)), in(*device, kRingBytes), out(*device, kRingBytes) {
    LinkParts parts = test::fake_link_parts(me, peer, kDepth);
    parts.near = parts.in = in.local();
    parts.replica = parts.out = out.local();
    // Nobody reads records here.
    parts.peer_near = parts.peer_replica = parts.peer_in = in.remote();
    link = std::make_unique<Link>(*device, std::move(parts), test::make_pairs(*device, 2, kDepth));
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
  /// The message that it sends at its next look; empty: none.
  std::optional<RenewalMessage> send() {
    if (auto made = renewal->renew(0)) carrier = std::move(made);
    std::array<std::byte, net::Renewal::kMostMessageBytes> bytes{};
    const std::size_t count = renewal->next_message(0, bytes);
    auto message = parse_renewal_message(std::span(bytes).first(count), 2, kRoce);
    CHECK(message.has_value() == (count != 0));
    if (message) serial = message->serial;
    return message;
  }
  bool take(const RenewalMessage& message) const {
    return renewal->take_message(0, bytes_of(message));
  }
  bool take(const std::optional<RenewalMessage>& message) const {
    return message && take(*message);
  }

  static constexpr std::uint32_t kDepth = 16;
  static constexpr std::size_t kRingBytes = 2 * kDepth * kRecordBytes;
  std::unique_ptr<Device> device;
  test::RegisteredMemory in, out;
  std::unique_ptr<Link> link;
  std::unique_ptr<net::Carrier> carrier;
  int taken = 0;
  std::uint32_t serial = 0;  // Sent last.
  std::unique_ptr<Renewal> renewal;
};

TEST_CASE("a request gets a response each time, and one of an earlier attempt never") {
  End requester(0, 0, 1, {}), responder(1, 1, 0, {});
  CHECK_FALSE(responder.send());  // There was no request.
  const auto request = requester.send();
  REQUIRE(request);
  CHECK(request->type == Type::kRequest);
  REQUIRE(responder.take(request));
  const auto response = responder.send();
  REQUIRE(response);
  CHECK(response->serial == request->serial);
  CHECK_FALSE(responder.send());  // Once for each request.
  REQUIRE(responder.take(request));
  const auto again = responder.send();
  REQUIRE(again);
  CHECK(again->numbers == response->numbers);  // The same queue pairs.
  RenewalMessage later = *request;
  later.serial += 5;
  REQUIRE(responder.take(later));
  const auto other = responder.send();
  REQUIRE(other);
  CHECK(other->serial == later.serial);
  CHECK(other->numbers != response->numbers);
  REQUIRE(responder.take(request));  // Late, by another rail.
  CHECK_FALSE(responder.send());
}

TEST_CASE("a response counts for the attempt that requested it, and lies are refused") {
  End requester(0, 0, 1, {}), responder(1, 1, 0, {});
  const auto first = requester.send();
  REQUIRE(responder.take(first));
  const auto response = responder.send();
  REQUIRE(response);
  RenewalMessage lie = *response;
  lie.serial += 1;
  CHECK_FALSE(requester.take(lie));       // There was no such request yet.
  CHECK_FALSE(requester.take(*first));    // It is the requester,
  CHECK_FALSE(responder.take(response));  // and the other one the responder.
  requester.renewal->drop(0);             // The attempt is over.
  const auto second = requester.send();
  REQUIRE(second);
  CHECK(second->serial == first->serial + 1);
  CHECK(second->psn != first->psn);  // But for one in 2^24 runs.
  CHECK(requester.take(response));   // Late, and no lie,
  const int open = FakeRdma::the().open_count();
  const auto repeated = requester.send();
  REQUIRE(repeated);  // but it has not connected anything.
  CHECK(repeated->serial == second->serial);
  CHECK(FakeRdma::the().open_count() == open);
}

/// Looks of both ends at each other; messages of the responder wait until `held` looks are over.
void look(End& requester, End& responder, int looks, int held = 0) {
  for (int look = 0; look < looks && requester.taken + responder.taken < 2; ++look) {
    if (const auto request = requester.send()) REQUIRE(responder.take(*request));
    if (responder.taken == 0) CHECK(requester.taken == 0);  // Its greeting comes last.
    const auto response = responder.send();
    if (response && look >= held) REQUIRE(requester.take(*response));
  }
}

TEST_CASE("both ends take the link, and what was completed before does not end it") {
  const int held = GENERATE(0, 50);  // Nothing is sent to a queue pair that is not connected yet.
  End requester(0, 0, 1, {}), responder(1, 1, 0, {});
  look(requester, responder, 1000, held);
  CHECK(requester.taken == 1);
  CHECK(responder.taken == 1);
  CHECK(requester.serial == 1);  // By the first attempt.
  CHECK(requester.carrier->where() ==
        "verbs: rank 1 (node7) over fake0:1, 10.99.0.1 to fake1:1 10.99.0.2");
  CHECK(FakeRdma::the().complaint() == "");
}

TEST_CASE("nothing is taken that does not carry something in both directions") {
  const std::uint32_t cut = GENERATE(1U, 2U);  // What the requester sends, or the responder.
  // Its own device says at once that it was in vain; what the other one sends is only missed.
  End requester(0, 0, 1, {.patience = cut == 1 ? 1h : 20ms}),
      responder(1, 1, 0, {.patience = 20ms});
  FakeRdma::the().cut(true, cut);
  FakeRdma::the().stray(true);  // Devices are slow to say that it was in vain.
  const auto end = std::chrono::steady_clock::now() + 60s;
  while (requester.serial < 10 && std::chrono::steady_clock::now() < end)
    look(requester, responder, 1);
  CHECK(requester.serial == 10);
  CHECK(requester.taken + responder.taken == 0);
  FakeRdma::the().cut(false);
  FakeRdma::the().stray(false);
  while (requester.taken + responder.taken < 2 && std::chrono::steady_clock::now() < end)
    look(requester, responder, 1);
  CHECK(requester.taken + responder.taken == 2);
}

TEST_CASE("pauses between attempts double, up to the longest one") {
  const End::Times times{.pause = 40ms, .longest_pause = 160ms};
  End requester(0, 0, 1, times), responder(1, 1, 0, times);
  FakeRdma::the().cut(true, 1);
  const auto begin = std::chrono::steady_clock::now();
  while (requester.serial < 5 && std::chrono::steady_clock::now() < begin + 60s)
    look(requester, responder, 1);
  FakeRdma::the().cut(false);
  CHECK(requester.serial == 5);
  CHECK(std::chrono::steady_clock::now() - begin >= 40ms + 80ms + 160ms + 160ms);
}

TEST_CASE("nothing begins while the port is down or has no address, and a new address is sent") {
  End requester(0, 0, 1, {});
  const int open = FakeRdma::the().open_count();
  FakeRdma::the().pull(1);
  CHECK_FALSE(requester.send());
  FakeRdma::the().pull(0);
  auto ports = FakeRdma::ports();
  ports[0].gids.clear();
  use_ports(ports);
  CHECK_FALSE(requester.send());
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
  // Without it, a user's index holds.
  ChosenPort by_index = chosen;
  by_index.gid_index = 3;
  CHECK_FALSE(gid_again(by_index));
  by_index.gid_index = other.index;
  CHECK(gid_again(by_index)->gid == other.gid);
  const auto request = requester.send();
  REQUIRE(request);
  CHECK(request->from.gid == other.gid);
  ports[0].layer = kInfiniBand;
  use_ports(ports);
  CHECK_FALSE(gid_again(chosen));
}

TEST_CASE("packets that are counted otherwise are those of another queue pair") {
  End requester(0, 0, 1, {}), responder(1, 1, 0, {});
  REQUIRE(responder.take(requester.send()));
  auto response = responder.send();
  REQUIRE(response);
  response->psn ^= 1;
  REQUIRE(requester.take(*response));
  for (int look = 0; look < 200; ++look) {
    (void)requester.send();
    (void)responder.send();
  }
  CHECK(requester.taken + responder.taken == 0);
}

}  // namespace
}  // namespace tutti::verbs
