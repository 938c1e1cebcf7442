#include "transport/verbs/link.h"

#include <arpa/inet.h>
#include <fmt/format.h>

#include <cstring>
#include <limits>
#include <system_error>

#include "base/check.h"
#include "base/hash.h"
#include "transport/net/rails.h"

namespace tutti::verbs {
namespace {

// Writes that a send queue has room for besides those of records with a payload each.
constexpr std::uint32_t kSpareWrites = 32;
// Writes kept for other uses than frames: a probe, and one at the end.
constexpr std::size_t kKeptWrites = 4;
std::uint32_t most_writes(std::uint32_t depth) { return 2 * depth + kSpareWrites; }
std::uint32_t receive_batch(std::uint32_t depth) { return depth / 4; }
std::uint32_t most_receives(std::uint32_t depth) { return depth + receive_batch(depth); }

/// Where `inner` begins in `outer`; nothing if it is not in there.
std::optional<std::uint64_t> offset_in(std::span<const std::byte> outer, net::Piece inner) {
  const auto from = reinterpret_cast<std::uintptr_t>(outer.data());
  const auto at = reinterpret_cast<std::uintptr_t>(inner.data());
  if (at < from || at - from > outer.size() || outer.size() - (at - from) < inner.size())
    return std::nullopt;
  return at - from;
}

/// Null: the library's words have to do.
const char* meaning(ibv_wc_status status) {
  switch (status) {
    case IBV_WC_RETRY_EXC_ERR:
      return "no acknowledgement: its process has ended, or its host, a cable or a switch is down";
    case IBV_WC_RNR_RETRY_EXC_ERR: return "it takes no messages";
    case IBV_WC_REM_ACCESS_ERR: return "it does not allow access to its memory";
    case IBV_WC_LOC_QP_OP_ERR:
      return "this rank's device can't send: its link is down, or its address was removed";
    case IBV_WC_WR_FLUSH_ERR: return "the queue pair has failed";
    default: return nullptr;
  }
}

/// "no acknowledgement (its process has ended, ...)": what a completion that failed means, and
/// where to look.
std::string in_words(const ibv_wc& completion) {
  const char* const words = meaning(completion.status);
  return fmt::format("{} ({}, status {}, vendor's {})",
                     words != nullptr ? words : "the device reports an error",
                     library().wc_status_str(completion.status),
                     static_cast<int>(completion.status), completion.vendor_err);
}

}  // namespace

ibv_qp_cap capacity(std::uint32_t depth) {
  // A record with a short payload, as most are, goes without the device reading memory.
  return {.max_send_wr = most_writes(depth),
          .max_recv_wr = most_receives(depth),
          .max_send_sge = 1,
          .max_recv_sge = 1,
          .max_inline_data = 256};
}

std::size_t completions(std::uint32_t depth) {
  return std::size_t{most_writes(depth)} + most_receives(depth);
}

Link::Link(Device& device, LinkParts parts, std::vector<Pair> pairs)
    : device_(device), parts_(std::move(parts)), queue_(kMostQueued) {
  TUTTI_CHECK(!pairs.empty() && pairs.size() <= kMostPairs);
  TUTTI_CHECK(parts_.depth >= 4 * kMostPairs && parts_.depth % 4 == 0);
  TUTTI_CHECK(net::kMostFrameBytes / parts_.most_message + 1 <= kMostWrites / 2);
  pairs_.resize(pairs.size());
  const Ticket ticket{.received = true, .link = parts_.index};
  for (std::size_t i = 0; i < pairs_.size(); ++i) {
    pairs_[i].pair = std::move(pairs[i]);
    pairs_[i].bytes_until.resize(most_writes(parts_.depth));
    Ticket of_pair = ticket;
    of_pair.pair = static_cast<std::uint32_t>(i);
    auto& batch = pairs_[i].receive_batch;
    batch.resize(receive_batch(parts_.depth));
    for (std::size_t at = 0; at < batch.size(); ++at) {
      // A receive says only that something was written: it needs no memory of its own.
      batch[at] = {.wr_id = of_pair.number(),
                   .next = at + 1 < batch.size() ? &batch[at + 1] : nullptr,
                   .sg_list = nullptr,
                   .num_sge = 0};
    }
  }
  asked_ = heard_ = Clock::now();
  device_.attach(parts_.index, *this);
}

Status Link::begin() {
  for (QueuePair& at : pairs_) {
    if (!post_receives(at)) return *failure_;
  }
  return ok();
}

bool Link::post_receives(QueuePair& at) {
  // The peer may write `depth` records more than it knows to be consumed.
  while (at.receives - at.consumed <= parts_.depth) {
    ibv_recv_wr* bad = nullptr;
    const int error = ibv_post_recv(at.pair.get(), at.receive_batch.data(), &bad);
    if (error != 0) {
      fail("preparing to receive: " + std::generic_category().message(error));
      return false;
    }
    at.receives += at.receive_batch.size();
  }
  return true;
}

// ---- sending

void Link::send(net::FrameHeader header, std::span<const net::Piece> pieces) {
  TUTTI_CHECK(pending() < kMostQueued && pieces.size() <= net::kMostPieces);
  header.sequence = static_cast<std::uint32_t>(queued_);
  Frame& frame = queue_[queued_ % kMostQueued];
  frame.header = header;
  frame.count = pieces.size();
  std::copy(pieces.begin(), pieces.end(), frame.pieces.begin());
  ++queued_;
}

bool Link::gpudirect(net::Piece payload) const {
  return !payload.empty() && offset_in(parts_.gpudirect.out.bytes, payload).has_value();
}

bool Link::in_record(const Frame& frame) const {
  static_assert(net::Rails::kKeptBytes <= kShortBytes, "what rails copy has no key");
  return frame.header.bytes <= kShortBytes && !(frame.count == 1 && gpudirect(frame.pieces[0]));
}

std::size_t Link::writes_of(const Frame& frame) const {
  if (in_record(frame)) return 1;
  return 1 + (frame.header.bytes + parts_.most_message - 1) / parts_.most_message;
}

std::size_t Link::pair_of(const Frame& frame) const {
  if (in_record(frame)) return 0;
  // By where it lands, so that nothing that is written there later overtakes it. Places are a
  // power of two apart, so their bits are mixed.
  return mix(landing(frame.pieces[0]).offset) % pairs_.size();
}

Link::Landing Link::landing(net::Piece payload) const {
  if (const auto offset = offset_in(parts_.near.bytes, payload)) {
    return {Target::kReplica, *offset, parts_.near.key, parts_.peer_replica.address + *offset,
            parts_.peer_replica.key};
  }
  if (const auto offset = offset_in(parts_.gpudirect.out.bytes, payload)) {
    return {Target::kGpuDirect, *offset, parts_.gpudirect.out.key,
            parts_.gpudirect.peer_in.address + *offset, parts_.gpudirect.peer_in.key};
  }
  const auto offset = offset_in(parts_.replica.bytes, payload);
  TUTTI_CHECK(offset.has_value());  // Nothing else has long payloads.
  return {Target::kNear, *offset, parts_.replica.key, parts_.peer_near.address + *offset,
          parts_.peer_near.key};
}

bool Link::room(const QueuePair& at, std::size_t records_left, std::size_t writes) const {
  return at.sent - at.taken + records_left < parts_.depth &&
         at.posted - at.done + writes + kKeptWrites <= most_writes(parts_.depth);
}

ibv_send_wr& Link::next_write(std::size_t pair, bool signaled) {
  QueuePair& at = pairs_[pair];
  if (at.count == kMostWrites) hand_over();
  ibv_send_wr& write = at.writes[at.count];
  ibv_sge& part = at.parts[at.count];
  ++at.count;
  ++at.posted;
  // An unsignaled write is known to be done when a later one is: one signal in so many is enough.
  signaled = signaled || at.posted - at.signaled >= most_writes(parts_.depth) / 4;
  if (signaled) {
    at.signaled = at.posted;
    at.bytes_signaled = at.bytes_posted;
  }
  write = {};
  write.wr_id = Ticket{.received = false,
                       .link = parts_.index,
                       .pair = static_cast<std::uint32_t>(pair),
                       .count = static_cast<std::uint32_t>(at.posted)}
                    .number();
  at.bytes_until[at.posted % at.bytes_until.size()] = at.bytes_posted;
  write.opcode = IBV_WR_RDMA_WRITE;
  write.send_flags = signaled ? IBV_SEND_SIGNALED : 0;
  write.sg_list = &part;
  write.num_sge = 1;
  return write;
}

std::size_t Link::unsent_bytes() const {
  std::size_t bytes = 0;
  for (const QueuePair& at : pairs_)
    bytes += static_cast<std::size_t>(at.bytes_posted - at.bytes_done);
  for (std::uint64_t i = taken_; i != queued_; ++i) bytes += queue_[i % kMostQueued].header.bytes;
  return bytes;
}

void Link::put_record(std::size_t pair, Record record, std::span<const net::Piece> payload) {
  QueuePair& at = pairs_[pair];
  for (std::size_t i = 0; i < pairs_.size(); ++i) {
    record.consumed[i] = static_cast<std::uint32_t>(pairs_[i].consumed);
    pairs_[i].advertised = pairs_[i].consumed;
  }
  const std::size_t place = (pair * parts_.depth + at.sent % parts_.depth) * kRecordBytes;
  const auto bytes = parts_.out.bytes.subspan(place, kRecordBytes);
  encode(record, bytes);
  std::size_t length = kRecordHeadBytes;
  for (const net::Piece& piece : payload) {
    if (piece.empty()) continue;
    TUTTI_CHECK(length + piece.size() <= kRecordBytes);
    std::memcpy(bytes.data() + length, piece.data(), piece.size());
    length += piece.size();
  }
  at.bytes_posted += record.header.bytes;
  ibv_send_wr& write = next_write(
      pair, record.what == What::kBye || at.bytes_posted - at.bytes_signaled >= parts_.told_bytes);
  write.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
  write.imm_data = htonl(static_cast<std::uint32_t>(at.sent));
  if (length <= parts_.inline_bytes) write.send_flags |= IBV_SEND_INLINE;
  write.wr.rdma.remote_addr = parts_.peer_in.address + place;
  write.wr.rdma.rkey = parts_.peer_in.key;
  *write.sg_list = {.addr = reinterpret_cast<std::uintptr_t>(bytes.data()),
                    .length = static_cast<std::uint32_t>(length),
                    .lkey = parts_.out.key};
  ++at.sent;
  at.bytes = record.header.bytes;
}

void Link::put(const Frame& frame, std::size_t pair) {
  Record record{.header = frame.header};
  const std::span pieces(frame.pieces.data(), frame.count);
  if (in_record(frame)) return put_record(pair, record, pieces);
  TUTTI_CHECK(frame.count == 1);
  const Landing to = landing(frame.pieces[0]);
  for (std::uint64_t at = 0; at < frame.header.bytes; at += parts_.most_message) {
    ibv_send_wr& write = next_write(pair, false);
    write.wr.rdma.remote_addr = to.remote_address + at;
    write.wr.rdma.rkey = to.remote_key;
    const std::uint64_t length =
        std::min<std::uint64_t>(parts_.most_message, frame.header.bytes - at);
    *write.sg_list = {.addr = reinterpret_cast<std::uintptr_t>(frame.pieces[0].data()) + at,
                      .length = static_cast<std::uint32_t>(length),
                      .lkey = to.local_key};
  }
  record.target = to.target;
  record.offset = to.offset;
  put_record(pair, record, {});
}

void Link::hand_over() {
  for (QueuePair& at : pairs_) {
    if (at.count == 0) continue;
    for (std::size_t i = 0; i + 1 < at.count; ++i) at.writes[i].next = &at.writes[i + 1];
    ibv_send_wr* bad = nullptr;
    const int error = ibv_post_send(at.pair.get(), at.writes.data(), &bad);
    at.count = 0;
    if (error != 0) fail("giving it to the device: " + std::generic_category().message(error));
  }
}

bool Link::post() {
  const std::uint64_t before = taken_;
  while (taken_ != queued_ && !failure_) {
    const Frame& frame = queue_[taken_ % kMostQueued];
    const std::size_t pair = pair_of(frame);
    if (!room(pairs_[pair], records_kept(), writes_of(frame))) break;
    put(frame, pair);
    ++taken_;
  }
  hand_over();
  return taken_ != before;
}

void Link::say_consumed() {
  const auto due = [this](const QueuePair& at) {
    return at.consumed - at.advertised >= parts_.depth / 2;
  };
  if (failure_ || std::none_of(pairs_.begin(), pairs_.end(), due) || !room(pairs_[0], 0, 1)) return;
  put_record(0, {.what = What::kCredit, .header = {.kind = 1}}, {});
  hand_over();
}

// ---- receiving

void Link::completed(const Ticket& ticket, const ibv_wc& completion) {
  if (failure_) return;  // The first one says why; the others follow from it.
  QueuePair& at = pairs_[ticket.pair % pairs_.size()];
  if (completion.status != IBV_WC_SUCCESS) {
    fail(ticket.received ? "receiving: " + in_words(completion)
                         : fmt::format("writing {} bytes: {}", at.bytes, in_words(completion)));
    return;
  }
  if (!ticket.received) {
    at.done += ticket.count - static_cast<std::uint32_t>(at.done);
    at.bytes_done = at.bytes_until[at.done % at.bytes_until.size()];
    return;
  }
  if (ntohl(completion.imm_data) != static_cast<std::uint32_t>(at.arrived) ||
      at.arrived - at.consumed >= parts_.depth) {
    failure_ = corrupt("a record came out of turn");
    return;
  }
  ++at.arrived;
}

void Link::broken(const ibv_qp* pair, const std::string& what) {
  const auto is_it = [pair](const QueuePair& at) { return at.pair.get() == pair; };
  if (pair == nullptr || std::any_of(pairs_.begin(), pairs_.end(), is_it)) fail(what);
}

void Link::fail(std::string_view what) {
  if (failure_) return;
  device_.take_events();  // It may have said why.
  if (failure_) return;
  const std::string event = device_.last_event();
  failure_ = Error{Code::kPeerFailed,
                   fmt::format("{}: {}{}{}", parts_.where, what,
                               event.empty() ? "" : "; " + device_.name() + ": ", event),
                   Rank{parts_.me}, Rank{parts_.peer}};
}

Error Link::corrupt(std::string_view what) const {
  return {Code::kPeerFailed, fmt::format("{}: {}: the stream is corrupt", parts_.where, what),
          Rank{parts_.me}, Rank{parts_.peer}};
}

std::span<const std::byte> Link::arrived_record(std::size_t pair, std::uint64_t count) const {
  const std::size_t place = (pair * parts_.depth + count % parts_.depth) * kRecordBytes;
  return parts_.in.bytes.subspan(place, kRecordBytes);
}

bool Link::ready() const {
  if (abandoned_) return false;
  return failure_ || std::any_of(pairs_.begin(), pairs_.end(),
                                 [](const QueuePair& at) { return at.arrived != at.consumed; });
}

bool Link::take_credits(const Record& record) {
  for (std::size_t i = 0; i < pairs_.size(); ++i) {
    QueuePair& at = pairs_[i];
    const std::uint32_t more = record.consumed[i] - static_cast<std::uint32_t>(at.taken);
    // Over several queue pairs an older record may come after a newer one.
    if (more > std::numeric_limits<std::uint32_t>::max() / 2) continue;
    if (more > at.sent - at.taken) return false;
    at.taken += more;
  }
  return true;
}

std::span<const std::byte> Link::memory_of(Target target) const {
  if (target == Target::kGpuDirect) return parts_.gpudirect.in.bytes;
  return (target == Target::kNear ? parts_.near : parts_.replica).bytes;
}

/// False: not now.
Result<bool> Link::take(const Record& record, const std::byte* payload, net::FrameSink& sink) {
  TUTTI_TRY(const auto place, sink.place(record.header));
  if (!place) return false;
  const net::Piece wanted(*place, record.header.bytes);
  const bool is_gpudirect = net::overlap(parts_.gpudirect.in.bytes, wanted);
  if (is_gpudirect != (record.target == Target::kGpuDirect))
    return corrupt("a payload is not where it belongs");
  if (record.target == Target::kRecord) {
    if (!wanted.empty()) std::memcpy(*place, payload, wanted.size());
  } else {
    const auto memory = memory_of(record.target);
    if (record.offset > memory.size() || memory.size() - record.offset < wanted.size())
      return corrupt("a payload lies outside of the memory");
    const std::byte* const placed = memory.data() + record.offset;
    if (*place != placed) {
      if (is_gpudirect || offset_in(parts_.near.bytes, wanted) ||
          offset_in(parts_.replica.bytes, wanted))
        return corrupt("a payload is not where it belongs");
      std::memcpy(*place, placed, wanted.size());  // Its taker wants it somewhere else.
    }
  }
  TUTTI_RETURN_IF_ERROR(sink.arrived(record.header));
  return true;
}

/// False: nothing is there that can be taken now.
Result<bool> Link::deliver_next(std::size_t pair, net::FrameSink& sink) {
  QueuePair& at = pairs_[pair];
  if (at.arrived == at.consumed) return false;
  const auto bytes = arrived_record(pair, at.consumed);
  const auto record = parse_record(bytes.first<kRecordHeadBytes>());
  if (!record || !take_credits(*record)) return corrupt("this is no record");
  if (record->what != What::kCredit) {
    const std::uint32_t ahead = record->header.sequence - expected_;
    if (ahead > std::numeric_limits<std::uint32_t>::max() / 2) return corrupt("a frame came twice");
    if (ahead != 0) return false;
    if (record->what == What::kBye) {
      fail("its process has ended, or has closed the communicator");
      return false;
    }
    TUTTI_TRY(const bool taken, take(*record, bytes.data() + kRecordHeadBytes, sink));
    if (!taken) return false;
    ++expected_;
  }
  ++at.consumed;
  return post_receives(at);
}

Result<bool> Link::deliver(net::FrameSink& sink) {
  bool any = false;
  for (bool more = true; more;) {
    more = false;
    for (std::size_t pair = 0; pair < pairs_.size(); ++pair) {
      for (;;) {
        TUTTI_TRY(const bool one, deliver_next(pair, sink));
        if (!one) break;
        more = any = true;
      }
    }
    more = more && pairs_.size() > 1;  // Another queue pair may have waited for this arrival.
  }
  return any;
}

Result<bool> Link::progress(net::FrameSink& sink) {
  bool moved = post();
  TUTTI_TRY(const bool got, deliver(sink));
  moved = moved || got;
  say_consumed();
  if (failure_ && !got) return *failure_;
  return moved;
}

Result<bool> Link::flush() {
  const bool moved = post();
  if (failure_) return *failure_;
  return moved;
}

}  // namespace tutti::verbs
