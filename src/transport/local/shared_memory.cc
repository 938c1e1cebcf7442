// Shared-memory transport: ranks are processes of one user on one host. Rank 0 makes the region, a
// memfd; the others fetch it. Buffers from mem_alloc, or registered, are mapped when first met; all
// others can be read as they are, where the kernel permits it.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <map>
#include <string>
#include <system_error>
#include <thread>

#include "base/fd.h"
#include "base/fork.h"
#include "base/long_wait.h"
#include "transport/local/peer_memory.h"
#include "transport/local/peer_process.h"
#include "transport/local/segments.h"
#include "transport/transport.h"

namespace tutti {
namespace {

constexpr std::chrono::seconds kPatience{5};  // With a peer whose memory is mapped.
constexpr std::chrono::seconds kVerdict{1};   // With a rank 0 that has given up: why has it?
constexpr std::chrono::milliseconds kBetweenLooks{20};

/// Every rank's endpoint info: where its segments are served, where its mark is, and, from rank 0,
/// which segment is the region.
struct SegmentInfo {
  segments::Address address;
  std::uint64_t region = 0;
  std::uint64_t mark = 0;
  std::uint64_t pid_namespace = 0;
};

/// Holds a lock on byte `rank` of the region's file as long as this process lives; the kernel drops
/// it whatever way the process ends. Needs a file description of its own, hence the reopening.
class Lifeline {
 public:
  explicit Lifeline(Fd held) : fd_(std::move(held)) {}
  /// The file behind a lifeline. Without /proc there is none, and peers are told so.
  static Result<Fd> hold(int region_fd, int rank) {
    const std::string path = "/proc/self/fd/" + std::to_string(region_fd);
    Fd held(::open(path.c_str(), O_RDWR | O_CLOEXEC));
    if (!held && errno == ENOENT) return held;
    if (!held) return error("opening " + path, errno);
    struct flock lock = byte(rank);
    if (fcntl(held.get(), F_OFD_SETLK, &lock) != 0) return error("locking it", errno);
    return held;
  }
  Lifeline(const Lifeline&) = delete;
  Lifeline& operator=(const Lifeline&) = delete;
  bool there() const { return bool(fd_); }
  bool holds(int rank) const {
    struct flock lock = byte(rank);
    // Where it can't be told, the deadline has to do.
    return !fd_ || fcntl(fd_.get(), F_OFD_GETLK, &lock) != 0 || lock.l_type != F_UNLCK;
  }

 private:
  static Error error(const std::string& doing, int number) {
    return {Code::kSystem, "shared_memory: the file by which others see that this process lives: " +
                               doing + ": " + std::generic_category().message(number)};
  }
  static struct flock byte(int rank) {
    struct flock lock {};
    lock.l_type = F_WRLCK;
    lock.l_whence = SEEK_SET;
    lock.l_start = rank;
    lock.l_len = 1;
    return lock;
  }
  Fd fd_;
  ClosedInChild closed_in_child_{fd_};
};

class SharedMemoryEndpoint final : public Endpoint {
 public:
  SharedMemoryEndpoint(int me, std::vector<segments::Owner> owners,
                       std::vector<PeerMemory> memories, std::vector<PeerProcess> processes,
                       segments::Mapping mapping, Fd lifeline, const RegionConfig& config)
      : me_(me),
        owners_(std::move(owners)),
        memories_(std::move(memories)),
        processes_(std::move(processes)),
        mapping_(std::move(mapping)),
        region_(mapping_.data(), config),
        lifeline_(std::move(lifeline)),
        watched_(owners_.size()),
        peers_(owners_.size()),
        latest_(owners_.size()),
        looked_(owners_.size()) {
    mapping_.close_fd();
    for (std::size_t peer = 0; peer < owners_.size(); ++peer) {
      owners_[peer].give_up = [this, which = static_cast<int>(peer)] {
        return region_.ending() || !alive(which);
      };
    }
  }

  const Region& region() const override { return region_; }

  BufferName name(const void* data, std::size_t bytes) override {
    if (const std::uint64_t now = segments::version(); now != version_) {
      version_ = now;
      mine_ = segments::snapshot();
    }
    const auto begin = reinterpret_cast<std::uintptr_t>(data);
    // They are sorted, and none overlaps another: it is in the last that begins before it, if any.
    const auto next = std::upper_bound(
        mine_.begin(), mine_.end(), begin,
        [](std::uintptr_t at, const segments::Segment& segment) { return at < segment.begin; });
    if (next == mine_.begin() || begin + bytes > std::prev(next)->end) return {};
    return {std::prev(next)->id, begin - std::prev(next)->begin};
  }

  Result<std::byte*> map(int peer, BufferName name, std::size_t bytes) override {
    auto& mappings = peers_[static_cast<std::size_t>(peer)];
    auto found = mappings.find(name.segment);
    if (found == mappings.end()) {
      // A good moment to let go of what peers have freed: mapping is slow anyway.
      std::erase_if(mappings, [](const auto& entry) { return !entry.second.alive(); });
      const Deadline deadline = Deadline::after(kPatience);
      drop_deregistered(static_cast<std::size_t>(peer), deadline);
      TUTTI_TRY(auto mapping,
                segments::fetch(owners_[static_cast<std::size_t>(peer)], name.segment, deadline));
      mapping.close_fd();
      found = mappings.emplace(name.segment, std::move(mapping)).first;
    }
    if (name.offset > found->second.bytes() || found->second.bytes() - name.offset < bytes) {
      const int rank = owners_[static_cast<std::size_t>(peer)].rank;
      return Error{
          Code::kMismatch,
          "shared_memory: rank " + std::to_string(rank) + " named a buffer outside its segment",
          Rank{}, Rank{rank}};
    }
    latest_[static_cast<std::size_t>(peer)] = name.segment;
    return found->second.data() + name.offset;
  }

  /// Whether this rank can read and write all the others.
  bool try_reads() const {
    return std::all_of(memories_.begin(), memories_.end(),
                       [](const PeerMemory& memory) { return bool(memory.try_out()); });
  }
  /// Whether all ranks can do that.
  void set_reads_peers(bool all) { reads_peers_ = all; }
  /// Whether this rank has a lifeline, and which peers have.
  bool has_lifeline() const { return lifeline_.there(); }
  void watch(int peer) { watched_[static_cast<std::size_t>(peer)] = true; }
  bool reads_peers() const override { return reads_peers_; }
  Status read(int peer, std::uint64_t from, std::byte* to, std::size_t bytes) override {
    return memories_[static_cast<std::size_t>(peer)].read(from, to, bytes);
  }
  Status write(int peer, const std::byte* from, std::uint64_t to, std::size_t bytes) override {
    return memories_[static_cast<std::size_t>(peer)].write(from, to, bytes);
  }

  bool alive(int peer) const override {
    if (peer == me_) return true;
    // A child that was not made by fork() holds the lock, too: look at the process as well.
    const auto at = static_cast<std::size_t>(peer);
    return (!watched_[at] || lifeline_.holds(peer)) && !processes_[at].ended();
  }
  std::size_t shared_bytes() const override { return mapping_.bytes(); }

 private:
  /// Nothing tells us when a peer deregisters memory, so we ask its process: about two segments for
  /// each new one, in turn. So at most half as many as are in use are kept in vain, and nothing
  /// that is in use is ever mapped twice.
  void drop_deregistered(std::size_t peer, Deadline deadline) {
    auto& mappings = peers_[peer];
    for (std::size_t i = 0; i < std::min<std::size_t>(2, mappings.size()); ++i) {
      auto next = mappings.upper_bound(looked_[peer]);
      if (next == mappings.end()) next = mappings.begin();
      looked_[peer] = next->first;
      // The latest may be this call's input, whose address the caller has.
      if (next->first == latest_[peer] || next->second.has_flag()) continue;
      if (!segments::is_exported(owners_[peer], next->first, deadline)) mappings.erase(next);
    }
  }

  int me_;
  std::vector<segments::Owner> owners_;  // By peer.
  std::vector<PeerMemory> memories_;
  std::vector<PeerProcess> processes_;
  bool reads_peers_ = false;
  segments::Mapping mapping_;
  Region region_;
  Lifeline lifeline_;
  std::vector<bool> watched_;  // By peer: whether it has a lifeline.
  std::vector<std::map<std::uint64_t, segments::Mapping>> peers_;
  std::vector<std::uint64_t> latest_;  // By peer, the segment that was asked for last.
  std::vector<std::uint64_t> looked_;  // By peer, the last that drop_deregistered looked at.
  std::vector<segments::Segment> mine_;
  std::uint64_t version_ = 0;
};

/// Rank 0's memory for the region: exported until everybody has fetched it.
class RegionMemory {
 public:
  ~RegionMemory() {
    if (data_ != nullptr) (void)segments::free(data_);
  }
  Status make(const RegionConfig& config) {
    TUTTI_TRY(data_, segments::allocate(Region::bytes_for(config)));
    Region(static_cast<std::byte*>(data_), config).format();
    return ok();
  }
  std::uint64_t id() const { return data_ == nullptr ? 0 : segments::id_of(data_); }

 private:
  void* data_ = nullptr;
};

/// Every rank fetches, rank 0 too: the region is then mapped and locked in the same way everywhere.
Result<segments::Mapping> fetch_region(const Opening& opening, segments::Owner owner,
                                       std::uint64_t id) {
  const auto hopeless = [&opening] { return opening.look ? opening.look() : ok(); };
  LongWait wait(opening.rank);
  owner.give_up = [&] {
    wait.look([&] {
      return "the process of rank " + std::to_string(owner.rank) +
             " has not handed out the memory that the ranks share (is it stopped?)";
    });
    return !hopeless();
  };
  auto fetched = segments::fetch(owner, id, opening.deadline);
  if (fetched) return fetched;
  // Rank 0 lives, but has freed the region: joining has failed, and it is about to say why.
  const bool freed = fetched.error().code == Code::kSystem && fetched.error().peer.value >= 0;
  for (const Deadline end = Deadline::after(kVerdict); freed && !end.passed();) {
    TUTTI_RETURN_IF_ERROR(hopeless());
    std::this_thread::sleep_for(kBetweenLooks);
  }
  TUTTI_RETURN_IF_ERROR(hopeless());
  return std::move(fetched.error());
}

/// Makes this rank's part of the region resident, and tries out peers' memory: whether it can read
/// it, and whether it has a lifeline. Where memory is short the kernel may take long over both.
std::array<std::byte, 2> settle_in(const SharedMemoryEndpoint& endpoint, int rank) {
  const LongWork slow(
      rank,
      "the system has not given it its part of the memory that the ranks share (is memory short?)");
  endpoint.region().touch(rank);
  return {std::byte{endpoint.try_reads()}, std::byte{endpoint.has_lifeline()}};
}

Result<std::unique_ptr<Endpoint>> open(const Opening& opening) {
  SegmentInfo hello;
  TUTTI_TRY(hello.address, segments::serve());
  hello.mark = own_mark();
  hello.pid_namespace = own_pid_namespace();
  RegionMemory memory;
  if (opening.me == 0) {
    if (auto made = memory.make(opening.config); !made) return std::move(made.error());
    hello.region = memory.id();
  }
  TUTTI_TRY(const auto infos, opening.exchange("segments", std::as_bytes(std::span(&hello, 1))));
  std::vector<segments::Owner> owners;
  std::vector<PeerMemory> memories;
  std::vector<PeerProcess> processes;
  for (std::size_t at = 0; at < infos.size(); ++at) {
    const int rank = opening.ranks.empty() ? static_cast<int>(at) : opening.ranks[at];
    if (infos[at].size() != sizeof(SegmentInfo)) {
      return Error{Code::kMismatch,
                   "shared_memory: rank " + std::to_string(rank) + " speaks another version",
                   Rank{}, Rank{rank}};
    }
    SegmentInfo peer;
    std::memcpy(&peer, infos[at].data(), sizeof(peer));
    owners.push_back({peer.address, rank});
    memories.emplace_back(opening.peers[at], peer.mark);
    // The kernel gives out process numbers in turn, so this is still the process that sent it.
    processes.push_back(PeerProcess::open(opening.peers[at], peer.pid_namespace));
    if (at == 0) hello.region = peer.region;
  }
  TUTTI_TRY(auto mapping, fetch_region(opening, owners[0], hello.region));
  TUTTI_TRY(const auto config, Region::inspect(mapping.data(), mapping.bytes()));
  if (config != opening.config) {
    return Error{Code::kMismatch, "shared_memory: rank 0's region has " +
                                      std::to_string(config.rank_count) + " ranks, this one's " +
                                      std::to_string(opening.config.rank_count) +
                                      ", or other sizes"};
  }
  TUTTI_TRY(auto lifeline, Lifeline::hold(mapping.fd(), opening.me));
  auto endpoint = std::make_unique<SharedMemoryEndpoint>(
      opening.me, std::move(owners), std::move(memories), std::move(processes), std::move(mapping),
      std::move(lifeline), config);
  const std::array<std::byte, 2> able = settle_in(*endpoint, opening.rank);
  // Only now may rank 0 stop exporting it, and only now does every lifeline hold.
  const auto mapped = opening.exchange("mapped", able);
  if (!mapped) {  // Others may have got the answer, and have joined.
    endpoint->end_joining(mapped.error(), Rank{opening.rank});
    return mapped.error();
  }
  const auto says = [&](std::size_t at, std::size_t which) {
    return (*mapped)[at].size() == able.size() && (*mapped)[at][which] == std::byte{1};
  };
  bool all_read = true;
  for (std::size_t at = 0; at < mapped->size(); ++at) {
    all_read = all_read && says(at, 0);
    if (says(at, 1)) endpoint->watch(static_cast<int>(at));
  }
  endpoint->set_reads_peers(all_read);
  return std::unique_ptr<Endpoint>(std::move(endpoint));
}

}  // namespace

constinit const Transport shared_memory_transport{
    .name = "shared_memory",
    .joins = "ranks of one user on one host, in one network namespace",
    .reach =
        [](const Peer& self, const Peer& peer) {
          return self.host[0] == peer.host[0] && self.host[1] == peer.host[1] &&
                 self.user == peer.user;
        },
    .open = open};

}  // namespace tutti
