#include "transport/ucx/carrier.h"

#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <utility>

#include "base/check.h"

namespace tutti::ucx {
namespace {

// How long closing may take once the other side does not answer.
constexpr std::chrono::milliseconds kClosing{200};
// How long a call that has failed may wait for what UCX still sends from its memory.
constexpr std::chrono::milliseconds kTakingBack{100};
// Frames are this rank's own memory: nothing to find out.
constexpr std::uint32_t kOperation =
    UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_MEMORY_TYPE;

ucp_request_param_t operation(void* which) {
  ucp_request_param_t param{};
  param.op_attr_mask = kOperation;
  param.memory_type = UCS_MEMORY_TYPE_HOST;
  param.user_data = which;
  return param;
}

/// The transports and devices in what UCX prints of an endpoint: "tcp/eth0, cma/memory".
std::string path_of(const Library& library, ucp_ep_h endpoint) {
  char* text = nullptr;
  std::size_t size = 0;
  std::FILE* const file = open_memstream(&text, &size);
  if (file == nullptr) return "an unknown way";
  library.ucp_ep_print_info(endpoint, file);
  std::fclose(file);
  const std::string printed(text, size);
  std::free(text);
  std::string path;
  // "#   lane[0]:  2:tcp/eth0.0 md[1]  -> ..."
  for (std::size_t at = 0; (at = printed.find("lane[", at)) != std::string::npos; ++at) {
    const std::size_t number = printed.find(':', at);
    const std::size_t begin = printed.find(':', number + 1) + 1;
    const std::size_t end = printed.find_first_of(". \n", begin);
    if (number == std::string::npos || begin == 0 || end == std::string::npos) break;
    const std::string one = printed.substr(begin, end - begin);
    if (path.find(one) == std::string::npos) path += (path.empty() ? "" : ", ") + one;
  }
  return path.empty() ? "an unknown way" : path;
}

}  // namespace

UcxCarrier::UcxCarrier(Worker& worker, Ends ends)
    : worker_(worker), ends_(std::move(ends)), out_(kMostQueued + 1), in_(kWindow) {
  for (Outgoing& one : out_) one.carrier = this;
  for (Incoming& one : in_) one.carrier = this;
}

Status UcxCarrier::connect(std::span<const std::byte> address) {
  const Library& ucx = worker_.library();
  ucp_ep_params_t params{};
  params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                      UCP_EP_PARAM_FIELD_ERR_HANDLER;
  params.address = reinterpret_cast<const ucp_address_t*>(address.data());
  params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
  params.err_handler.arg = this;
  params.err_handler.cb = [](void* carrier, ucp_ep_h, ucs_status_t status) {
    static_cast<UcxCarrier*>(carrier)->fail(status, "connected");
  };
  ucs_status_t status = ucx.ucp_ep_create(worker_.get(), &params, &endpoint_);
  if (status == UCS_ERR_UNREACHABLE) {
    // Some ways don't notice when a peer goes (UCX 1.13's shared memory): better than none.
    watched_ = false;
    params.err_mode = UCP_ERR_HANDLING_MODE_NONE;
    status = ucx.ucp_ep_create(worker_.get(), &params, &endpoint_);
  }
  if (status != UCS_OK) {
    fail(status, "connecting");
    return Error{Code::kSystem,
                 fmt::format("ucx: no way to {}: {}; UCX_TLS and UCX_NET_DEVICES have to leave "
                             "something that joins both hosts (ucx_info -d lists what there is)",
                             ends_.peer_name, ucx.ucs_status_string(status)),
                 Rank{ends_.me}, Rank{ends_.peer}};
  }
  hello_ = encode({.from = ends_.me, .what = What::kHello, .header = {.kind = 1}}, ends_.peer_key);
  ucp_request_param_t param = operation(this);
  param.cb.send = [](void* request, ucs_status_t how, void* carrier) {
    auto& self = *static_cast<UcxCarrier*>(carrier);
    if (how != UCS_OK) self.fail(how, "connecting");
    self.worker_.library().ucp_request_free(request);
  };
  void* const request =
      ucx.ucp_am_send_nbx(endpoint_, 0, hello_->data(), hello_->size(), nullptr, 0, &param);
  if (UCS_PTR_IS_ERR(request)) fail(UCS_PTR_RAW_STATUS(request), "connecting");
  return ok();
}

void UcxCarrier::settle() { path_ = path_of(worker_.library(), endpoint_); }

void UcxCarrier::close() {
  if (endpoint_ == nullptr) return;
  closed_ = true;
  for (Incoming& one : in_) drop(one);
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
  // Force only a broken connection: otherwise frames that were handed on go first.
  param.flags = watched_ && status_ != UCS_OK ? UCP_EP_CLOSE_FLAG_FORCE : 0;
  const auto until = std::chrono::steady_clock::now() + kClosing;
  worker_.finish(worker_.library().ucp_ep_close_nbx(std::exchange(endpoint_, nullptr), &param),
                 until);
}

ucs_status_t UcxCarrier::take(const Message& message, void* data, std::uint64_t attributes) try {
  if (message.what == What::kHello) {
    met_ = true;
    return UCS_OK;
  }
  if (message.what == What::kBye && leaving_) bye_heard_ = true;
  if (leaving_ || closed_) return UCS_OK;
  moved_ = true;
  Incoming& at = in_[message.header.sequence % kWindow];
  if (message.header.sequence - expected_ >= kWindow || at.stage != Stage::kAbsent) {
    fail(UCS_ERR_INVALID_PARAM, "receiving a frame that came twice or far too early");
    return UCS_OK;
  }
  at.stage = Stage::kCome;
  at.what = message.what;
  at.header = message.header;
  at.rendezvous = message.header.bytes != 0 && (attributes & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0;
  if (!at.rendezvous && take_at_once(at, data)) return UCS_OK;
  if (message.header.bytes == 0) return UCS_OK;
  if (at.rendezvous || (attributes & UCP_AM_RECV_ATTR_FLAG_DATA) != 0) {
    at.data = data;
    return UCS_INPROGRESS;
  }
  // All of it has come: parse_message compared the header's number with UCX's. Before the peer's
  // next frames are announced there are at most kWindow of these.
  const auto* const bytes = static_cast<const std::byte*>(data);
  at.aside.assign(bytes, bytes + message.header.bytes);
  return UCS_OK;
} catch (const std::bad_alloc&) {  // No exception may pass through UCX, which calls this.
  if (!refused_) refused_ = Error{Code::kSystem, "out of memory"};
  starved_ = true;
  return UCS_OK;
}

/// If it is the next one that gets a destination, and has one.
bool UcxCarrier::take_at_once(Incoming& which, const void* data) {
  if (which.what != What::kFrame || which.header.sequence != placed_ || sink_ == nullptr ||
      status_ != UCS_OK || refused_)
    return false;
  const auto place = sink_->place(which.header);
  if (!place) {
    refused_ = place.error();
    return false;
  }
  if (!*place) return false;
  if (which.header.bytes != 0) std::memcpy(**place, data, which.header.bytes);
  which.stage = Stage::kThere;
  ++placed_;
  return true;
}

void UcxCarrier::send(net::FrameHeader header, std::span<const net::Piece> pieces) {
  TUTTI_CHECK(pending() < kMostQueued && pieces.size() <= net::kMostPieces);
  post(What::kFrame, header, pieces);
}

void UcxCarrier::post(What what, net::FrameHeader header, std::span<const net::Piece> pieces) {
  Outgoing& at = out_[queued_ % out_.size()];
  header.sequence = static_cast<std::uint32_t>(queued_++);
  at.done = false;
  at.message = encode({.from = ends_.me, .what = what, .header = header}, ends_.peer_key);
  if (status_ != UCS_OK) return on_sent(at, UCS_OK);  // Nobody will get it.

  ucp_request_param_t param = operation(&at);
  param.cb.send = [](void* request, ucs_status_t how, void* which) {
    auto& sent = *static_cast<Outgoing*>(which);
    sent.carrier->worker_.library().ucp_request_free(request);
    sent.carrier->on_sent(sent, how);
  };
  const void* buffer = nullptr;
  std::size_t count = header.bytes;
  at.count = 0;
  for (const net::Piece& piece : pieces) {
    // UCX's type has no const; it only reads.
    if (!piece.empty())
      at.pieces[at.count++] = {const_cast<std::byte*>(piece.data()), piece.size()};
  }
  if (at.count == 1) buffer = at.pieces[0].buffer;
  if (at.count > 1) {
    buffer = at.pieces.data();
    count = at.count;
    param.op_attr_mask |= UCP_OP_ATTR_FIELD_DATATYPE;
    param.datatype = ucp_dt_make_iov();
  }
  void* const request = worker_.library().ucp_am_send_nbx(endpoint_, 0, at.message.data(),
                                                          at.message.size(), buffer, count, &param);
  if (!UCS_PTR_IS_PTR(request)) on_sent(at, UCS_PTR_RAW_STATUS(request));
}

void UcxCarrier::on_sent(Outgoing& which, ucs_status_t status) {
  moved_ = true;
  which.done = true;
  if (status != UCS_OK) fail(status, "sending");
  while (released_ != queued_ && out_[released_ % out_.size()].done) ++released_;
}

void UcxCarrier::fail(ucs_status_t status, const char* doing) {
  if (status_ != UCS_OK) return;
  status_ = status;
  doing_ = doing;
}

Result<bool> UcxCarrier::progress(net::FrameSink& sink) {
  sink_ = &sink;
  bool moved = std::exchange(moved_, false);
  // The shortage is this rank's. Its call has to end before the carrier does: then it tells the
  // peer.
  if (std::exchange(starved_, false)) throw std::bad_alloc();
  if (refused_) return *refused_;
  if (closed_) return *failure();  // By `moved`; what had come is gone.
  // Announced frames may make room for frames that could not be placed.
  for (bool more = true; more;) {
    TUTTI_TRY(const bool some, place(sink));
    TUTTI_TRY(more, announce(sink));
    moved |= some || more;
  }
  // Frames that had come before are of use.
  if (auto why = failure()) return *std::move(why);
  return moved;
}

Result<bool> UcxCarrier::place(net::FrameSink& sink) {
  bool moved = false;
  for (;; ++placed_, moved = true) {
    Incoming& at = in_[placed_ % kWindow];
    if (at.stage != Stage::kCome) return moved;
    std::byte* to = nullptr;
    if (at.what == What::kFrame) {
      TUTTI_TRY(const auto place, sink.place(at.header));
      if (!place) return moved;
      to = *place;
    }
    fetch(at, to);
  }
}

void UcxCarrier::fetch(Incoming& which, std::byte* to) {
  which.stage = which.rendezvous ? Stage::kFetching : Stage::kThere;
  which.fetched = {to, which.header.bytes};
  if (!which.rendezvous) {
    const void* const from = which.data != nullptr ? which.data : which.aside.data();
    if (which.header.bytes != 0) std::memcpy(to, from, which.header.bytes);
    return drop(which);
  }
  void* const data = std::exchange(which.data, nullptr);
  ucp_request_param_t param = operation(&which);
  param.cb.recv_am = [](void* request, ucs_status_t how, std::size_t, void* incoming) {
    auto& fetched = *static_cast<Incoming*>(incoming);
    UcxCarrier& self = *fetched.carrier;
    self.worker_.library().ucp_request_free(request);
    self.moved_ = true;
    if (how == UCS_OK)
      fetched.stage = Stage::kThere;
    else
      self.fail(how, "receiving");
  };
  void* const request =
      worker_.library().ucp_am_recv_data_nbx(worker_.get(), data, to, which.header.bytes, &param);
  if (request == nullptr) which.stage = Stage::kThere;
  if (UCS_PTR_IS_ERR(request)) fail(UCS_PTR_RAW_STATUS(request), "receiving");
}

Result<bool> UcxCarrier::announce(net::FrameSink& sink) {
  bool moved = false;
  while (in_[expected_ % kWindow].stage == Stage::kThere) {
    Incoming& at = in_[expected_ % kWindow];
    at.stage = Stage::kAbsent;
    ++expected_;
    moved = true;
    if (at.what == What::kBye) {
      say_bye();  // It waits for that.
      fail(UCS_ERR_NOT_CONNECTED, "connected");
    } else {
      TUTTI_RETURN_IF_ERROR(sink.arrived(at.header));
    }
  }
  return moved;
}

void UcxCarrier::drop(Incoming& which) {
  if (which.data != nullptr) worker_.library().ucp_am_data_release(worker_.get(), which.data);
  which.data = nullptr;
  which.aside.clear();  // Its memory is kept for the next one.
}

/// Whether UCX may still read or write any of these bytes.
bool UcxCarrier::touches(net::Piece memory) const {
  for (std::uint64_t at = released_; at != queued_; ++at) {
    const Outgoing& one = out_[at % out_.size()];
    for (std::size_t i = 0; i < one.count && !one.done; ++i) {
      const ucp_dt_iov_t& piece = one.pieces[i];
      if (net::overlap(memory, {static_cast<const std::byte*>(piece.buffer), piece.length}))
        return true;
    }
  }
  for (std::uint32_t at = expected_; at != placed_; ++at) {
    const Incoming& one = in_[at % kWindow];
    if (one.stage == Stage::kFetching && net::overlap(memory, one.fetched)) return true;
  }
  return false;
}

void UcxCarrier::moved(net::Piece from, std::byte*) {
  if (!touches(from)) return;
  const auto until = std::chrono::steady_clock::now() + kTakingBack;
  while (touches(from) && status_ == UCS_OK && std::chrono::steady_clock::now() < until)
    worker_.progress();
  if (!touches(from)) return;
  fail(UCS_ERR_CANCELED, "taking back what a call that failed was sending");
  close();
  // UCX 1.13 never says so of a rendezvous that its receiver has not begun; without the connection
  // nobody can begin it.
  released_ = queued_;
}

void UcxCarrier::say_bye() {
  if (std::exchange(bye_said_, true)) return;
  post(What::kBye, {.kind = 1}, {});
}

void UcxCarrier::leave() {
  leaving_ = true;
  forget();
  for (Incoming& one : in_) {
    if (one.stage == Stage::kCome && one.what == What::kBye) bye_heard_ = true;
    drop(one);
  }
  say_bye();
}

bool UcxCarrier::left() {
  worker_.progress();
  return status_ != UCS_OK || (pending() == 0 && bye_heard_);
}

std::string UcxCarrier::where() const {
  return fmt::format("ucx: {} over {}", ends_.peer_name, path_);
}

std::optional<Error> UcxCarrier::failure() const {
  if (status_ == UCS_OK) return std::nullopt;
  if (bye_said_)
    return Error{Code::kPeerFailed, where() + ": it has left the communicator", Rank{ends_.me},
                 Rank{ends_.peer}};
  return Error{Code::kPeerFailed,
               fmt::format("{}: {} while {}: its process has ended, or the way there is broken",
                           where(), worker_.library().ucs_status_string(status_), doing_),
               Rank{ends_.me}, Rank{ends_.peer}};
}

}  // namespace tutti::ucx
