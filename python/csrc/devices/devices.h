// File: python/csrc/devices/devices.h: what a process group has on CUDA devices.
//
// Model: a link (communicator and stream) of all ranks for collectives, made when the first CUDA
// tensor comes; and for messages two links for each pair of ranks, one in either direction, so that
// neither waits for the other, made when the first message of the two comes. So collectives and
// messages of a group order nothing among each other, as on the host. To make a link waits for the
// ranks that it joins, up to the group's time limit.
//
// Works on their way are held here, and looked after by a task on the threads for completions,
// which lets their tensors go, keeps time limits of single operations, and says once if a link
// fails.
#pragma once
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include <torch/csrc/distributed/c10d/Store.hpp>

#include "devices/device_work.h"

namespace tutti::python {

class Devices : public std::enable_shared_from_this<Devices> {
 public:
  using LinkPtr = std::shared_ptr<DeviceLink>;
  using WorkPtr = c10::intrusive_ptr<DeviceWork>;
  using Time = std::chrono::steady_clock::time_point;
  struct Group {
    c10::intrusive_ptr<c10d::Store> store;
    std::string prefix;  // Begins the group's keys in the store.
    Rank me;
    int ranks;
    std::chrono::milliseconds timeout;
    std::string name;
    std::function<void(Code)> on_failure;
  };
  explicit Devices(Group group) : group_(std::move(group)) {}

  /// The link of all ranks. Throws a DistBackendError if it can't be made, a RuntimeError if the
  /// group has another device on this rank. Collective the first time; calls have to be in order.
  LinkPtr all(c10::Device device);
  /// The link for messages to the peer, or from it. In a batch of messages those of the lower pair
  /// (`before`) have to be made first, so that ranks do not wait for each other in a circle.
  LinkPtr pair(int peer, bool sends, c10::Device device);
  bool before(int one, int other) const { return ends(one) < ends(other); }

  /// Holds the work, with the tensors that it needs, until it is over; ends its links if that is
  /// not by then.
  void hold(const WorkPtr& work, std::vector<at::Tensor> tensors, Time limit = Time::max());

  /// Ok, or why a link's calls have ended early.
  Status check();
  void abort(const std::string& reason);
  /// Waits for what is under way until then, ends it, and frees everything. Twice too.
  void shutdown(Time limit, const std::string& reason);
  std::string describe();

 private:
  struct Held {
    WorkPtr work;
    Time limit;
  };
  struct Pair {
    LinkPtr to, from;
  };
  std::pair<int, int> ends(int peer) const { return std::minmax({group_.me.value, peer}); }
  Result<DeviceComm> join(const std::string& name, Rank me, int ranks, c10::Device device);
  void check_device(c10::Device device);
  std::vector<LinkPtr> links();
  void look_later();
  void look();

  const Group group_;
  std::mutex making_;  // One link at a time. Before mutex_.
  std::mutex mutex_;   // Guards what follows.
  std::optional<c10::Device> device_;
  LinkPtr all_;
  std::map<int, Pair> pairs_;
  std::list<Held> held_;
  bool looking_ = false, told_ = false;
};

}  // namespace tutti::python
