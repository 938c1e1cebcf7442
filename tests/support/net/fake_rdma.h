// File: support/net/fake_rdma.h: RDMA devices that exist in this process alone, behind libibverbs'
// functions. They are stricter than real ones: a write outside of registered memory, a record that
// finds no receive posted, a queue that runs over, each is a complaint; and writes of different
// queue pairs overtake each other at random. Faults come when a test says so.
//
// Nothing takes place but when somebody polls: then a random share of what is posted does. What a
// queue pair had posted when it failed may still arrive, any time later, unless its peer's queue
// pair has gone. Some memory may be said to be devices' (GPUDirect). Any thread.
#pragma once
#include <sys/eventfd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "base/fd.h"
#include "transport/verbs/library.h"
#include "transport/verbs/ports.h"

namespace tutti::test {

class FakeRdma {
  template <class Body>
  auto with(Body body) {
    const std::lock_guard lock(mutex_);
    return body();
  }

 public:
  static constexpr std::uint8_t kDevices = 3;

  static FakeRdma& the() {
    static FakeRdma one;
    return one;
  }
  /// Ports of fake0 at 10.99.0.1, and so on.
  static std::vector<verbs::Port> ports() {
    std::vector<verbs::Port> ports(kDevices);
    for (std::uint8_t i = 0; i < kDevices; ++i) {
      ports[i].device = "fake" + std::to_string(i);
      ports[i].active = true;
      ports[i].speed_mbps = 10000;
      verbs::GidEntry gid;
      gid.gid = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 99, 0};
      gid.gid.back() = static_cast<std::uint8_t>(i + 1);
      gid.version_2 = true;
      ports[i].gids = {gid};
    }
    return ports;
  }
  /// Its functions, for verbs::use_library.
  static const verbs::Library& library();

  void seed(std::uint64_t seed) {
    with([&] { random_.seed(seed); });
  }
  /// From now on no write of these devices, as bits, arrives.
  void cut(bool cut, std::uint32_t devices = ~0U) {
    with([&] { cut_ = cut ? devices : 0; });
  }
  /// From now on the ports of these devices, as bits, are down: nothing arrives, and they say so.
  void pull(std::uint32_t devices) {
    with([&] { down_ = devices; });
  }
  /// From now on no memory is registered.
  void refuse_memory(bool refuse) {
    with([&] { refuse_memory_ = refuse; });
  }
  /// From now on devices are slow, and what failing queue pairs had posted may still arrive.
  void stray(bool stray) {
    with([&] {
      stray_ = stray;
      strays_.clear();
    });
  }
  /// The owner of an address: a device's number, or -1: the host.
  using DeviceOf = int (*)(const void* at);
  /// Whose memory is devices', and what that means; by the number of the device, as bits.
  struct Devices {
    DeviceOf of = nullptr;
    std::uint64_t late = 0;        // Writes there are visible after flush() only.
    std::uint64_t unknown = 0;     // Can't be registered by address: there is no nvidia_peermem,
    std::uint64_t no_dma_buf = 0;  // nor by dma-buf.
  };
  void devices(const Devices& devices) {
    with([&] {
      late_.clear();
      memory_of_devices_ = devices;
    });
  }
  /// Makes writes there visible.
  void flush(int device) {
    with([&] {
      std::erase_if(late_, [this, device](const Late& one) {
        if (device_of(reinterpret_cast<const void*>(one.address)) != device) return false;
        std::memcpy(reach(one.address), one.bytes.data(), one.bytes.size());
        return true;
      });
    });
  }
  /// Cards find these bytes at `really`: the addresses may be closed to the host.
  void alias(std::span<std::byte> bytes, std::byte* really) {
    with([&] {
      aliases_[reinterpret_cast<std::uintptr_t>(bytes.data())] = {bytes.size(), really};
    });
  }
  void forget_alias(std::span<std::byte> bytes) {
    with([&] { aliases_.erase(reinterpret_cast<std::uintptr_t>(bytes.data())); });
  }
  /// How often memory was registered by a dma-buf.
  int dma_bufs() {
    return with([&] { return dma_bufs_; });
  }
  /// Where packets of queue pairs that were connected go, and how switches treat them. They are
  /// forgotten.
  std::vector<ibv_ah_attr> destinations() {
    return with([&] { return std::exchange(destinations_, {}); });
  }
  /// How often it did.
  int strays_landed() {
    return with([&] { return strays_landed_; });
  }
  /// A device says this, of this queue pair or of itself.
  void say(std::size_t device, ibv_event_type type, ibv_qp* pair = nullptr) {
    with([&] {
      ibv_async_event event{};
      event.event_type = type;
      if (pair != nullptr) event.element.qp = pair;
      for (Context* const context : contexts_) {
        if (context->device != device) continue;
        context->events.push_back(event);
        ring(context->async_fd);
      }
    });
  }
  /// The first mistake that no device would forgive; empty: none. It is forgotten.
  std::string complaint() {
    return with([&] { return std::exchange(complaint_, {}); });
  }
  /// Objects that were made and not removed.
  int open_count() {
    return with([&] { return open_count_; });
  }

 private:
  struct Context : ibv_context {
    std::size_t device = 0;
    Fd event{eventfd(0, EFD_NONBLOCK)};
    std::deque<ibv_async_event> events;
  };
  struct Channel : ibv_comp_channel {
    Fd event{eventfd(0, EFD_NONBLOCK)};
    ibv_cq* queue = nullptr;
  };
  struct Pair;
  struct Completion {
    ibv_wc what;
    Pair* sender = nullptr;    // Whose send queue,
    std::uint32_t places = 0;  // and how many of its places are free once this was polled.
  };
  struct Queue : ibv_cq {
    std::deque<Completion> completions;
    std::size_t most = 0;
    bool armed = false;
  };
  struct Write {
    ibv_send_wr request{};
    const std::byte* from = nullptr;
    std::size_t bytes = 0;
    std::vector<std::byte> inlined{};
  };
  struct Pair : ibv_qp {
    ibv_qp_cap capacity{};
    std::uint32_t peer = 0;
    std::uint32_t psn = 0, peer_psn = 0;  // Where packets begin to be counted.
    std::deque<std::uint64_t> receives;
    std::deque<Write> writes;    // Posted and not carried out.
    std::uint32_t untold = 0;    // Carried out since the last one that was told.
    std::uint32_t in_queue = 0;  // Places of the send queue.
  };
  struct Region : ibv_mr {
    std::uint64_t begin = 0;
  };
  /// On its way when its sender failed.
  struct Stray {
    std::uint32_t peer = 0;
    std::uint64_t address = 0;
    std::vector<std::byte> bytes{};
  };

  /// Written, but not seen yet.
  struct Late {
    std::uint64_t address = 0;
    std::vector<std::byte> bytes{};
  };
  struct Alias {
    std::size_t bytes = 0;
    std::byte* really = nullptr;
  };

  static Queue& of(ibv_cq* queue) { return *static_cast<Queue*>(queue); }
  static Pair& of(ibv_qp* pair) { return *static_cast<Pair*>(pair); }
  static std::size_t device_of_pair(const Pair& pair) {
    return static_cast<const Context*>(pair.context)->device;
  }
  static void ring(int descriptor) {
    const std::uint64_t one = 1;
    (void)!::write(descriptor, &one, sizeof(one));
  }
  static bool silence(int descriptor) {
    std::uint64_t count = 0;
    return ::read(descriptor, &count, sizeof(count)) == sizeof(count);
  }
  template <class Thing>
  Thing* made(Thing* thing) {
    with([&] { ++open_count_; });
    return thing;
  }
  template <class Thing, class Given>
  int removed(Given* thing) {
    with([&] { --open_count_; });
    delete static_cast<Thing*>(thing);
    return 0;
  }
  void complain(const char* what) {
    if (complaint_.empty()) complaint_ = what;
  }

  int device_of(const void* at) const {
    return memory_of_devices_.of == nullptr ? -1 : memory_of_devices_.of(at);
  }
  static bool has(std::uint64_t devices, int device) {
    return device >= 0 && (devices >> device & 1) != 0;
  }
  /// Where a card finds what lies at an address.
  std::byte* reach(std::uint64_t address) const {
    auto next = aliases_.upper_bound(address);
    if (next != aliases_.begin()) {
      const auto& [begin, alias] = *--next;
      if (address - begin < alias.bytes) return alias.really + (address - begin);
    }
    return reinterpret_cast<std::byte*>(address);
  }
  std::byte* reach(const std::byte* at) const {
    return reach(reinterpret_cast<std::uintptr_t>(at));
  }
  void write(std::uint64_t to, const std::byte* from, std::size_t bytes) {
    if (has(memory_of_devices_.late, device_of(reinterpret_cast<const void*>(to))))
      late_.push_back({to, {from, from + bytes}});
    else
      std::memcpy(reach(to), from, bytes);
  }

  void complete(ibv_cq* cq, const Completion& completion) {
    Queue& queue = of(cq);
    if (queue.completions.size() == queue.most) complain("a completion queue runs over");
    queue.completions.push_back(completion);
    if (std::exchange(queue.armed, false)) ring(queue.channel->fd);
  }
  void tell_sent(Pair& pair, const Write& write, ibv_wc_status status) {
    Completion completion{.what = {}, .sender = &pair, .places = pair.untold + 1};
    pair.untold = 0;
    completion.what.wr_id = write.request.wr_id;
    completion.what.status = status;
    complete(pair.send_cq, completion);
  }
  void tell_received(Pair& pair, ibv_wc_status status, std::uint32_t immediate) {
    Completion completion{.what = {}};
    completion.what.wr_id = pair.receives.front();
    completion.what.status = status;
    completion.what.imm_data = immediate;
    pair.receives.pop_front();
    complete(pair.recv_cq, completion);
  }
  void fail(Pair& pair, const Write& write, ibv_wc_status status) {
    pair.state = IBV_QPS_ERR;
    stray(pair, write);
    tell_sent(pair, write, status);
    flush(pair);
  }
  void flush(Pair& pair) {
    for (; !pair.writes.empty(); pair.writes.pop_front()) {
      stray(pair, pair.writes.front());
      tell_sent(pair, pair.writes.front(), IBV_WC_WR_FLUSH_ERR);
    }
    while (!pair.receives.empty()) tell_received(pair, IBV_WC_WR_FLUSH_ERR, 0);
  }
  bool registered(std::uint64_t address, std::size_t bytes, std::uint32_t key) const {
    const auto found = memory_.find(key);
    if (found == memory_.end()) return false;
    const std::uint64_t from = found->second->begin;
    return address >= from && address + bytes <= from + found->second->length;
  }
  bool reachable(std::uint32_t number) const {
    const auto found = pairs_.find(number);
    return found != pairs_.end() && found->second->state != IBV_QPS_ERR;
  }
  /// Whether the peer acknowledges its packets.
  bool answered(const Pair& pair) const {
    const auto found = pairs_.find(pair.peer);
    if (found == pairs_.end()) return false;
    const Pair& peer = *found->second;
    if ((down_ >> device_of_pair(peer) & 1) != 0) return false;
    const bool receives = peer.state == IBV_QPS_RTR || peer.state == IBV_QPS_RTS;
    return receives && peer.peer_psn == pair.psn;
  }
  /// Its bytes as they are now may arrive.
  void stray(const Pair& pair, const Write& write) {
    const ibv_send_wr& request = write.request;
    if (!stray_ || write.bytes == 0 || request.opcode == IBV_WR_RDMA_WRITE_WITH_IMM ||
        !registered(request.wr.rdma.remote_addr, write.bytes, request.wr.rdma.rkey))
      return;
    const std::byte* const from = write.from != nullptr ? reach(write.from) : write.inlined.data();
    strays_.push_back({pair.peer, request.wr.rdma.remote_addr, {from, from + write.bytes}});
  }
  void land_strays() {
    std::erase_if(strays_, [this](const Stray& one) {
      if (!reachable(one.peer)) return true;
      if (random_() % 512 != 0) return false;
      write(one.address, one.bytes.data(), one.bytes.size());
      ++strays_landed_;
      return true;
    });
  }
  void carry_out(Pair& pair) {
    const Write write = std::move(pair.writes.front());
    pair.writes.pop_front();
    const ibv_send_wr& request = write.request;
    const auto found = pairs_.find(pair.peer);
    const bool cut = ((cut_ | down_) >> device_of_pair(pair) & 1) != 0;
    if (cut || !answered(pair)) return fail(pair, write, IBV_WC_RETRY_EXC_ERR);
    if (write.bytes != 0) {
      const std::uint64_t to = request.wr.rdma.remote_addr;
      if (!registered(to, write.bytes, request.wr.rdma.rkey)) {
        complain("a write to memory that is not registered");
        return fail(pair, write, IBV_WC_REM_ACCESS_ERR);
      }
      this->write(to, write.from != nullptr ? reach(write.from) : write.inlined.data(),
                  write.bytes);
    }
    if (request.opcode == IBV_WR_RDMA_WRITE_WITH_IMM) {
      if (found->second->receives.empty()) {
        complain("a record finds no receive posted");
        return fail(pair, write, IBV_WC_RNR_RETRY_EXC_ERR);
      }
      tell_received(*found->second, IBV_WC_SUCCESS, request.imm_data);
    }
    if ((request.send_flags & IBV_SEND_SIGNALED) != 0)
      tell_sent(pair, write, IBV_WC_SUCCESS);
    else
      ++pair.untold;
  }
  /// In order within a queue pair only.
  void advance() {
    land_strays();
    if (stray_ && random_() % 32 != 0) return;
    for (std::size_t i = 0; i < pairs_.size(); ++i) {
      const auto at = std::next(pairs_.begin(), static_cast<long>(random_() % pairs_.size()));
      for (auto count = random_() % 8; count != 0 && !at->second->writes.empty(); --count)
        carry_out(*at->second);
    }
  }

  int post_send(Pair& pair, const ibv_send_wr* request) {
    for (; request != nullptr; request = request->next) {
      if (pair.in_queue == pair.capacity.max_send_wr) complain("a send queue runs over");
      ++pair.in_queue;
      Write write{.request = *request};
      if (request->num_sge == 1) {
        const ibv_sge& part = *request->sg_list;
        write.bytes = part.length;
        write.from = reinterpret_cast<const std::byte*>(part.addr);
        if ((request->send_flags & IBV_SEND_INLINE) != 0) {
          if (write.bytes > pair.capacity.max_inline_data) complain("too long for inline");
          write.inlined.assign(write.from, write.from + write.bytes);
          write.from = nullptr;
        } else if (!registered(part.addr, write.bytes, part.lkey)) {
          complain("a write from memory that is not registered");
        }
      }
      pair.writes.push_back(std::move(write));
    }
    if (pair.state == IBV_QPS_ERR) flush(pair);
    return 0;
  }
  int post_receive(Pair& pair, const ibv_recv_wr* request) {
    for (; request != nullptr; request = request->next) {
      if (pair.receives.size() == pair.capacity.max_recv_wr) complain("a receive queue runs over");
      pair.receives.push_back(request->wr_id);
    }
    if (pair.state == IBV_QPS_ERR) flush(pair);
    return 0;
  }
  int poll(Queue& queue, int most, ibv_wc* completions) {
    advance();
    int count = 0;
    for (; count < most && !queue.completions.empty(); ++count) {
      const Completion& first = queue.completions.front();
      completions[count] = first.what;
      if (first.sender != nullptr) first.sender->in_queue -= first.places;
      queue.completions.pop_front();
    }
    return count;
  }
  static void set_devices(verbs::Library& fake);
  static void set_queues(verbs::Library& fake);
  ibv_context* open_device(std::size_t device);
  ibv_qp* make_pair(ibv_pd* domain, ibv_qp_init_attr* wanted);
  int remove_pair(ibv_qp* pair);
  int change_pair(Pair& pair, const ibv_qp_attr& attributes, int which);
  ibv_mr* enroll(void* address, std::size_t bytes, bool by_dma_buf);

  std::mutex mutex_;
  std::mt19937_64 random_;
  std::uint32_t cut_ = 0, down_ = 0;
  bool refuse_memory_ = false, stray_ = false;
  Devices memory_of_devices_;
  std::vector<Late> late_;
  std::map<std::uint64_t, Alias> aliases_;  // By address.
  int dma_bufs_ = 0;
  std::vector<Stray> strays_;
  int strays_landed_ = 0;
  int open_count_ = 0;
  std::vector<ibv_ah_attr> destinations_;
  std::string complaint_;
  std::uint32_t next_number_ = 100;
  std::array<ibv_device, kDevices> devices_{};
  std::vector<Context*> contexts_;
  std::map<std::uint32_t, Pair*> pairs_;     // By number.
  std::map<std::uint32_t, Region*> memory_;  // By key.
};

}  // namespace tutti::test

#include "support/net/fake_rdma_functions.h"
