#include "transport/verbs/device.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/resource.h>

#include <array>
#include <cerrno>
#include <system_error>

#include "base/check.h"

namespace tutti::verbs {
namespace {

// Not relaxed ordering: what is written after a payload must not overtake it.
constexpr int kAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
constexpr int kPolled = 32;      // Completions that are asked for at once.
constexpr int kMostRounds = 16;  // Rounds of asking, before others have their turn.

std::string reason(int error) { return std::generic_category().message(error); }

Error refused(const std::string& device, std::string_view what, int error,
              std::string_view remedy) {
  return {Code::kSystem, fmt::format("verbs: {}: {}: {}; {}", device, what, reason(error), remedy)};
}

void never_wait(int descriptor) {
  ::fcntl(descriptor, F_SETFL, ::fcntl(descriptor, F_GETFL) | O_NONBLOCK);
}

/// Opens the device of that name; null with errno set.
ibv_context* open_by_name(const Library& verbs, const std::string& name) {
  int count = 0;
  ibv_device** const list = verbs.get_device_list(&count);
  ibv_context* context = nullptr;
  errno = ENODEV;
  for (int i = 0; list != nullptr && i < count; ++i) {
    if (verbs.get_device_name(list[i]) == name) context = verbs.open_device(list[i]);
  }
  const int error = errno;
  if (list != nullptr) verbs.free_device_list(list);
  errno = error;
  return context;
}

}  // namespace

Result<std::unique_ptr<Device>> Device::open(const ChosenPort& chosen, std::size_t completions) {
  TUTTI_TRY(const Library* const verbs, load_library());
  std::unique_ptr<Device> device(new Device(chosen));
  const std::string name = device->name();
  device->context_.reset(open_by_name(*verbs, chosen.port.device));
  if (device->context_ == nullptr) {
    return refused(name, "opening it", errno, "is its provider there (package ibverbs-providers)?");
  }
  ibv_device_attr attributes{};
  if (const int error = verbs->query_device(device->context_.get(), &attributes); error != 0)
    return refused(name, "asking what it can do", error, "another device: TUTTI_RDMA_DEVICES");
  if (const int error = device->query_port(); error != 0)
    return refused(name, "asking its port", error, "is it up?");
  if (completions > static_cast<std::size_t>(attributes.max_cqe)) {
    return Error{Code::kUnsupported,
                 fmt::format("verbs: {} holds {} completions, and so many ranks need {}; "
                             "TUTTI_TRANSPORT=tcp does without",
                             name, attributes.max_cqe, completions)};
  }
  device->domain_.reset(verbs->alloc_pd(device->context_.get()));
  if (device->domain_ == nullptr)
    return refused(name, "making a protection domain", errno, "are others using all of them?");
  device->channel_.reset(verbs->create_comp_channel(device->context_.get()));
  if (device->channel_ == nullptr)
    return refused(name, "making a completion channel", errno, "raise ulimit -n");
  device->queue_.reset(verbs->create_cq(device->context_.get(), static_cast<int>(completions),
                                        nullptr, device->channel_.get(), 0));
  if (device->queue_ == nullptr)
    return refused(name, "making a completion queue", errno, "raise ulimit -l (locked memory)");
  never_wait(device->channel_->fd);
  never_wait(device->context_->async_fd);
  return device;
}

int Device::query_port() {
  // The function fills a structure of before; those fields are the first ones of this.
  void* const port = &port_;
  return library().query_port(context_.get(), static_cast<std::uint8_t>(chosen_.port.number),
                              static_cast<_compat_ibv_port_attr*>(port));
}

bool Device::look_again() {
  // Asking the device is cheap where its port is down; what is in sysfs is many files.
  if (query_port() != 0 || port_.state != IBV_PORT_ACTIVE) return false;
  auto gid = gid_again(chosen_);
  if (!gid) return false;
  chosen_.gid = *std::move(gid);
  return true;
}

Result<Memory> Device::enroll(std::span<std::byte> bytes) const {
  Memory memory(library().reg_mr(domain_.get(), bytes.data(), bytes.size(), kAccess));
  if (memory != nullptr) return memory;
  const int error = errno;
  rlimit limit{};
  ::getrlimit(RLIMIT_MEMLOCK, &limit);
  const std::string locked = limit.rlim_cur == RLIM_INFINITY
                                 ? "there is no limit of locked memory"
                                 : fmt::format("ulimit -l allows {} KiB of locked memory: raise it",
                                               limit.rlim_cur / 1024);
  return refused(name(), fmt::format("registering {} KiB of memory", bytes.size() / 1024), error,
                 locked);
}

Result<Memory> Device::enroll_gpudirect(std::span<std::byte> bytes, int dma_buf) const {
  const auto address = reinterpret_cast<std::uintptr_t>(bytes.data());
  std::string tried;
  if (dma_buf >= 0 && library().reg_dmabuf_mr != nullptr) {
    Memory memory(
        library().reg_dmabuf_mr(domain_.get(), 0, bytes.size(), address, dma_buf, kAccess));
    if (memory != nullptr) return memory;
    tried = fmt::format("by dma-buf: {}, ", reason(errno));
  }
  Memory memory(library().reg_mr(domain_.get(), bytes.data(), bytes.size(), kAccess));
  if (memory != nullptr) return memory;
  const int error = errno;
  return refused(
      name(),
      fmt::format("registering {} KiB of a GPU's memory: {}by address", bytes.size() / 1024, tried),
      error, "modprobe nvidia_peermem, or a kernel and drivers that know dma-buf");
}

Result<Pair> Device::make_pair(ibv_qp_cap& capacity) const {
  ibv_qp_init_attr wanted{};
  wanted.send_cq = queue_.get();
  wanted.recv_cq = queue_.get();
  wanted.qp_type = IBV_QPT_RC;
  // Not all devices take as much inline as would be nice; none is refused for it.
  for (std::uint32_t inline_bytes = capacity.max_inline_data;; inline_bytes /= 2) {
    wanted.cap = capacity;
    wanted.cap.max_inline_data = inline_bytes;
    Pair pair(library().create_qp(domain_.get(), &wanted));
    if (pair != nullptr) {
      capacity = wanted.cap;
      return pair;
    }
    if (inline_bytes == 0) break;
  }
  return refused(name(), "making a queue pair", errno, "fewer ranks, or TUTTI_TRANSPORT=tcp");
}

void Device::attach(std::uint32_t link, CompletionSink& sink) {
  if (sinks_.size() <= link) sinks_.resize(link + 1, nullptr);
  sinks_[link] = &sink;
}

void Device::detach(std::uint32_t link, const CompletionSink& sink) {
  if (sinks_[link] == &sink) sinks_[link] = nullptr;
}

void Device::drain() {
  // The queue hands out in order, so these are all that were in it when this began.
  const auto most = static_cast<std::size_t>(queue_->cqe);
  for (std::size_t polled = 0; polled <= most && poll(); polled += std::size_t{kPolled}) {
  }
}

bool Device::poll() {
  std::array<ibv_wc, kPolled> completions;
  bool any = false;
  for (int round = 0; round < kMostRounds && !failed_; ++round) {
    const int count = ibv_poll_cq(queue_.get(), kPolled, completions.data());
    if (count < 0) {
      failed_ = true;
      for (CompletionSink* sink : sinks_) {
        if (sink != nullptr) sink->broken(nullptr, "its completion queue can't be read");
      }
      return true;
    }
    for (int i = 0; i < count; ++i) {
      const ibv_wc& one = completions[static_cast<std::size_t>(i)];
      const Ticket ticket = Ticket::of(one.wr_id);
      TUTTI_CHECK(ticket.link < sinks_.size());
      // Null: its link has gone, and its queue pairs with it.
      if (sinks_[ticket.link] != nullptr) sinks_[ticket.link]->completed(ticket, one);
    }
    any = any || count != 0;
    if (count < kPolled) break;
  }
  return any;
}

void Device::take_notice() {
  ibv_cq* queue = nullptr;
  void* context = nullptr;
  if (library().get_cq_event(channel_.get(), &queue, &context) != 0) return;
  library().ack_cq_events(queue, 1);
  armed_ = false;
}

void Device::take_events() {
  ibv_async_event event{};
  while (library().get_async_event(context_.get(), &event) == 0) {
    take_event(event);
    library().ack_async_event(&event);
  }
}

void Device::take_event(const ibv_async_event& event) {
  const std::string what = library().event_type_str(event.event_type);
  event_time_ = std::chrono::steady_clock::now();
  const ibv_qp* pair = nullptr;
  bool fatal = false;
  switch (event.event_type) {
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_QP_REQ_ERR:
    case IBV_EVENT_QP_ACCESS_ERR:
      pair = event.element.qp;
      fatal = true;
      event_ = "the device gave up a queue pair (" + what + ")";
      break;
    case IBV_EVENT_CQ_ERR:
    case IBV_EVENT_DEVICE_FATAL:
      fatal = fatal_ = true;
      event_ = "the device has failed (" + what + ")";
      break;
    // Both may pass: retries bridge a short interruption.
    case IBV_EVENT_PORT_ERR: event_ = "the link went down"; break;
    case IBV_EVENT_PORT_ACTIVE: event_ = "the link came up"; break;
    case IBV_EVENT_GID_CHANGE: event_ = "the addresses of its interface changed"; break;
    default: event_ = what; break;
  }
  if (!fatal) return;
  for (CompletionSink* sink : sinks_) {
    if (sink != nullptr) sink->broken(pair, event_);
  }
}

std::string Device::last_event() const {
  if (event_.empty()) return "";
  const std::chrono::duration<double> ago = std::chrono::steady_clock::now() - event_time_;
  return fmt::format("{} {:.1f} s ago", event_, ago.count());
}

}  // namespace tutti::verbs
