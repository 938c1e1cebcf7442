#include "bootstrap/tcp_client.h"

#include <algorithm>
#include <thread>

#include "base/log.h"
#include "base/long_wait.h"
#include "base/wall.h"
#include "bootstrap/limits.h"

namespace tutti::bootstrap {
namespace {

using std::chrono::milliseconds;

// How long a client that ends waits for an answer: the store may have ended first.
constexpr std::chrono::seconds kTellTime{5};
// Time for the answer of a store that answers at the deadline.
constexpr std::chrono::seconds kGrace{2};
// One attempt at one address; doubled while nobody answers: addresses that lead nowhere must not
// use up the time, and a store that is busy must get its chance.
constexpr milliseconds kFirstAttempt{300}, kLongestAttempt{5000};
constexpr milliseconds kFirstPause{1}, kLongestPause{100};

Deadline earlier(Deadline a, Deadline b) { return a.at < b.at ? a : b; }

milliseconds time_left(Deadline deadline) {
  const auto left = std::chrono::ceil<milliseconds>(deadline.at - std::chrono::steady_clock::now());
  return std::clamp(left, milliseconds(0), milliseconds(1'000'000'000));
}

/// Reads one frame's body.
Result<Bytes> receive_frame(SecureLink& link, Deadline deadline) {
  wire::FrameReader reader(wire::kMostFrameBytes);
  for (Bytes opened;; opened.clear()) {
    TUTTI_RETURN_IF_ERROR(link.receive(opened, deadline));
    reader.append(opened);
    auto frame = reader.next();
    if (!frame) {
      return Error{Code::kInternal, "rendezvous: the store sent " + frame.error().what};
    }
    if (frame->has_value()) return Bytes((**frame).begin(), (**frame).end());
  }
}

Error unexpected(std::string_view text) {
  return {Code::kSystem, text.empty() ? "rendezvous: the store gave an answer of the wrong kind"
                                      : std::string(text)};
}

}  // namespace

Result<std::unique_ptr<Rendezvous>> TcpClient::connect(StorePlace place, Deadline deadline) {
  std::unique_ptr<TcpClient> client(new TcpClient(std::move(place), time_left(deadline)));
  TUTTI_TRY(Link first, client->borrow(deadline));
  const int rank = client->place_.client;
  client->say_entered(first, rank == kAnyClient ? Rank{} : Rank{rank});
  client->give_back(std::move(first));
  return std::unique_ptr<Rendezvous>(std::move(client));
}

/// `refused`: nobody listens there.
Result<SecureLink> TcpClient::open_one(const SocketAddress& address, Deadline deadline,
                                       bool& refused) {
  auto socket = connect_to(address, deadline);
  refused = !socket && socket.error().code == Code::kPeerFailed;
  if (!socket) return std::move(socket.error());
  // TCP can connect a socket to itself while nobody listens; the port is rank 0's.
  auto link = own_end(socket->get()).text() == address.text()
                  ? Result<SecureLink>(Error{Code::kPeerFailed, "nobody listens there"})
                  : SecureLink::connect(*std::move(socket), place_.secret, place_.client, deadline);
  if (!link) link.error().what = address.text() + ": " + link.error().what;
  return link;
}

/// Whether the store has let this process in at that address; notes that it does if `now`.
bool TcpClient::was_at(const SocketAddress& address, bool now) {
  const std::lock_guard lock(mutex_);
  if (now) seen_ = address.text();
  return seen_ == address.text();
}

Result<TcpClient::Link> TcpClient::open(Deadline deadline) {
  const auto start = std::chrono::steady_clock::now();
  LongWait wait(place_.client);
  milliseconds attempt = kFirstAttempt, pause = kFirstPause;
  Error last{Code::kTimeout, "no time was left"};
  for (bool first = true; first || !deadline.passed(); first = false) {
    bool answered = false;  // Somebody did, which says more than that nobody listens elsewhere.
    const auto note = [&](Error error, bool nobody) {
      if (answered && nobody) return;
      answered = answered || !nobody;
      last = std::move(error);
    };
    for (const auto& [host, port] : place_.candidates) {
      // Asked anew each time: in clusters a name may come to life after its users.
      auto addresses = resolve(host, port, deadline);
      if (!addresses) {
        note(std::move(addresses.error()), true);
        continue;
      }
      for (const SocketAddress& address : *addresses) {
        bool refused = false;
        auto link = open_one(address, earlier(deadline, Deadline::after(attempt)), refused);
        const bool seen = was_at(address, bool(link));
        if (link) return Link{*std::move(link)};
        if (refused && seen) {  // It does not come back.
          link.error().what = "it was there before, and has gone: " + link.error().what;
          return std::move(link.error());
        }
        note(std::move(link.error()), refused);
        if (last.code == Code::kMismatch && place_.candidates.size() == 1) {
          last.what = "rendezvous: " + last.what;
          return last;
        }
      }
    }
    log::debug(log::Part::kJoin, "rendezvous: no store at {} yet: {}", place_.name, last.what);
    wait.look([&] {
      return fmt::format("{} at {} has not let it in: {}", place_.keeper, place_.name, last.what);
    });
    std::this_thread::sleep_for(std::min(pause, time_left(deadline)));
    pause = std::min(pause * 2, kLongestPause);
    attempt = std::min(attempt * 2, kLongestAttempt);
  }
  const std::chrono::duration<double> waited = std::chrono::steady_clock::now() - start;
  return Error{
      Code::kTimeout,
      fmt::format(
          "rendezvous: {} at {} did not let this rank in within {:.1f} s (TUTTI_TIMEOUT_MS): "
          "{}; check that rank 0 runs and that the address is right",
          place_.keeper, place_.name, waited.count(), last.what)};
}

Result<TcpClient::Link> TcpClient::borrow(Deadline deadline) {
  {
    const std::lock_guard lock(mutex_);
    if (owner_ != getpid()) idle_.clear();
    owner_ = getpid();
    if (!idle_.empty()) {
      Link link = std::move(idle_.back());
      idle_.pop_back();
      return link;
    }
  }
  return open(deadline);
}

void TcpClient::give_back(Link link) {
  const std::lock_guard lock(mutex_);
  if (owner_ != getpid()) return;
  if (joining_ == 0) say_left(link);  // This rank left while another thread used the link.
  idle_.push_back(std::move(link));
}

/// A rank that does not want to join after all leaves in order, unlike one that ends.
TcpClient::~TcpClient() {
  if (owner_ != getpid() || !came_) return;
  // Without memory to say so the connection just ends: the others hear that this rank has ended.
  (void)walled("leaving", [this] {
    for (Link& link : idle_) say_left(link);
    return ok();
  });
}

/// The store answers neither of these two. If they do not arrive, the connection has broken, and
/// the next request reports it.
void TcpClient::say_left(Link& link) {
  if (!std::exchange(link.entered, false)) return;
  (void)link.link.send(wire::encode({.kind = wire::Kind::kLeave}),
                       Deadline{std::chrono::steady_clock::now()});
}

void TcpClient::say_entered(Link& link, Rank me) {
  const std::string process = this_process_name();
  link.entered = static_cast<bool>(
      link.link.send(wire::encode({.kind = wire::Kind::kEnter, .text = process, .rank = me}),
                     Deadline{std::chrono::steady_clock::now()}));
}

void TcpClient::enter(Rank me) {
  {
    const std::lock_guard lock(mutex_);
    if (!std::exchange(came_, false)) ++joining_;
  }
  auto link = borrow(Deadline::after(patience_));
  if (!link) return;  // The first exchange fails for the same reason, and reports it.
  say_entered(*link, me);
  give_back(*std::move(link));
}

void TcpClient::leave() {
  const std::lock_guard lock(mutex_);
  if (owner_ != getpid() || joining_ == 0 || --joining_ != 0) return;
  for (Link& link : idle_) say_left(link);
}

Result<wire::Message> TcpClient::ask(const wire::Message& request, Bytes& answer,
                                     Deadline deadline) {
  const auto failed = [this](Error error) {
    error.what = place_.keeper + " at " + place_.name + ": " + error.what;
    // Not to be taken for a key that nobody put.
    if (error.code == Code::kTimeout) error.code = Code::kPeerFailed;
    const std::lock_guard lock(mutex_);
    error.peer = keeper_rank_;
    if (place_.keeper_rank != keeper_rank_)
      error.what += fmt::format("; rank {} keeps that store", keeper_rank_.value);
    lost_ = true;
    return error;
  };
  auto borrowed = borrow(deadline);
  if (!borrowed) return failed(std::move(borrowed.error()));
  Link link = *std::move(borrowed);
  if (auto sent = link.link.send(wire::encode(request), deadline); !sent)
    return failed(std::move(sent.error()));
  auto frame = receive_frame(link.link, deadline);
  if (!frame) return failed(std::move(frame.error()));
  answer = *std::move(frame);
  auto message = wire::parse(answer);
  if (!message) return failed(std::move(message.error()));
  give_back(std::move(link));
  if (message->kind == wire::Kind::kFailed) return std::move(message->error);
  return message;
}

Status TcpClient::put(std::string_view key, std::span<const std::byte> value) {
  TUTTI_RETURN_IF_ERROR(check_sizes(key, value.size()));
  Bytes answer;
  TUTTI_TRY(const auto message, ask({.kind = wire::Kind::kPut, .key = key, .value = value}, answer,
                                    Deadline::after(patience_)));
  return message.kind == wire::Kind::kDone ? ok() : Status(unexpected(message.text));
}

Result<Bytes> TcpClient::get(std::string_view key, Deadline deadline) {
  TUTTI_RETURN_IF_ERROR(check_sizes(key));
  const milliseconds wait = time_left(deadline);
  Bytes answer;
  TUTTI_TRY(const auto message, ask({.kind = wire::Kind::kGet,
                                     .wait_ms = static_cast<std::uint32_t>(wait.count()),
                                     .key = key},
                                    answer,
                                    // A store that is far away or stopped for a while is not dead.
                                    Deadline::after(std::max(wait + kGrace, patience_))));
  if (message.kind == wire::Kind::kAbsent) return never_came(key);
  if (message.kind != wire::Kind::kValue) return unexpected(message.text);
  return Bytes(message.value.begin(), message.value.end());
}

Status TcpClient::fail(const Error& error) {
  {
    const std::lock_guard lock(mutex_);
    if (lost_) return Error{Code::kPeerFailed, place_.keeper + " has gone", Rank{}, keeper_rank_};
  }
  Bytes answer;
  TUTTI_TRY(const auto message, ask({.kind = wire::Kind::kFail, .error = error}, answer,
                                    Deadline::after(std::min<milliseconds>(kTellTime, patience_))));
  return message.kind == wire::Kind::kDone ? ok() : Status(unexpected(message.text));
}

}  // namespace tutti::bootstrap
