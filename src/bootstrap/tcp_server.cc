#include "bootstrap/tcp_server.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <thread>

#include "base/log.h"
#include "base/net/evict.h"
#include "base/threads.h"
#include "bootstrap/limits.h"
#include "bootstrap/tcp_connection.h"

namespace tutti::bootstrap {
namespace {

constexpr std::uint64_t kWakeId = 0;
// Event ids of listeners: their index with this bit; those of connections count up from 1.
constexpr std::uint64_t kListenerBit = std::uint64_t{1} << 63;
// While the process is out of descriptors, clients wait in the kernel's queue.
constexpr std::chrono::milliseconds kAcceptPause{100};

/// Every server of this process, for find_server, and for the end of the process: the last answers
/// may not have been read by then.
class Registry {
 public:
  ~Registry() {
    if (owner_ != getpid()) return;  // A fork has the list, but not the threads.
    const Deadline deadline = Deadline::after(TcpServer::kLingerTime);
    for (const auto& server : all()) {
      while (server->clients() != 0 && !deadline.passed())
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  void add(const std::shared_ptr<TcpServer>& server) {
    const std::lock_guard lock(mutex_);
    if (owner_ != getpid()) servers_.clear();
    owner_ = getpid();
    std::erase_if(servers_, [](const auto& one) { return one.expired(); });
    servers_.push_back(server);
  }
  std::vector<std::shared_ptr<TcpServer>> all() {
    const std::lock_guard lock(mutex_);
    std::vector<std::shared_ptr<TcpServer>> alive;
    if (owner_ != getpid()) return alive;
    for (const auto& one : servers_) {
      if (auto server = one.lock()) alive.push_back(std::move(server));
    }
    return alive;
  }
  std::mutex& mutex() { return mutex_; }

 private:
  std::mutex mutex_;
  std::vector<std::weak_ptr<TcpServer>> servers_;
  pid_t owner_ = 0;
};

Registry& registry() {
  static Registry instance;
  return instance;
}
const HeldAcrossFork registry_held(ForkOrder::kStores,
                                   []() -> std::mutex& { return registry().mutex(); });

}  // namespace

TcpServer::TcpServer(Listening listening, std::string place)
    : place_(std::move(place)), port_(listening.port), listeners_(std::move(listening.sockets)) {}

TcpServer::~TcpServer() = default;

Status TcpServer::prepare() {
  rlimit descriptors{};
  most_unauthenticated_ = kMostUnauthenticated;
  if (getrlimit(RLIMIT_NOFILE, &descriptors) == 0) {
    most_unauthenticated_ = static_cast<std::size_t>(
        std::clamp<rlim_t>(descriptors.rlim_cur / 8, 4, kMostUnauthenticated));
  }
  epoll_ = Fd(epoll_create1(EPOLL_CLOEXEC));
  wake_ = Fd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!epoll_ || !wake_) return system_error("rendezvous: epoll", errno);
  TUTTI_RETURN_IF_ERROR(watch(epoll_.get(), EPOLL_CTL_ADD, wake_.get(), EPOLLIN, kWakeId));
  for (std::size_t i = 0; i < listeners_.size(); ++i) {
    listeners_closed_in_child_.push_back(std::make_unique<ClosedInChild>(listeners_[i]));
    TUTTI_RETURN_IF_ERROR(
        watch(epoll_.get(), EPOLL_CTL_ADD, listeners_[i].get(), EPOLLIN, kListenerBit | i));
  }
  return ok();
}

Result<std::shared_ptr<TcpServer>> TcpServer::start(Listening listening, std::string place) {
  const std::shared_ptr<TcpServer> server(new TcpServer(std::move(listening), std::move(place)));
  TUTTI_RETURN_IF_ERROR(server->prepare());
  // Detached: it ends by itself, and keeps the server alive until then.
  TUTTI_TRY(auto thread,
            start_thread("rendezvous: the store's thread", [server] { server->serve(); }));
  thread.detach();
  registry().add(server);
  return server;
}

Status TcpServer::add(const Secret& secret, const std::shared_ptr<Store>& store) {
  auto job = std::make_shared<Job>();
  job->secret = secret;
  job->number = tcp::job_of(secret);
  job->store = store;
  {
    const std::lock_guard lock(mutex_);
    if (!listening_) return Error{Code::kPeerFailed, "rendezvous: the server is closing"};
    std::erase_if(jobs_, [&](const auto& other) {
      return other->secret == secret && other->verdict_until.has_value();
    });
    for (const auto& other : jobs_) {
      if (other->secret == secret) {
        return Error{Code::kInvalidArgument,
                     "rendezvous: this process already serves that job at " + place_};
      }
    }
    jobs_.push_back(job);
  }
  store->on_change([weak = weak_from_this(), weak_job = std::weak_ptr(job)](std::string_view key) {
    const auto server = weak.lock();
    if (!server) return;
    {
      const std::lock_guard lock(server->mutex_);
      server->changes_.emplace_back(weak_job, key);
    }
    server->wake();
  });
  return ok();
}

std::shared_ptr<TcpServer::Job> TcpServer::find_job(const Secret& secret) const {
  const std::lock_guard lock(mutex_);
  const auto at =
      std::ranges::find_if(jobs_, [&](const auto& job) { return job->secret == secret; });
  return at == jobs_.end() ? nullptr : *at;
}

void TcpServer::remove(const Secret& secret) {
  const std::shared_ptr<Job> job = find_job(secret);
  // Asked without this server's lock: a store that changes calls this server under its own lock.
  const bool failed = job != nullptr && job->store->failed();
  {
    const std::lock_guard lock(mutex_);
    if (failed)
      job->verdict_until = std::chrono::steady_clock::now() + kVerdictTime;
    else
      std::erase(jobs_, job);
    if (jobs_.empty()) listening_ = false;
  }
  wake();
}

void TcpServer::answer_all(const Secret& secret, Deadline deadline) const {
  const std::shared_ptr<Job> asked = find_job(secret);
  while (asked && asked->owed.load(std::memory_order_relaxed) > 0 && !deadline.passed())
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

std::size_t TcpServer::clients() const {
  const std::lock_guard lock(mutex_);
  return clients_;
}

void TcpServer::wake() {
  const std::uint64_t one = 1;
  // It can only fail when a wake-up is pending already.
  [[maybe_unused]] const ssize_t written = ::write(wake_.get(), &one, sizeof(one));
}

void TcpServer::serve() {
  std::array<epoll_event, 64> events{};
  for (;;) {
    const int count =
        epoll_wait(epoll_.get(), events.data(), events.size(), milliseconds_to_next());
    for (int i = 0; i < count; ++i) {
      const auto& event = events[static_cast<std::size_t>(i)];
      if (event.data.u64 == kWakeId) {
        std::uint64_t wakes = 0;
        [[maybe_unused]] const ssize_t got = ::read(wake_.get(), &wakes, sizeof(wakes));
      } else if ((event.data.u64 & kListenerBit) != 0) {
        const auto index = static_cast<std::size_t>(event.data.u64 & ~kListenerBit);
        if (index < listeners_.size()) accept_all(listeners_[index].get());
      } else {
        on_event(event.data.u64, event.events);
      }
    }
    answer_changes();
    end_timers();
    end_verdicts();
    if (listen_again_ <= std::chrono::steady_clock::now()) watch_listeners(true);
    bool listening = true;
    {
      const std::lock_guard lock(mutex_);
      listening = listening_;
    }
    if (!listening) {
      stop_listening();
      if (connections_.empty()) return;
    }
  }
}

/// -1: nothing has a time.
int TcpServer::milliseconds_to_next() const {
  Time next = std::min(next_verdict_end_, listen_again_);
  if (!timers_.empty()) next = std::min(next, timers_.begin()->first);
  if (next == Time::max()) return -1;
  const auto left =
      std::chrono::ceil<std::chrono::milliseconds>(next - std::chrono::steady_clock::now());
  return static_cast<int>(std::clamp<std::int64_t>(left.count(), 0, 60'000));
}

/// Forgets jobs that failed long ago, and stops listening after the last one.
void TcpServer::end_verdicts() {
  const auto now = std::chrono::steady_clock::now();
  const std::lock_guard lock(mutex_);
  next_verdict_end_ = Time::max();
  if (jobs_.empty()) return;
  std::erase_if(jobs_,
                [&](const auto& job) { return job->verdict_until && *job->verdict_until <= now; });
  for (const auto& job : jobs_) {
    if (job->verdict_until) next_verdict_end_ = std::min(next_verdict_end_, *job->verdict_until);
  }
  if (jobs_.empty()) listening_ = false;
}

void TcpServer::stop_listening() {
  if (listeners_.empty()) return;
  for (const Fd& listener : listeners_)
    epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, listener.get(), nullptr);
  listeners_closed_in_child_.clear();
  listeners_.clear();
  // A connection that has not joined can't join any more.
  std::vector<std::uint64_t> unauthenticated;
  for (const auto& [id, connection] : connections_) {
    if (!connection->job) unauthenticated.push_back(id);
  }
  for (const std::uint64_t id : unauthenticated) close(id);
}

void TcpServer::accept_all(int listener) {
  for (;;) {
    SocketAddress peer;
    peer.length = sizeof(peer.storage);
    Fd socket(::accept4(listener, peer.get(), &peer.length, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!socket) {
      if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
        const int reason = errno;
        if (!std::exchange(starved_, true)) {
          log::error(log::Part::kJoin, "{}; ranks that come later wait",
                     system_error("rendezvous: accepting a rank", reason).what);
        }
        evict("descriptors have run out");
        watch_listeners(false);  // A busy loop would not help.
      } else if (errno == EINTR || errno == ECONNABORTED) {
        continue;
      }
      return;
    }
    starved_ = false;
    set_stream_options(socket.get());
    auto connection = std::make_unique<Connection>();
    connection->id = next_id_++;
    connection->peer = peer.text();
    connection->source = peer.ip_text();
    connection->socket = std::move(socket);
    if (!watch(epoll_.get(), EPOLL_CTL_ADD, connection->socket.get(), EPOLLIN | EPOLLRDHUP,
               connection->id)) {
      continue;
    }
    set_timer(*connection, std::chrono::steady_clock::now() + kJoinTime);
    const std::uint64_t id = connection->id;
    connections_.emplace(id, std::move(connection));
    ++unauthenticated_;
    on_event(id, EPOLLIN);  // Read what it has already sent: evict prefers silent connections.
    if (unauthenticated_ > most_unauthenticated_) evict("too many unauthenticated peers have come");
  }
}

void TcpServer::evict(const char* why) {
  std::vector<Unproven> unproven;
  for (const auto& [id, connection] : connections_) {
    if (!connection->job)
      unproven.push_back({id, connection->handshake.has_value(), connection->source});
  }
  if (unproven.empty()) return;
  const std::uint64_t id = whom_to_evict(unproven);
  log::info(log::Part::kJoin, "rendezvous: closed {}: {}", connections_.at(id)->peer, why);
  close(id);
}

/// Accepts connections, or leaves them in the kernel's queue for a while.
void TcpServer::watch_listeners(bool watched) {
  for (std::size_t i = 0; i < listeners_.size(); ++i) {
    (void)watch(epoll_.get(), EPOLL_CTL_MOD, listeners_[i].get(),
                watched ? std::uint32_t{EPOLLIN} : 0, kListenerBit | i);
  }
  listen_again_ = watched ? Time::max() : std::chrono::steady_clock::now() + kAcceptPause;
}

void TcpServer::on_event(std::uint64_t id, std::uint32_t events) {
  const auto found = connections_.find(id);
  if (found == connections_.end()) return;  // Closed earlier in this round.
  Connection& connection = *found->second;
  bool alive = true;
  if ((events & EPOLLOUT) != 0) alive = flush(connection);
  // Read what came before the end first: it may be a farewell.
  if (alive) alive = read(connection);
  if (!alive) close(id);
}

void TcpServer::answer_changes() {
  std::vector<std::pair<std::weak_ptr<Job>, std::string>> changes;
  {
    const std::lock_guard lock(mutex_);
    changes.swap(changes_);
  }
  for (const auto& [weak, key] : changes) {
    const auto job = weak.lock();
    if (!job) continue;
    std::vector<std::uint64_t> waiters;
    if (key.empty()) {  // The job has failed: it concerns them all.
      for (const auto& [name, ids] : job->waiting)
        waiters.insert(waiters.end(), ids.begin(), ids.end());
    } else if (const auto found = job->waiting.find(key); found != job->waiting.end()) {
      waiters = found->second;
    }
    for (const std::uint64_t id : waiters) answer_waiter(id);
  }
}

void TcpServer::answer_waiter(std::uint64_t id) {
  const auto found = connections_.find(id);
  if (found == connections_.end()) return;
  Connection& connection = *found->second;
  const auto value = connection.job->store->find(connection.key);
  stop_waiting(connection);
  wire::Message answer{.kind = wire::Kind::kAbsent};
  if (!value)
    answer = {.kind = wire::Kind::kFailed, .error = value.error()};
  else if (*value)
    answer = {.kind = wire::Kind::kValue, .value = **value};
  if (!reply(connection, answer, value ? *value : nullptr)) close(id);
}

void TcpServer::end_timers() {
  const auto now = std::chrono::steady_clock::now();
  while (!timers_.empty() && timers_.begin()->first <= now) {
    const std::uint64_t id = timers_.begin()->second;
    const Connection& connection = *connections_.at(id);
    if (connection.key.empty()) {
      log::info(log::Part::kJoin, "rendezvous: closed {}: it did not join in time",
                connection.peer);
      close(id);
    } else {
      answer_waiter(id);
    }
  }
}

void TcpServer::set_timer(Connection& connection, Time at) {
  clear_timer(connection);
  connection.timer = at;
  timers_.emplace(at, connection.id);
}

void TcpServer::clear_timer(Connection& connection) {
  timers_.erase({connection.timer, connection.id});
}

void TcpServer::stop_waiting(Connection& connection) {
  clear_timer(connection);
  if (connection.key.empty()) return;
  const auto found = connection.job->waiting.find(connection.key);
  std::erase(found->second, connection.id);
  if (found->second.empty()) connection.job->waiting.erase(found);
  connection.key.clear();
}

void TcpServer::close(std::uint64_t id) {
  const auto found = connections_.find(id);
  if (found == connections_.end()) return;
  Connection& connection = *found->second;
  stop_waiting(connection);
  epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, connection.socket.get(), nullptr);
  // A forked child may hold a copy of the socket; the peer is to see the end all the same.
  ::shutdown(connection.socket.get(), SHUT_RDWR);
  note_asked(connection, false);
  note_spoken(connection);
  if (!connection.job) --unauthenticated_;
  if (connection.job) {
    const std::lock_guard lock(mutex_);
    --clients_;
  }
  const auto job = connection.job;
  const auto joining = connection.joining;
  if (job) note_left(connection);
  const std::string process = std::move(connection.process);
  connections_.erase(found);
  if (job && joining) {
    job->store->fail(ended_while_joining(*joining, process));
  }
}

std::shared_ptr<TcpServer> find_server(const std::string& place) {
  for (auto& server : registry().all()) {
    if (server->place() == place) return std::move(server);
  }
  return nullptr;
}

}  // namespace tutti::bootstrap
