// File: support/net/fake_rdma_functions.h: libibverbs' functions on devices that exist in this
// process alone. The end of support/net/fake_rdma.h, which alone includes it.
#pragma once
#include <fcntl.h>

#include "support/net/fake_rdma.h"

namespace tutti::test {

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
  pair->state = IBV_QPS_RESET;
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
    for (const Write& write : of(pair).writes) stray(of(pair), write);
    for (Completion& one : of(pair->send_cq).completions) {
      if (one.sender == pair) one.sender = nullptr;
    }
  });
  return removed<Pair>(pair);
}

inline int FakeRdma::change_pair(Pair& pair, const ibv_qp_attr& attributes, int which) {
  if ((which & IBV_QP_AV) != 0) destinations_.push_back(attributes.ah_attr);
  pair.state = attributes.qp_state;
  if (pair.state == IBV_QPS_RTR) {
    pair.peer = attributes.dest_qp_num;
    pair.peer_psn = attributes.rq_psn;
  }
  if (pair.state == IBV_QPS_RTS) pair.psn = attributes.sq_psn;
  if (pair.state == IBV_QPS_ERR) flush(pair);
  return 0;
}

inline ibv_mr* FakeRdma::enroll(void* address, std::size_t bytes, bool by_dma_buf) {
  const bool refused = with([&] {
    const Devices& devices = memory_of_devices_;
    const bool no = refuse_memory_ ||
                    has(by_dma_buf ? devices.no_dma_buf : devices.unknown, device_of(address));
    dma_bufs_ += by_dma_buf && !no ? 1 : 0;
    return no;
  });
  if (refused) {
    errno = ENOMEM;
    return nullptr;
  }
  auto* const memory = new Region;
  memory->begin = reinterpret_cast<std::uintptr_t>(address);
  memory->addr = by_dma_buf ? nullptr : address;  // As libibverbs does: where in the dma-buf.
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
  fake.query_port = [](ibv_context* context, std::uint8_t, _compat_ibv_port_attr* port) {
    auto* const attributes = reinterpret_cast<ibv_port_attr*>(port);
    const auto device = static_cast<Context*>(context)->device;
    const bool down = the().with([&] { return (the().down_ >> device & 1) != 0; });
    attributes->state = down ? IBV_PORT_DOWN : IBV_PORT_ACTIVE;
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
    return the().enroll(address, bytes, false);
  };
  fake.reg_dmabuf_mr = [](ibv_pd*, std::uint64_t offset, std::size_t bytes, std::uint64_t address,
                          int descriptor, int) -> ibv_mr* {
    if (::fcntl(descriptor, F_GETFD) < 0 || offset != 0) {
      errno = EBADF;
      return nullptr;
    }
    return the().enroll(reinterpret_cast<void*>(address), bytes, true);
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
    queue->cqe = most;
    static_cast<Channel*>(channel)->queue = queue;
    return the().made(queue);
  };
  fake.destroy_cq = [](ibv_cq* queue) { return the().removed<Queue>(queue); };
  fake.create_qp = [](ibv_pd* domain, ibv_qp_init_attr* wanted) {
    return the().make_pair(domain, wanted);
  };
  fake.destroy_qp = [](ibv_qp* pair) { return the().remove_pair(pair); };
  fake.modify_qp = [](ibv_qp* pair, ibv_qp_attr* attributes, int which) {
    return the().with([&] { return the().change_pair(of(pair), *attributes, which); });
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
