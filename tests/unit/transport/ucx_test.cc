// Frames over UCX: all of them arrive, in order, right where they belong, whatever their sizes and
// whenever there is room; unauthenticated peers get nowhere; and a peer that leaves has got all
// that was sent.
#if __has_include(<ucp/api/ucp.h>)
#include <algorithm>
#include <cstring>
#include <deque>
#include <filesystem>
#include <fstream>
#include <functional>
#include <random>

#include "support/catch.h"
#include "transport/ucx/devices.h"
#include "transport/ucx/meeting.h"

namespace tutti::ucx {
namespace {

using std::chrono::steady_clock;

Key key_of(int rank) {
  Key key;
  key.fill(static_cast<std::byte>(0x40 + rank));
  return key;
}

const Library& ucx() {
  const auto loaded = library();
  REQUIRE(loaded);
  return **loaded;
}

std::unique_ptr<UcxNetwork> open_network(int rank) {
  auto worker = Worker::open(ucx(), "lo");
  REQUIRE(worker);
  auto network = UcxNetwork::open(*std::move(worker), key_of(rank), 2);
  REQUIRE(network);
  return *std::move(network);
}

/// Waits for up to a minute.
bool soon(const std::function<bool()>& condition) {
  const auto end = steady_clock::now() + std::chrono::minutes(1);
  while (!condition()) {
    if (steady_clock::now() > end) return false;
  }
  return true;
}

/// Ranks 0 and 1, both driven by this thread.
struct Pair {
  std::unique_ptr<UcxNetwork> ends[2]{open_network(0), open_network(1)};
  UcxCarrier* carriers[2]{};
  Pair() {
    for (int rank = 0; rank < 2; ++rank) {
      carriers[rank] = &ends[rank]->add({.me = rank,
                                         .peer = 1 - rank,
                                         .peer_name = "rank " + std::to_string(1 - rank),
                                         .peer_key = key_of(1 - rank)});
    }
    for (int rank = 0; rank < 2; ++rank)
      REQUIRE(carriers[rank]->connect(ends[1 - rank]->worker().address()));
    REQUIRE(soon([&] {
      for (auto& end : ends) end->worker().progress();
      return carriers[0]->met() && carriers[1]->met();
    }));
    for (auto* carrier : carriers) carrier->settle();
  }
};

std::byte byte_at(std::uint64_t position, std::size_t i) {
  return static_cast<std::byte>(position * 131 + i * 7 + (i >> 8));
}

/// Takes frames, now and then not at once, and checks each.
class Taker final : public net::FrameSink {
 public:
  explicit Taker(unsigned seed, bool at_once = false) : random_(seed), at_once_(at_once) {}
  Result<std::optional<std::byte*>> place(const net::FrameHeader& header) override {
    if (!at_once_ && random_() % 4 == 0) return std::optional<std::byte*>{};
    auto& room = under_way_.emplace_back(header.bytes + 1, std::byte{0xee});
    return std::optional<std::byte*>(room.data());
  }
  Status arrived(const net::FrameHeader& header) override {
    right = right && header.position == count;  // Counted by the sender.
    const auto& got = under_way_.front();
    for (std::size_t i = 0; i < header.bytes; ++i)
      right = right && got[i] == byte_at(header.position, i);
    right = right && got.size() == header.bytes + 1 && got.back() == std::byte{0xee};
    under_way_.pop_front();
    ++count;
    return ok();
  }

  bool right = true;
  std::uint64_t count = 0;

 private:
  std::minstd_rand random_;
  bool at_once_;
  std::deque<std::vector<std::byte>> under_way_;  // In the order of `place`: that of sequence.
};

struct Sender {
  std::deque<std::vector<std::byte>> payloads;  // Until they are released.
  std::uint64_t sent = 0;

  void send(UcxCarrier& carrier, std::size_t bytes, bool in_two) {
    auto& payload = payloads.emplace_back(bytes);
    for (std::size_t i = 0; i < bytes; ++i) payload[i] = byte_at(sent, i);
    const std::size_t half = in_two ? bytes / 3 : bytes;
    const std::array pieces{net::Piece(payload).first(half), net::Piece(payload).subspan(half)};
    carrier.send({.bytes = static_cast<std::uint32_t>(bytes), .kind = 7, .position = sent++},
                 pieces);
  }
  void release(const UcxCarrier& carrier) {
    while (payloads.size() > carrier.pending()) {
      std::fill(payloads.front().begin(), payloads.front().end(), std::byte{0});
      payloads.pop_front();
    }
  }
};

TEST_CASE("ucx: frames of any size arrive in order, each where it belongs, in both directions") {
  const unsigned seed = Catch::rngSeed();
  INFO("seed " << seed);
  std::mt19937 random(seed);
  Pair pair;
  constexpr std::array<std::size_t, 12> kSizes{0,    1,    24,    56,     704,     8191,
                                               8192, 8193, 65536, 262145, 1 << 20, 3 << 20};
  Taker takers[2]{Taker(seed), Taker(seed + 1)};
  Sender senders[2];
  constexpr std::uint64_t kFrames = 600;
  bool failed = false;
  REQUIRE(soon([&] {
    std::vector<bool> ready(2);
    for (int rank = 0; rank < 2; ++rank) {
      UcxCarrier& carrier = *pair.carriers[rank];
      for (int burst = 0; burst < 40 && senders[rank].sent < kFrames &&
                          carrier.pending() < net::Carrier::kMostQueued;
           ++burst) {
        // Long ones are rare, or it takes long.
        const std::size_t most = random() % 16 == 0 ? kSizes.size() : kSizes.size() - 3;
        senders[rank].send(carrier, kSizes[random() % most], random() % 3 == 0);
      }
      ready[static_cast<std::size_t>(1 - rank)] = false;
      pair.ends[rank]->look(ready);
      if (!carrier.progress(takers[rank])) failed = true;
      senders[rank].release(carrier);
    }
    return failed || !takers[0].right || !takers[1].right ||
           (takers[0].count == kFrames && takers[1].count == kFrames);
  }));
  CHECK_FALSE(failed);
  for (const Taker& taker : takers) CHECK((taker.right && taker.count == kFrames));
  CHECK(pair.ends[0]->unauthenticated() == 0);
}

TEST_CASE("ucx: who leaves has sent all; the other one is told, after the last frame") {
  Pair pair;
  Taker taker(1);
  Sender sender;
  for (int i = 0; i < 100; ++i) sender.send(*pair.carriers[0], i % 10 == 0 ? 300'000 : 40, false);
  pair.carriers[0]->leave();
  std::optional<Error> said;
  std::vector<bool> ready(2);
  REQUIRE(soon([&] {
    const bool left = pair.carriers[0]->left();
    pair.ends[1]->look(ready);
    const auto moved = pair.carriers[1]->progress(taker);
    if (!moved) said = moved.error();
    return left;
  }));
  REQUIRE(said);
  CHECK((taker.right && taker.count == 100));
  CHECK(said->code == Code::kPeerFailed);
  CHECK(said->peer == Rank{0});
  CHECK_THAT(said->what, Catch::StartsWith("ucx: rank 0 over ") &&
                             Catch::EndsWith(": it has left the communicator"));
}

TEST_CASE("ucx: who vanishes without a word is an error that says who and how, after all it sent") {
  Pair pair;
  Taker taker(2, true);
  Sender sender;
  for (int i = 0; i < 50; ++i) sender.send(*pair.carriers[1], 1000, false);
  pair.ends[1].reset();
  std::vector<bool> ready(2);
  REQUIRE(soon([&] {
    pair.ends[0]->look(ready);
    return pair.carriers[0]->failure().has_value();
  }));
  const auto moved = pair.carriers[0]->progress(taker);
  REQUIRE_FALSE(moved);
  const Error& said = moved.error();
  CHECK((taker.right && taker.count == 50));
  CHECK(said.code == Code::kPeerFailed);
  CHECK(said.peer == Rank{1});
  CHECK_THAT(said.what, Catch::StartsWith("ucx: rank 1 over ") &&
                            Catch::EndsWith("its process has ended, or the way there is broken"));
}

TEST_CASE("ucx: what is taken back is the caller's again, whether or not the peer takes it") {
  Pair pair;
  REQUIRE(pair.carriers[0]->any_memory());
  constexpr std::uint32_t kBytes = 1 << 20, kShort = 200'000;
  std::vector<std::byte> payload(kBytes);
  // Neither rendezvous nor the kernel's buffers end without the peer, which does nothing.
  for (int i = 0; i < 64; ++i)
    pair.carriers[0]->send({.bytes = i % 2 == 0 ? kBytes : kShort, .kind = 7},
                           net::Piece(payload).last(i % 2 == 0 ? kBytes : kShort));
  CHECK(pair.carriers[0]->pending() != 0);
  pair.carriers[0]->moved(net::Piece(payload).first(0), nullptr);  // Nothing: at once.
  const std::byte other{};
  pair.carriers[0]->moved({&other, 1}, nullptr);  // Not sent.
  CHECK_FALSE(pair.carriers[0]->failure());
  pair.carriers[0]->moved(net::Piece(payload).last(1), nullptr);
  CHECK(pair.carriers[0]->pending() == 0);
  const auto failure = pair.carriers[0]->failure();
  REQUIRE(failure);
  CHECK(failure->peer == Rank{1});
  std::vector<std::byte>().swap(payload);  // Sanitizers report later reads of it.
  Taker taker(4, true);
  std::vector<bool> ready(2);
  CHECK(soon([&] {
    for (auto& end : pair.ends) end->look(ready);
    (void)pair.carriers[1]->progress(taker);
    return pair.carriers[1]->failure().has_value();
  }));
}

TEST_CASE("ucx: messages without the key, or that make no sense, reach nobody") {
  Pair pair;
  // An unauthenticated peer that knows where rank 0's worker is.
  auto stranger = Worker::open(ucx(), "lo");
  REQUIRE(stranger);
  ucp_ep_params_t params{};
  params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS;
  const auto& address = pair.ends[0]->worker().address();
  params.address = reinterpret_cast<const ucp_address_t*>(address.data());
  ucp_ep_h endpoint = nullptr;
  REQUIRE(ucx().ucp_ep_create((*stranger)->get(), &params, &endpoint) == UCS_OK);

  Message good{.from = 1, .what = What::kFrame, .header = {.bytes = 100'000, .kind = 7}};
  std::vector<std::vector<std::byte>> headers;
  const auto add = [&](const Message& message, const Key& key) {
    const auto bytes = encode(message, key);
    headers.emplace_back(bytes.begin(), bytes.end());
  };
  add(good, key_of(1));  // Not rank 0's.
  add(good, Key{});
  Message bad = good;
  bad.from = 2;  // No such rank.
  add(bad, key_of(0));
  bad = good;
  bad.from = 0;  // The receiver itself.
  add(bad, key_of(0));
  bad = good;
  bad.header.bytes = 99'999;  // Not what comes.
  add(bad, key_of(0));
  bad = good;
  bad.what = static_cast<What>(9);
  add(bad, key_of(0));
  add(good, key_of(0));
  headers.back().pop_back();
  const std::vector<std::byte> payload(100'000);
  std::vector<ucs_status_ptr_t> requests;
  const ucp_request_param_t param{};
  for (const auto& header : headers) {
    requests.push_back(ucx().ucp_am_send_nbx(endpoint, 0, header.data(), header.size(),
                                             payload.data(), payload.size(), &param));
  }
  Taker taker(3);
  std::vector<bool> ready(2);
  bool failed = false;
  CHECK(soon([&] {
    (*stranger)->progress();
    pair.ends[0]->look(ready);
    failed = failed || !pair.carriers[0]->progress(taker);
    return pair.ends[0]->unauthenticated() == headers.size();
  }));
  CHECK_FALSE(failed);
  CHECK(taker.count == 0);
  // What was dropped is at an end for its sender as well.
  for (auto* const request : requests) {
    if (!UCS_PTR_IS_PTR(request)) continue;
    CHECK(soon([&] {
      pair.ends[0]->worker().progress();
      (*stranger)->progress();
      return ucx().ucp_request_check_status(request) != UCS_INPROGRESS;
    }));
    ucx().ucp_request_free(request);
  }
}

TEST_CASE("ucx: messages and cards come back as they were, and nothing else is one") {
  const unsigned seed = Catch::rngSeed();
  INFO("seed " << seed);
  std::mt19937 random(seed);
  Message message{.from = 3, .what = What::kBye, .header = {.bytes = 77, .kind = 2, .channel = 9}};
  message.header.sequence = 0xfffffffe;
  const auto bytes = encode(message, key_of(5));
  const auto back = parse_message(bytes, key_of(5), 77, 4);
  REQUIRE(back);
  CHECK((back->from == 3 && back->what == What::kBye && back->header.channel == 9 &&
         back->header.sequence == 0xfffffffe));
  CHECK_FALSE(parse_message(bytes, key_of(4), 77, 4));
  CHECK_FALSE(parse_message(bytes, key_of(5), 78, 4));
  CHECK_FALSE(parse_message(bytes, key_of(5), 77, 3));

  EndpointInfo info{
      .ucx_version = 0x1000d, .host = "node 7\n", .key = key_of(2), .address = Bytes(300)};
  for (auto& one : info.address) one = static_cast<std::byte>(random());
  const Bytes encoded = encode(info);
  const auto parsed = parse_endpoint_info(encoded);
  REQUIRE(parsed);
  CHECK((parsed->ucx_version == info.ucx_version && parsed->key == info.key &&
         parsed->address == info.address && parsed->host == "node?7?"));
  // All that is cut off within the card's head, or within a host's name that is too long.
  for (std::size_t length = 0; length < encoded.size() - info.address.size() + 1; ++length)
    CHECK_FALSE(parse_endpoint_info(std::span(encoded).first(length)));
  Bytes long_host = encoded;
  long_host[8] = std::byte{65};
  CHECK_FALSE(parse_endpoint_info(long_host));
  Bytes other_version = encoded;
  other_version[0] ^= std::byte{1};
  CHECK_FALSE(parse_endpoint_info(other_version));
  info.address.assign(kMostAddressBytes + 1, std::byte{1});
  CHECK_FALSE(parse_endpoint_info(encode(info)));
}

TEST_CASE("ucx: devices are the interfaces of TCP and the ports that are up, by rule") {
  namespace fs = std::filesystem;
  std::string pattern = (fs::temp_directory_path() / "tutti-test-XXXXXX").string();
  const fs::path root = mkdtemp(pattern.data());
  const auto write = [&](const std::string& path, const std::string& text) {
    fs::create_directories((root / path).parent_path());
    std::ofstream(root / path) << text << "\n";
  };
  write("sys/class/infiniband/mlx5_0/ports/1/state", "4: ACTIVE");
  write("sys/class/infiniband/mlx5_0/device/net/ib0/x", "");
  write("sys/class/infiniband/mlx5_1/ports/1/state", "1: DOWN");
  write("sys/class/infiniband/mlx5_1/ports/2/state", "4: ACTIVE");
  write("sys/class/infiniband/mlx5_1/device/net/lo/x", "");
  // Whatever interfaces this machine has; lo comes first on one host.
  CHECK_THAT(*choose_devices("", true, root),
             Catch::StartsWith("lo,") && Catch::EndsWith(",mlx5_0:1,mlx5_1:2"));
  CHECK(*choose_devices("lo", true, root) == "lo,mlx5_1:2");
  CHECK(*choose_devices("lo", true, root / "nothing") == "lo");
  CHECK(choose_devices("nothing*", true, root).error().code == Code::kInvalidArgument);
  fs::remove_all(root);
}

}  // namespace
}  // namespace tutti::ucx
#else
#include "support/catch.h"
TEST_CASE("ucx: not in this build", "[.]") { SUCCEED(); }
#endif
