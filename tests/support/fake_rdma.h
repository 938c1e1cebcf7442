// File: support/fake_rdma.h: RDMA devices that exist in this process alone, behind libibverbs'
// functions. They are stricter than real ones: a write outside of registered memory, a record that
// finds no receive posted, a queue that runs over, each is a complaint; and writes of different
// queue pairs overtake each other at random. Faults come when a test says so.
//
// Nothing takes place but when somebody polls: then a random share of what is posted does. Any
// thread.
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
  /// Of fake0 at 10.99.0.1, and so on.
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
  /// From now on no write arrives.
  void cut(bool cut) {
    with([&] { cut_ = cut; });
  }
  /// From now on no memory is registered.
  void refuse_memory(bool refuse) {
    with([&] { refuse_memory_ = refuse; });
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
  /// What no device would forgive, the first one; empty: nothing. It is forgotten.
  std::string complaint() {
    return with([&] { return std::exchange(complaint_, {}); });
  }
  /// What was made and not removed.
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
    std::deque<std::uint64_t> receives;
    std::deque<Write> writes;    // Posted and not carried out.
    std::uint32_t untold = 0;    // Carried out since the last one that was told.
    std::uint32_t in_queue = 0;  // Places of the send queue.
  };
  struct Region : ibv_mr {};

  static Queue& of(ibv_cq* queue) { return *static_cast<Queue*>(queue); }
  static Pair& of(ibv_qp* pair) { return *static_cast<Pair*>(pair); }
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
    tell_sent(pair, write, status);
    flush(pair);
  }
  void flush(Pair& pair) {
    for (; !pair.writes.empty(); pair.writes.pop_front())
      tell_sent(pair, pair.writes.front(), IBV_WC_WR_FLUSH_ERR);
    while (!pair.receives.empty()) tell_received(pair, IBV_WC_WR_FLUSH_ERR, 0);
  }
  bool registered(std::uint64_t address, std::size_t bytes, std::uint32_t key) const {
    const auto found = memory_.find(key);
    if (found == memory_.end()) return false;
    const auto from = reinterpret_cast<std::uintptr_t>(found->second->addr);
    return address >= from && address + bytes <= from + found->second->length;
  }
  void carry_out(Pair& pair) {
    const Write write = std::move(pair.writes.front());
    pair.writes.pop_front();
    const ibv_send_wr& request = write.request;
    const auto found = pairs_.find(pair.peer);
    if (cut_ || found == pairs_.end() || found->second->state == IBV_QPS_ERR)
      return fail(pair, write, IBV_WC_RETRY_EXC_ERR);
    if (write.bytes != 0) {
      const std::uint64_t to = request.wr.rdma.remote_addr;
      if (!registered(to, write.bytes, request.wr.rdma.rkey)) {
        complain("a write to memory that is not registered");
        return fail(pair, write, IBV_WC_REM_ACCESS_ERR);
      }
      std::memcpy(reinterpret_cast<void*>(to),
                  write.from != nullptr ? write.from : write.inlined.data(), write.bytes);
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
  int change_pair(Pair& pair, const ibv_qp_attr& attributes);
  ibv_mr* enroll(void* address, std::size_t bytes);

  std::mutex mutex_;
  std::mt19937_64 random_;
  bool cut_ = false, refuse_memory_ = false;
  int open_count_ = 0;
  std::string complaint_;
  std::uint32_t next_number_ = 100;
  std::array<ibv_device, kDevices> devices_{};
  std::vector<Context*> contexts_;
  std::map<std::uint32_t, Pair*> pairs_;     // By number.
  std::map<std::uint32_t, Region*> memory_;  // By key.
};

inline ibv_context* FakeRdma::open_device(std::size_t device) {
  auto* const context = new Context;
  context->device = device;
  context->async_fd = context->event.get();
  context->ops.poll_cq = [](ibv_cq* queue, int most, ibv_wc* completions) {
    return the().with([&] { return the().poll(of(queue), most, completions); });
  };
  context->ops.req_notify_cq = [](ibv_cq* queue, int) {
    the().with([&] { of(queue).armed = true; });
    return 0;
  };
  context->ops.post_send = [](ibv_qp* pair, ibv_send_wr* request, ibv_send_wr**) {
    return the().with([&] { return the().post_send(of(pair), request); });
  };
  context->ops.post_recv = [](ibv_qp* pair, ibv_recv_wr* request, ibv_recv_wr**) {
    return the().with([&] { return the().post_receive(of(pair), request); });
  };
  with([&] { contexts_.push_back(context); });
  return made(context);
}

inline ibv_qp* FakeRdma::make_pair(ibv_pd* domain, ibv_qp_init_attr* wanted) {
  constexpr std::uint32_t kMostInline = 100;
  if (wanted->cap.max_inline_data > kMostInline) {
    errno = EINVAL;
    return nullptr;
  }
  auto* const pair = new Pair;
  pair->context = domain->context;
  pair->send_cq = wanted->send_cq;
  pair->recv_cq = wanted->recv_cq;
  pair->capacity = wanted->cap;
  with([&] {
    pair->qp_num = next_number_++;
    pairs_[pair->qp_num] = pair;
  });
  return made(pair);
}

inline int FakeRdma::remove_pair(ibv_qp* pair) {
  with([&] {
    pairs_.erase(pair->qp_num);
    for (Completion& one : of(pair->send_cq).completions) {
      if (one.sender == pair) one.sender = nullptr;
    }
  });
  return removed<Pair>(pair);
}

inline int FakeRdma::change_pair(Pair& pair, const ibv_qp_attr& attributes) {
  pair.state = attributes.qp_state;
  if (pair.state == IBV_QPS_RTR) pair.peer = attributes.dest_qp_num;
  if (pair.state == IBV_QPS_ERR) flush(pair);
  return 0;
}

inline ibv_mr* FakeRdma::enroll(void* address, std::size_t bytes) {
  const bool refused = with([&] { return refuse_memory_; });
  if (refused) {
    errno = ENOMEM;
    return nullptr;
  }
  auto* const memory = new Region;
  memory->addr = address;
  memory->length = bytes;
  with([&] {
    memory->lkey = memory->rkey = next_number_++;
    memory_[memory->lkey] = memory;
  });
  return made(memory);
}

inline void FakeRdma::set_devices(verbs::Library& fake) {
  fake.get_device_list = [](int* count) {
    auto* const list = new ibv_device*[kDevices];
    for (std::size_t i = 0; i < kDevices; ++i) list[i] = &the().devices_[i];
    *count = kDevices;
    return list;
  };
  fake.free_device_list = [](ibv_device** list) { delete[] list; };
  fake.get_device_name = [](ibv_device* device) {
    static constexpr std::array kNames{"fake0", "fake1", "fake2"};
    return kNames[static_cast<std::size_t>(device - the().devices_.data())];
  };
  fake.open_device = [](ibv_device* device) {
    return the().open_device(static_cast<std::size_t>(device - the().devices_.data()));
  };
  fake.close_device = [](ibv_context* context) {
    the().with([&] { std::erase(the().contexts_, static_cast<Context*>(context)); });
    return the().removed<Context>(context);
  };
  fake.query_device = [](ibv_context*, ibv_device_attr* attributes) {
    attributes->max_cqe = 32767;
    return 0;
  };
  fake.query_port = [](ibv_context*, std::uint8_t, _compat_ibv_port_attr* port) {
    auto* const attributes = reinterpret_cast<ibv_port_attr*>(port);
    attributes->active_mtu = IBV_MTU_1024;
    attributes->max_msg_sz = 1 << 20;
    return 0;
  };
  fake.alloc_pd = [](ibv_context* context) {
    auto* const domain = new ibv_pd{};
    domain->context = context;
    return the().made(domain);
  };
  fake.dealloc_pd = [](ibv_pd* domain) { return the().removed<ibv_pd>(domain); };
  fake.reg_mr = [](ibv_pd*, void* address, std::size_t bytes, int) {
    return the().enroll(address, bytes);
  };
  fake.dereg_mr = [](ibv_mr* memory) {
    the().with([&] { the().memory_.erase(memory->lkey); });
    return the().removed<Region>(memory);
  };
}

inline void FakeRdma::set_queues(verbs::Library& fake) {
  fake.create_comp_channel = [](ibv_context* context) -> ibv_comp_channel* {
    auto* const channel = new Channel;
    channel->context = context;
    channel->fd = channel->event.get();
    return the().made(channel);
  };
  fake.destroy_comp_channel = [](ibv_comp_channel* channel) {
    return the().removed<Channel>(channel);
  };
  fake.create_cq = [](ibv_context* context, int most, void*, ibv_comp_channel* channel,
                      int) -> ibv_cq* {
    auto* const queue = new Queue;
    queue->context = context;
    queue->channel = channel;
    queue->most = static_cast<std::size_t>(most);
    static_cast<Channel*>(channel)->queue = queue;
    return the().made(queue);
  };
  fake.destroy_cq = [](ibv_cq* queue) { return the().removed<Queue>(queue); };
  fake.create_qp = [](ibv_pd* domain, ibv_qp_init_attr* wanted) {
    return the().make_pair(domain, wanted);
  };
  fake.destroy_qp = [](ibv_qp* pair) { return the().remove_pair(pair); };
  fake.modify_qp = [](ibv_qp* pair, ibv_qp_attr* attributes, int) {
    return the().with([&] { return the().change_pair(of(pair), *attributes); });
  };
  fake.get_cq_event = [](ibv_comp_channel* channel, ibv_cq** queue, void**) {
    if (!silence(channel->fd)) return -1;
    *queue = static_cast<Channel*>(channel)->queue;
    return 0;
  };
  fake.ack_cq_events = [](ibv_cq*, unsigned) {};
  fake.get_async_event = [](ibv_context* context, ibv_async_event* event) {
    return the().with([&] {
      auto& events = static_cast<Context*>(context)->events;
      (void)silence(context->async_fd);
      if (events.empty()) return -1;
      *event = events.front();
      events.pop_front();
      return 0;
    });
  };
  fake.ack_async_event = [](ibv_async_event*) {};
  fake.wc_status_str = [](ibv_wc_status) { return "a fake's status"; };
  fake.event_type_str = [](ibv_event_type) { return "a fake's event"; };
}

inline const verbs::Library& FakeRdma::library() {
  static const verbs::Library fake = [] {
    verbs::Library made;
    set_devices(made);
    set_queues(made);
    return made;
  }();
  return fake;
}

}  // namespace tutti::test
