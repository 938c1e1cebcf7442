// File: transport/verbs/device.h: an opened RDMA device: one port of it, the memory that it may
// touch, and one queue of completions for all queue pairs of a rank.
//
// One thread at a time.
#pragma once
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "transport/verbs/library.h"
#include "transport/verbs/ports.h"

namespace tutti::verbs {

/// The subject of a completion. It travels as the 64 bits that the device gives back.
struct Ticket {
  bool received = false;    // Else sent.
  std::uint32_t link = 0;   // By index of attach().
  std::uint32_t pair = 0;   // The link's.
  std::uint32_t count = 0;  // The post's number there, the lower half.

  std::uint64_t number() const {
    return std::uint64_t{received} << 63 | std::uint64_t{link} << 40 | std::uint64_t{pair} << 32 |
           count;
  }
  static Ticket of(std::uint64_t number) {
    return {.received = number >> 63 != 0,
            .link = static_cast<std::uint32_t>(number >> 40 & 0x7fffff),
            .pair = static_cast<std::uint32_t>(number >> 32 & 0xff),
            .count = static_cast<std::uint32_t>(number)};
  }
};

/// Gets the completions of its tickets.
class CompletionSink {
 public:
  virtual ~CompletionSink() = default;
  virtual void completed(const Ticket& ticket, const ibv_wc& completion) = 0;
  /// An event that ends this queue pair (null: all of the device), in words.
  virtual void broken(const ibv_qp* pair, const std::string& what) = 0;
};

/// It has more than 20 functions: a port, the memory that it reaches, its completions and its
/// events.
class Device {
 public:
  /// `completions`: that may be outstanding. kSystem or kUnsupported, with the remedy.
  static Result<std::unique_ptr<Device>> open(const ChosenPort& chosen, std::size_t completions);

  /// Lets the device, and peers with the key, read and write these bytes. They are pinned.
  Result<Memory> enroll(std::span<std::byte> bytes) const;
  /// The same for memory of a device, by a dma-buf of it (-1: there is none), else by its address,
  /// which takes a module of the kernel that knows such memory (nvidia_peermem).
  Result<Memory> enroll_gpudirect(std::span<std::byte> bytes, int dma_buf) const;
  /// Reliable and connected. `capacity` becomes what the device gives.
  Result<Pair> make_pair(ibv_qp_cap& capacity) const;

  /// Tickets with `link` are for this sink from now on.
  void attach(std::uint32_t link, CompletionSink& sink);
  /// They are for nobody, if they were for this sink.
  void detach(std::uint32_t link, const CompletionSink& sink);
  /// Hands out what has completed; true if anything had.
  bool poll();
  /// Hands out all that has completed so far. What queue pairs that are removed had completed is
  /// not there any more after that: their numbers and tickets may be used again.
  void drain();
  /// From now on `descriptor` becomes readable when something completes that poll() has not seen.
  void arm() {
    if (!armed_) armed_ = ibv_req_notify_cq(queue_.get(), 0) == 0;
  }
  int descriptor() const { return channel_->fd; }
  /// The descriptor was readable.
  void take_notice();

  /// Takes note of what the device says beside completions; `event_descriptor` is readable then.
  void take_events();
  int event_descriptor() const { return context_->async_fd; }
  /// Asks for the port again, which may have another address now. False: it can't be used now.
  bool look_again();
  /// It said that it has failed, or its completions can't be read: it is of no use any more.
  bool failed() const { return failed_ || fatal_; }
  /// Its last event, for messages: "port 1 has gone down 0.3 s ago". Empty: nothing yet.
  std::string last_event() const;

  const ChosenPort& chosen() const { return chosen_; }
  const ibv_port_attr& port() const { return port_; }
  std::string name() const { return name_of(chosen_.port); }

 private:
  explicit Device(ChosenPort chosen) : chosen_(std::move(chosen)) {}
  void take_event(const ibv_async_event& event);
  int query_port();

  ChosenPort chosen_;
  // In the order in which they are made; removed in the opposite one.
  Context context_;
  Domain domain_;
  Channel channel_;
  Queue queue_;
  ibv_port_attr port_{};
  std::vector<CompletionSink*> sinks_;
  bool armed_ = false;
  bool failed_ = false;  // Its completions can't be read.
  bool fatal_ = false;   // It said that it has failed.
  std::string event_;
  std::chrono::steady_clock::time_point event_time_;
};

}  // namespace tutti::verbs
