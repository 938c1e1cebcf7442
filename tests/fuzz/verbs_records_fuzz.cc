// The records that a peer writes into a rank's ring by RDMA (verbs/record.h): any bytes, for frames
// whose payload is in the record or anywhere in the region, with immediates that are out of turn.
//
// The input: records one after another, each a byte that says how it comes (below),
// kRecordHeadBytes, and the payload if the head says that it is in the record. Short frames of the
// kind kRenewal are messages to make queue pairs anew (verbs/renewal.h), to a requester or to a
// responder. Checked: nothing is read or written outside of the memory that the link was given, no
// queue of the device (support/net/fake_rdma.h) runs over, a link that has failed names the rank to
// blame, and whatever a peer sends, a rank has one attempt at a time.
#include <arpa/inet.h>

#include "fuzz/frames.h"
#include "support/net/fake_link.h"
#include "transport/verbs/renewal.h"

namespace {

using namespace tutti;
using namespace tutti::fuzz;
using test::FakeRdma;
using test::RegisteredMemory;

// How a record comes: the lowest bit names the queue pair.
constexpr std::uint8_t kOutOfTurn = 2, kFull = 4, kSend = 8, kSendLong = 16, kRequester = 32;
constexpr std::uint16_t kRenewal = 0xff04;  // As net/rails.cc has it.
constexpr std::size_t kPairs = 2;
constexpr std::uint32_t kDepth = 16;
constexpr std::size_t kRingBytes = kPairs * kDepth * verbs::kRecordBytes;
constexpr std::size_t kMemoryBytes = 8192;

/// Long payloads belong at their position in `place_in`, short ones in a place of their own.
class Sink final : public net::FrameSink {
 public:
  explicit Sink(std::span<std::byte> place_in) : place_in_(place_in) {}
  Result<std::optional<std::byte*>> place(const net::FrameHeader& header) override {
    if (full) return std::optional<std::byte*>{};
    if (header.bytes <= verbs::kShortBytes && (header.kind % 2 == 1 || header.kind == kRenewal))
      return std::optional(short_.data());
    if (header.position > place_in_.size() || place_in_.size() - header.position < header.bytes)
      return Error{Code::kPeerFailed, "nothing is there", Rank{0}, Rank{1}};
    return std::optional(place_in_.data() + header.position);
  }
  Status arrived(const net::FrameHeader& header) override {
    require(header.sequence == count++, "a frame out of order, or twice");
    if (header.kind == kRenewal && header.bytes <= net::Renewal::kMostMessageBytes)
      take_message(std::span(short_).first(header.bytes));
    return ok();
  }
  bool full = false;
  std::uint32_t count = 0;
  std::function<void(std::span<const std::byte>)> take_message;  // Those in short frames.

 private:
  std::span<std::byte> place_in_;
  std::array<std::byte, verbs::kShortBytes> short_{};
};

void join(ibv_qp& one, const ibv_qp& other) {
  for (const ibv_qp_state state : {IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS}) {
    ibv_qp_attr attributes{};
    attributes.qp_state = state;
    attributes.dest_qp_num = other.qp_num;
    const int which = IBV_QP_STATE | (state == IBV_QPS_RTR ? IBV_QP_DEST_QPN : 0);
    require(verbs::library().modify_qp(&one, &attributes, which) == 0, "they can't be joined");
  }
}

/// The end of an attacker, which is a queue pair's peer.
struct Attacker {
  std::unique_ptr<verbs::Device> device = test::open_fake_device(1);
  RegisteredMemory memory{*device, kRingBytes + 2 * kMemoryBytes};
  std::vector<verbs::Pair> pairs = test::make_pairs(*device, kPairs, kDepth);
  std::array<std::uint32_t, kPairs> count{};

  /// So many records of the link find a receive posted.
  void listen(int records) {
    for (const auto& pair : pairs) {
      for (int i = 0; i < records; ++i) {
        ibv_recv_wr request{}, *bad = nullptr;
        require(ibv_post_recv(pair.get(), &request, &bad) == 0, "it can't receive");
      }
    }
  }
  /// Tells the link that a record has come by that queue pair.
  void send(std::size_t pair, bool out_of_turn) {
    ibv_send_wr request{}, *bad = nullptr;
    request.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
    request.send_flags = IBV_SEND_SIGNALED;
    request.imm_data = htonl(out_of_turn ? count[pair] + 1 : count[pair]);
    ++count[pair];
    require(ibv_post_send(pairs[pair].get(), &request, &bad) == 0, "it can't send");
    ibv_wc done{};
    while (ibv_poll_cq(pairs[pair]->send_cq, 1, &done) != 0) {
    }
  }
};

/// Memory of the attacker's for rings, and behind it for payloads.
verbs::LinkParts parts_of(RegisteredMemory& near, RegisteredMemory& replica, RegisteredMemory& in,
                          RegisteredMemory& out, const verbs::RemoteMemory& there) {
  verbs::LinkParts parts = test::fake_link_parts(0, 1, kDepth);
  parts.near = near.local();
  parts.replica = replica.local();
  parts.in = in.local();
  parts.out = out.local();
  parts.peer_near = parts.peer_replica = parts.peer_in = there;
  parts.peer_near.address += kRingBytes;
  parts.peer_replica.address += kRingBytes;
  return parts;
}

/// A rail that both ranks have given up, and what makes it anew.
struct Lost {
  RegisteredMemory in, out;
  std::unique_ptr<verbs::Link> link;
  std::unique_ptr<net::Carrier> taken;
  std::unique_ptr<verbs::Renewal> renewal;

  Lost(verbs::Device& device, verbs::LinkParts parts, bool is_requester)
      : in(device, kRingBytes), out(device, kRingBytes) {
    parts.index = is_requester ? 1 : 2;
    parts.me = is_requester ? 0 : 2;
    parts.in = in.local();
    parts.out = out.local();
    link = std::make_unique<verbs::Link>(device, std::move(parts),
                                         test::make_pairs(device, kPairs, kDepth));
    link->abandon();
    const std::chrono::milliseconds none{0};
    renewal = std::make_unique<verbs::Renewal>(
        std::vector{verbs::Renewal::Rail{&device, link.get()}}, [](std::size_t, verbs::Link&) {},
        verbs::RenewalTimes{.first_pause = none, .longest_pause = none, .repeat = none});
  }
  /// A tick of Rails. Once the link is made anew, it is lost and begun again.
  void tick() {
    if (auto made = renewal->renew(0)) {
      made->abandon();
      taken = std::move(made);
    }
    std::array<std::byte, net::Renewal::kMostMessageBytes> message{};
    const std::size_t bytes = renewal->next_message(0, message);
    if (bytes == 0) return;
    const auto parsed =
        verbs::parse_renewal_message(std::span(message).first(bytes), kPairs, verbs::kRoce);
    require(parsed.has_value(), "it sends what its peer would refuse");
  }
};

struct Victim {
  std::unique_ptr<verbs::Device> device = test::open_fake_device(0);
  RegisteredMemory near{*device, kMemoryBytes}, replica{*device, kMemoryBytes};
  RegisteredMemory in{*device, kRingBytes};
  RegisteredMemory out{*device, kRingBytes};
  std::unique_ptr<verbs::Link> link;
  std::unique_ptr<Lost> requester, responder;

  explicit Victim(Attacker& attacker) {
    std::vector<verbs::Pair> pairs = test::make_pairs(*device, kPairs, kDepth);
    for (std::size_t i = 0; i < kPairs; ++i) {
      join(*pairs[i], *attacker.pairs[i]);
      join(*attacker.pairs[i], *pairs[i]);
    }
    const auto parts = parts_of(near, replica, in, out, attacker.memory.remote());
    link = std::make_unique<verbs::Link>(*device, parts, std::move(pairs));
    require(bool(link->begin()), "it does not begin");
    requester = std::make_unique<Lost>(*device, parts, true);
    responder = std::make_unique<Lost>(*device, parts, false);
  }
  /// The place of the next record.
  std::span<std::byte> record(std::size_t pair, std::uint32_t count) {
    return std::span(in.memory).subspan((pair * kDepth + count % kDepth) * verbs::kRecordBytes,
                                        verbs::kRecordBytes);
  }
  void send(bool is_long) {
    if (link->pending() >= net::Carrier::kMostQueued) return;
    const net::Piece payload = std::span(near.memory).first(is_long ? 3000 : 64);
    link->send({.bytes = static_cast<std::uint32_t>(payload.size()), .kind = 1}, payload);
  }
};

/// The payload's bytes in the input.
std::size_t payload_bytes(std::span<const std::byte> head) {
  const auto record = verbs::parse_record(head.first<verbs::kRecordHeadBytes>());
  return record && record->target == verbs::Target::kRecord ? record->header.bytes : 0;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  FakeRdma::the().seed(size);
  Attacker attacker;
  attacker.listen(kDepth);
  Victim victim(attacker);
  const int made = FakeRdma::the().open_count();
  Sink sink(victim.near.memory);
  bool to_requester = false;
  sink.take_message = [&](std::span<const std::byte> message) {
    Lost& lost = to_requester ? *victim.requester : *victim.responder;
    lost.tick();
    (void)lost.renewal->take_message(0, message);
    for (int ticks = 0; ticks < 3; ++ticks) lost.tick();
  };
  auto rest = std::as_bytes(std::span(data, size));
  bool sound = true;
  while (rest.size() >= 1 + verbs::kRecordHeadBytes && sound) {
    const auto how = static_cast<std::uint8_t>(rest[0]);
    const std::size_t pair = how % kPairs;
    to_requester = (how & kRequester) != 0;
    rest = rest.subspan(1);
    const auto bytes =
        rest.first(std::min(rest.size(), verbs::kRecordHeadBytes + payload_bytes(rest)));
    rest = rest.subspan(bytes.size());
    std::ranges::copy(bytes, victim.record(pair, attacker.count[pair]).begin());
    attacker.send(pair, (how & kOutOfTurn) != 0);
    if ((how & (kSend | kSendLong)) != 0) victim.send((how & kSendLong) != 0);
    sink.full = (how & kFull) != 0;
    for (int looks = 0; looks < 6 && sound; ++looks) {
      victim.device->poll();
      const auto moved = victim.link->progress(sink);
      sound = bool(moved);
      if (!sound) require(moved.error().peer == Rank{1}, "another rank is blamed");
      sink.full = false;
    }
  }
  require(FakeRdma::the().open_count() <= made + static_cast<int>(2 * kPairs),
          "queue pairs are left of attempts that are over");
  // A record too many finds no receive posted: a device of the attacker's, not a mistake of ours.
  const std::string complaint = FakeRdma::the().complaint();
  require(complaint.empty() || complaint == "a record finds no receive posted", complaint.c_str());
  return 0;
}
