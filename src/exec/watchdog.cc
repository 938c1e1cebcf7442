#include "exec/watchdog.h"

#include <algorithm>
#include <new>
#include <thread>

#include "base/clock.h"
#include "exec/calls/agreement.h"
#include "exec/flight/dump.h"

namespace tutti::exec {
namespace {

using namespace std::chrono_literals;

// After this time a rank tells the others which rank it waits for.
constexpr std::chrono::milliseconds kLongWait{1000};
constexpr std::chrono::milliseconds kLookPause{50};
constexpr std::int64_t kHealthCheckMs = 20;

}  // namespace

Watchdog::Watchdog(const CallBoard& board, const ActiveCall& call, Milliseconds timeout,
                   std::vector<std::string> places)
    : board_(board), call_(call), timeout_(timeout), places_(std::move(places)) {}

void Watchdog::set_broken() noexcept {
  // Where memory ran out the error may not be there yet.
  if (!std::exchange(broken_, true) && board_.region().ending())
    flight::write_record(board_.flight(), board_.region());
}

void Watchdog::claim() {
  // seq_cst, with those in abort: if one rank begins a call while another thread aborts, at least
  // one of the two sees the other.
  link_users_.fetch_add(1, std::memory_order_seq_cst);
  while (aborting_.load(std::memory_order_seq_cst)) std::this_thread::yield();
}

void Watchdog::abort(const Error& error) {
  (void)board_.region().abort(error);
  RemoteLink* const remote_link = board_.team().remote_link;
  if (remote_link == nullptr) return;
  remote_link->wake();
  tell_abort();
}

/// Once a call has failed nobody drives the link. So what the network does not take at once (its
/// buffers are full) would stay here, and the others would wait until their deadlines. Every call
/// that was begun ends by this: they all have the same second.
void Watchdog::send_abort() {
  RemoteLink& link = *board_.team().remote_link;
  const auto begin = std::chrono::steady_clock::now();
  auto now = begin;
  for (link.progress(); link.pending() && now - begin < goodbye_left_;
       now = std::chrono::steady_clock::now()) {
    if (!link.progress()) link.sleep(goodbye_left_ - (now - begin));
  }
  goodbye_left_ -= std::min<std::chrono::nanoseconds>(now - begin, goodbye_left_);
}

void Watchdog::tell_abort() {
  // seq_cst: see `claim`. Again if a thread has claimed and freed the link meanwhile: it then found
  // that another one was about to send.
  for (bool told = false; !told && link_users_.load(std::memory_order_seq_cst) == 0 &&
                          !aborting_.exchange(true, std::memory_order_seq_cst);) {
    if (link_users_.load(std::memory_order_seq_cst) == 0) {
      told = true;
      try {
        send_abort();
      } catch (const std::bad_alloc&) {  // The others see this rank's end, or their deadline.
      }
    }
    // seq_cst, and so release: what it did to the link is over.
    aborting_.store(false, std::memory_order_seq_cst);
  }
}

void Watchdog::pass_on_abort() {
  RemoteLink* const remote_link = board_.team().remote_link;
  if (remote_link == nullptr) return;
  remote_link->flush();  // To tell the others, before `keep` may end a connection.
  remote_link->keep();   // Return the buffers to the caller.
  send_abort();
}

Error Watchdog::report(Error error) {
  error.rank = Rank{board_.team().me};
  error = with_place(std::move(error));
  const bool first = board_.region().abort(error);
  pass_on_abort();
  // The first rank to report a timeout or a death knows best, so the others repeat its error. In a
  // mismatch each rank reports its own call.
  const bool of_others = error.code == Code::kTimeout || error.code == Code::kPeerFailed;
  return first || !of_others ? error : broken_error(call_.describe());
}

Error Watchdog::broken_error(const std::string& what) const {
  Error error = board_.region().abort_error();
  const std::string by = error.rank.value < 0 ? "" : " by rank " + std::to_string(error.rank.value);
  error.rank = Rank{board_.team().me};
  error.what = what + " was ended" + by + ": " + error.what;
  return error;
}

Error Watchdog::with_place(Error error) const {
  const auto peer = static_cast<std::size_t>(error.peer.value);
  if (error.peer.value >= 0 && peer < places_.size())
    error.what += " (rank " + std::to_string(peer) + " is " + places_[peer] + ")";
  return error;
}

bool Watchdog::begins_waiting(Time now) {
  if (waiting_) return false;
  waiting_ = true;
  wait_start_ = now;
  next_look_ = now + kLookPause;
  return true;
}

bool Watchdog::look_due(Time now) {
  if (now < next_look_) return false;
  next_look_ = now + kLookPause;
  return true;
}

bool Watchdog::is_long(Time since, Time now) const {
  return now - since >= std::min(kLongWait, timeout_ / 4);
}

void Watchdog::show_wait(std::uint64_t wait) {
  shown_ = wait != 0;
  // relaxed: for the text of errors only.
  board_.region().status(board_.team().me).waits_for.store(wait, std::memory_order_relaxed);
}

void Watchdog::end_wait() {
  waiting_ = false;
  if (shown_) show_wait(0);
}

void Watchdog::end_message_wait() {
  show_wait(0);
  if (RemoteLink* const remote_link = board_.team().remote_link; remote_link != nullptr)
    remote_link->flush();
}

void Watchdog::say_waiting(Time now, std::span<const int> awaited) {
  if (is_long(wait_start_, now))
    show_wait(awaited.empty() ? 0 : wait_of(board_.number(), awaited.back()));
}

void Watchdog::say_message_waits(const std::optional<std::pair<int, Time>>& longest, Time now) {
  if (waiting_) return;
  if (longest && is_long(longest->second, now))
    show_wait(wait_of(kAnyCall, longest->first));
  else if (shown_)
    show_wait(0);
}

std::optional<Error> Watchdog::find_gone(std::span<const int> awaited) const {
  const Endpoint& endpoint = board_.team().endpoint;
  for (const int rank : awaited) {
    const Presence there = endpoint.presence(rank);
    if (there.state == Presence::State::kHere) continue;
    if (there.state == Presence::State::kLeft && there.finished >= board_.number()) continue;
    return Error{Code::kPeerFailed,
                 call_.describe() + ": " + endpoint.why_gone(rank, there) + "; call " +
                     std::to_string(board_.number()) + " can't be completed",
                 Rank{board_.team().me}, Rank{rank}};
  }
  return std::nullopt;
}

/// "rank 2, whose latest call is 4, all_reduce of ...".
std::string Watchdog::describe_rank(int rank) const {
  return "rank " + std::to_string(rank) + ", " +
         describe_latest(board_.team().endpoint, Rank{board_.team().me}, rank, "call");
}

Error Watchdog::timeout_error(std::span<const int> awaited) const {
  const int blamed =
      awaited.empty() ? -1 : follow_waits(board_.region(), board_.team().me, awaited.back());
  std::string what = call_.describe() + " (call " + std::to_string(board_.number()) + "): waited " +
                     std::to_string(timeout_.count()) + " ms";
  if (blamed >= 0) what += " for " + describe_rank(blamed);
  for (const int rank : awaited) {
    // relaxed: for the text only.
    const auto number = board_.region().record(rank).number.load(std::memory_order_relaxed);
    if (rank != blamed && number < board_.number()) what += "; for " + describe_rank(rank);
  }
  return {Code::kTimeout, what + "; TUTTI_TIMEOUT_MS sets the limit", Rank{board_.team().me},
          Rank{blamed}};
}

bool Watchdog::health_check_due() {
  if (board_.team().remote_link == nullptr || coarse_ms() < next_health_check_) return false;
  next_health_check_ = coarse_ms() + kHealthCheckMs;
  return true;
}

void Watchdog::begin_stop() {
  // release: this rank's writes into its peers' buffers are over.
  board_.region().status(board_.team().me).busy.store(0, std::memory_order_release);
  stop_end_ = std::chrono::steady_clock::now() + kLongestStop;
}

bool Watchdog::has_stopped(Error& error) const {
  const auto now = std::chrono::steady_clock::now();
  const Team& team = board_.team();
  std::string writing;
  for (int rank = 0; rank < team.ranks; ++rank) {
    if (rank == team.me || !team.endpoint.near(team.me, rank)) continue;
    // seq_cst: see PlanPath::start.
    if (team.region.status(rank).busy.load(std::memory_order_seq_cst) == 0) continue;
    if (!is_here(rank)) continue;
    if (now < stop_end_) return false;
    writing += (writing.empty() ? "rank " : ", rank ") + std::to_string(rank);
  }
  if (!writing.empty()) error.what += "; " + writing + " may still write into this call's buffers";
  return true;
}

bool Watchdog::wait_for_reader(int rank, Time last) const {
  // seq_cst: see Messages::copy_part.
  const auto reads = [&] {
    return board_.region().status(rank).reads_from.load(std::memory_order_seq_cst) ==
           1 + static_cast<std::uint64_t>(board_.team().me);
  };
  while (reads() && is_here(rank)) {
    if (std::chrono::steady_clock::now() >= last) return false;
    std::this_thread::sleep_for(50us);
  }
  return true;
}

}  // namespace tutti::exec
