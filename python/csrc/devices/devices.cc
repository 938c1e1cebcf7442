#include "devices/devices.h"

#include <algorithm>
#include <thread>

#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "completions.h"
#include "errors.h"
#include "store_rendezvous.h"

namespace tutti::python {
namespace {

/// How often works on their way are looked after.
constexpr std::chrono::milliseconds kLook{20};

c10::Stream own_stream(c10::Device device) {
  return c10::impl::VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device, true);
}

}  // namespace

/// The ranks that name that link meet at the store; if one of them can't, the others are told.
Result<DeviceComm> Devices::join(const std::string& name, Rank me, int ranks, c10::Device device) {
  const Deadline end{std::chrono::steady_clock::now() + group_.timeout};
  StoreRendezvous rendezvous(group_.store, group_.prefix + "devices/" + name + "/");
  const auto meet = [&]() -> Result<DeviceComm> {
    if (me.value == 0) {
      TUTTI_TRY(const Bytes id, DeviceComm::make_id());
      TUTTI_RETURN_IF_ERROR(rendezvous.put("id", id));
      return DeviceComm::join(id, me, ranks, device.index(), group_.timeout);
    }
    TUTTI_TRY(const Bytes id, rendezvous.get("id", end));
    return DeviceComm::join(id, me, ranks, device.index(), group_.timeout);
  };
  auto comm = meet();
  if (!comm) static_cast<void>(rendezvous.fail(comm.error()));
  return comm;
}

void Devices::check_device(c10::Device device) {
  const std::lock_guard lock(mutex_);
  if (!device_) device_ = device;
  TORCH_CHECK(*device_ == device, "tutti: group '", group_.name, "' is on ", *device_,
              " on this rank, the tensor is on ", device,
              "; make another group for another device");
}

Devices::LinkPtr Devices::all(c10::Device device) {
  const std::lock_guard making(making_);
  check_device(device);
  {
    const std::lock_guard lock(mutex_);
    if (all_) return all_;
  }
  const c10::DeviceGuard guard(device);
  auto comm = join("all", group_.me, group_.ranks, device);
  if (!comm) raise("joining the devices of group '" + group_.name + "'", comm.error());
  const std::lock_guard lock(mutex_);
  all_ = std::make_shared<DeviceLink>(*std::move(comm), own_stream(device));
  return all_;
}

Devices::LinkPtr Devices::pair(int peer, bool sends, c10::Device device) {
  const std::lock_guard making(making_);
  check_device(device);
  {
    const std::lock_guard lock(mutex_);
    const auto found = pairs_.find(peer);
    if (found != pairs_.end()) return sends ? found->second.to : found->second.from;
  }
  const auto [low, high] = ends(peer);
  const bool is_low = group_.me.value == low;
  const c10::DeviceGuard guard(device);
  const std::string what =
      "joining rank " + std::to_string(peer) + " for messages of group '" + group_.name + "'";
  auto up = join(std::to_string(low) + "-" + std::to_string(high), Rank{is_low ? 0 : 1}, 2, device);
  if (!up) raise(what, up.error());
  auto down = up->twin();
  if (!down) raise(what, down.error());
  const auto upward = std::make_shared<DeviceLink>(*std::move(up), own_stream(device));
  const auto downward = std::make_shared<DeviceLink>(*std::move(down), own_stream(device));
  const std::lock_guard lock(mutex_);
  pairs_[peer] = is_low ? Pair{upward, downward} : Pair{downward, upward};
  return sends == is_low ? upward : downward;
}

void Devices::hold(const WorkPtr& work, std::vector<at::Tensor> tensors, Time limit) {
  work->keep(std::move(tensors));
  const std::lock_guard lock(mutex_);
  held_.push_back({work, limit});
  if (!std::exchange(looking_, true)) look_later();
}

/// With the mutex held.
void Devices::look_later() {
  const auto again = [weak = weak_from_this()] {
    if (const auto self = weak.lock()) self->look();
  };
  Completions::instance().post_at(std::chrono::steady_clock::now() + kLook, again);
}

void Devices::look() {
  std::vector<WorkPtr> over, late;
  const auto now = std::chrono::steady_clock::now();
  {
    const std::lock_guard lock(mutex_);
    for (auto one = held_.begin(); one != held_.end();) {
      if (one->work->isCompleted()) {
        over.push_back(one->work);
        one = held_.erase(one);
        continue;
      }
      if (now >= one->limit) {
        late.push_back(one->work);
        one->limit = Time::max();
      }
      ++one;
    }
    looking_ = !held_.empty();
    if (looking_) look_later();
  }
  for (const WorkPtr& work : over) work->let_go();
  for (const WorkPtr& work : late) {
    const std::string reason = "Timed out at its own time limit: " + work->text();
    for (const DeviceEnd& end : work->ends()) end.link->abort(reason);
  }
  const Status status = check();
  if (status) return;
  {
    const std::lock_guard lock(mutex_);
    if (std::exchange(told_, true)) return;
  }
  group_.on_failure(status.error().code);
  TORCH_WARN("tutti: group '", group_.name,
             "' has failed, and results on its CUDA tensors are not complete: ",
             status.error().to_string());
}

std::vector<Devices::LinkPtr> Devices::links() {
  const std::lock_guard lock(mutex_);
  std::vector<LinkPtr> all;
  if (all_) all.push_back(all_);
  for (const auto& [peer, pair] : pairs_) all.insert(all.end(), {pair.to, pair.from});
  return all;
}

Status Devices::check() {
  for (const LinkPtr& link : links()) TUTTI_RETURN_IF_ERROR(link->check());
  return ok();
}

void Devices::abort(const std::string& reason) {
  for (const LinkPtr& link : links()) link->abort(reason);
}

void Devices::shutdown(Time limit, const std::string& reason) {
  const auto busy = [this] {
    const std::lock_guard lock(mutex_);
    return std::any_of(held_.begin(), held_.end(),
                       [](const Held& one) { return one.work->busy(); });
  };
  while (busy() && std::chrono::steady_clock::now() < limit) std::this_thread::sleep_for(kLook);
  if (busy()) abort(reason);
  for (const LinkPtr& link : links()) link->close();
}

std::string Devices::describe() {
  std::string text;
  for (const LinkPtr& link : links()) {
    static_cast<void>(link->use([&](const DeviceComm& comm) {
      text += comm.describe();
      return ok();
    }));
  }
  return text;
}

}  // namespace tutti::python
