#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <fstream>
#include <mutex>
#include <new>
#include <numeric>
#include <vector>

#include "base/cpus.h"
#include "base/fork.h"
#include "base/hash.h"
#include "transport/transport.h"
#ifdef TUTTI_HAVE_VERBS
#include "transport/verbs/library.h"
#include "transport/verbs/ports.h"
#endif

namespace tutti {
namespace {

// How long a rank that can't join tries to tell the others.
constexpr std::chrono::milliseconds kLongestGoodbye{100};

/// The layers of RDMA devices that this process can use.
std::uint32_t probe_rdma() {
#ifdef TUTTI_HAVE_VERBS
  const std::uint32_t layers = verbs::usable_layers(verbs::probe_ports());
  return layers != 0 && verbs::load_library() ? layers : 0;
#else
  return 0;
#endif
}

Peer probe_process() {
  Peer peer;
  std::string boot_id;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot_id;
  // Abstract sockets, by which memory is handed over, live in a network namespace.
  struct stat net {};
  if (::stat("/proc/self/ns/net", &net) != 0) net.st_ino = 0;
  peer.host[0] = hash_text(boot_id);
  peer.host[1] = Hash().add_all(boot_id).add(net.st_ino).value();
  if (getrandom(peer.process, sizeof(peer.process), 0) != sizeof(peer.process)) {
    peer.process[0] = static_cast<std::uint64_t>(getpid());
  }
  peer.user = geteuid();
  peer.pid = getpid();
  peer.quota = quota_cpus();
  peer.cpus = affinity();
  peer.heavy_barrier = register_heavy_barrier() ? 1 : 0;
  peer.rdma = probe_rdma();
  (void)gethostname(peer.host_name, sizeof(peer.host_name) - 1);  // For messages; empty is fine.
  return peer;
}

}  // namespace

std::string Endpoint::why_gone(int peer, const Presence& there) const {
  const std::string rank = "rank " + std::to_string(peer) + " ";
  if (there.state != Presence::State::kLeft) return rank + why_dead(peer);
  return rank + "left before this call: it destroyed its communicator after " +
         (there.finished == 0 ? "no call at all" : "call " + std::to_string(there.finished));
}

void Endpoint::end_joining(Error error, Rank me) {
  // A told error without a rank to blame is of the rank that told it.
  if (error.peer.value < 0) error.peer = error.rank.value < 0 ? me : error.rank;
  error.rank = me;
  (void)region().abort(error);
  RemoteLink* const link = remote_link();
  if (link == nullptr) return;
  const Deadline last = Deadline::after(kLongestGoodbye);
  try {
    do {
      link->progress();
    } while (link->pending() && !last.passed());
  } catch (const std::bad_alloc&) {  // They see that this rank has gone.
  }
}

Presence Endpoint::presence(int peer) const {
  // First: a rank says that it has left before it can be missed.
  const bool there = alive(peer);
  // acquire: what the rank wrote before it left is seen as well.
  const std::uint64_t left = region().status(peer).left.load(std::memory_order_acquire);
  if (left != 0) return {Presence::State::kLeft, left - 1};
  return {there ? Presence::State::kHere : Presence::State::kDead};
}

namespace {

constinit std::mutex process_mutex;
const HeldAcrossFork process_held(ForkOrder::kProcess,
                                  []() -> std::mutex& { return process_mutex; });

}  // namespace

Peer this_process() {
  static constinit Peer peer{};
  const std::lock_guard lock(process_mutex);
  if (peer.pid != getpid()) peer = probe_process();  // Also after a fork.
  return peer;
}

bool on_one_machine(const Peer& a, const Peer& b) {
  return a.host[0] == b.host[0];  // The boot id; the other half knows the network as well.
}

namespace {

/// The CPUs that peers of one machine share.
int cpus_of_machine(std::span<const Peer> peers) {
  CpuSet all{};
  int quota = 0, count = 0;
  bool limited = true;
  for (const Peer& peer : peers) {
    for (std::size_t word = 0; word < all.size(); ++word) all[word] |= peer.cpus[word];
    limited = limited && peer.quota > 0;
    quota = std::max(quota, peer.quota);
  }
  for (const std::uint64_t word : all) count += std::popcount(word);
  return std::max(1, limited ? std::min(count, quota) : count);
}

}  // namespace

int shared_cpus(std::span<const Peer> peers) {
  std::vector<Peer> left(peers.begin(), peers.end());
  int cpus = 0;
  while (!left.empty()) {
    const Peer first = left.front();
    const auto others = std::stable_partition(
        left.begin(), left.end(), [&](const Peer& peer) { return on_one_machine(first, peer); });
    cpus += cpus_of_machine({left.begin(), others});
    left.erase(left.begin(), others);
  }
  return std::max(1, cpus);
}

std::vector<int> hosts_of(std::span<const Peer> peers, const Transport& transport) {
  return transport.network == NetworkCost{} ? std::vector<int>{} : hosts_of(peers);
}

std::vector<int> hosts_of(std::span<const Peer> peers) {
  std::vector<int> hosts;
  std::vector<const Peer*> first_of;
  for (const Peer& peer : peers) {
    const auto known = std::ranges::find_if(
        first_of, [&](const Peer* first) { return shared_memory_transport.reach(*first, peer); });
    hosts.push_back(static_cast<int>(known - first_of.begin()));
    if (known == first_of.end()) first_of.push_back(&peer);
  }
  if (first_of.size() == 1) std::iota(hosts.begin(), hosts.end(), 0);
  return hosts;
}

std::span<const Transport* const> transports() {
  static constexpr const Transport* kAll[] = {
#define TUTTI_TRANSPORT(name) &name,
#include "transport/transports.def"
#undef TUTTI_TRANSPORT
  };
  return kAll;
}

namespace {

/// Whether `rule` lets that transport be used: "" all, "tcp" that one, "^verbs,ucx" all but these.
bool allows(std::string_view rule, std::string_view name) {
  if (!rule.starts_with('^')) return rule.empty() || rule == name;
  for (std::string_view rest = rule.substr(1); !rest.empty();) {
    const std::string_view word = rest.substr(0, rest.find(','));
    if (word == name) return false;
    rest.remove_prefix(std::min(rest.size(), word.size() + 1));
  }
  return true;
}

}  // namespace

Result<const Transport*> choose_transport(std::span<const Peer> peers, std::string_view rule) {
  std::string reason, known;
  for (const Transport* transport : transports()) {
    known += (known.empty() ? "" : ", ") + std::string(transport->name);
    if (!allows(rule, transport->name)) continue;
    bool joins = true;
    for (std::size_t rank = 1; rank < peers.size() && joins; ++rank) {
      joins = transport->reach(peers[0], peers[rank]);
      if (!joins) {
        reason = std::string(transport->name) + " does not join ranks 0 and " +
                 std::to_string(rank) + ": it joins " + std::string(transport->joins);
      }
    }
    if (joins) return transport;
  }
  if (reason.empty()) {
    return Error{Code::kInvalidArgument,
                 (rule.starts_with('^') ? "TUTTI_TRANSPORT: no transport is left by '"
                                        : "TUTTI_TRANSPORT: no transport is called '") +
                     std::string(rule) + "'; there are " + known};
  }
  return Error{
      Code::kUnsupported,
      "TUTTI_TRANSPORT: " + reason + "; without the setting a transport that joins them is found"};
}

}  // namespace tutti
