// Which ranks a group has: they join, leave, and become others.
#include <algorithm>
#include <numeric>
#include <set>
#include <thread>
#include <variant>

#include "backend.h"
#include "errors.h"
#include "operations.h"

namespace tutti::python {
#ifdef C10D_BACKEND_HAS_RECONFIGURE
namespace {

/// By rank.
std::vector<std::string> in_order(
    const std::variant<std::unordered_set<std::string>, std::vector<std::string>>& handles,
    const std::string& what) {
  std::vector<std::string> all;
  if (const auto* list = std::get_if<std::vector<std::string>>(&handles)) {
    all = *list;
  } else {
    const auto& set = std::get<std::unordered_set<std::string>>(handles);
    all.assign(set.begin(), set.end());
    // They differ in the number of digits of the rank, and in what follows.
    std::ranges::sort(all, {}, [](const std::string& one) { return std::pair(one.size(), one); });
  }
  std::set<std::string> seen;
  for (const std::string& one : all) {
    TORCH_CHECK(one.starts_with(kHandlePrefix), "tutti: ", what, ": '", one,
                "' is no handle of Tutti's");
    TORCH_CHECK(seen.insert(one).second, "tutti: ", what, ": the handle ", one, " is there twice");
  }
  return all;
}
}  // namespace
#endif

/// Makes the members. `what` is said in errors.
void TorchBackend::join(StoreRendezvous& rendezvous, const std::string& what) {
  auto settings = Settings::from_environment();
  if (!settings) raise(what, settings.error());
  settings->timeout = longest_;
  auto collectives = Communicator::create(rendezvous, Rank{rank_}, size_, *settings, "collectives");
  if (!collectives) raise(what, collectives.error());
  auto messages = Communicator::create(rendezvous, Rank{rank_}, size_, *settings, "messages");
  if (!messages) raise(what, messages.error());
  // Rank 0's process may have torch's store, and may end after its calls. Before that, all ranks
  // must have read the store. A rank that has passed this may go on to another reconfigure, and end
  // what the others are still in: they have joined all the same, and their next call says so.
  if (const auto met = messages->barrier(); !met && met.error().code != Code::kAborted)
    raise(what, met.error());
  set_members(rendezvous.prefix(), *std::move(collectives), *std::move(messages));
}

void TorchBackend::set_members(std::string prefix, Communicator collectives,
                               Communicator messages) {
  const auto devices = std::make_shared<Devices>(
      Devices::Group{store_, prefix, Rank{rank_}, size_, longest_, options_->group_name,
                     [shared = shared_](Code code) { shared->note(code); }});
  Members made{std::make_shared<Communicator>(std::move(collectives)),
               std::make_shared<Messages>(std::move(messages)), devices, std::move(prefix)};
  bool taken = false;
  {
    const std::lock_guard lock(mutex_);
    taken = !shut_down_;
    if (taken) members_ = made;
  }
  if (taken) return;
  made.messages->close();
  raise("group '" + shared_->group + "'", no_ranks());
}

TorchBackend::Members TorchBackend::members() {
  const std::lock_guard lock(mutex_);
  return members_;
}

std::shared_ptr<Communicator> TorchBackend::communicator() {
  const std::lock_guard lock(mutex_);
  return members_.collectives;
}

std::shared_ptr<Devices> TorchBackend::devices() {
  {
    const std::lock_guard lock(mutex_);
    if (members_.devices != nullptr) return members_.devices;
  }
  raise("group '" + shared_->group + "'", no_ranks());
}

Error TorchBackend::no_ranks() {
  const std::lock_guard lock(mutex_);
  if (shut_down_) return {Code::kAborted, "the process group was shut down", Rank{rank_}};
  return {Code::kInvalidArgument,
          "the group has no ranks: call reconfigure() first, as it was made with "
          "enable_reconfigure=True or the last one failed",
          Rank{rank_}};
}

/// What is still under way after some patience is ended, with that reason.
void TorchBackend::end_members(std::chrono::milliseconds patience, const std::string& reason) {
  Members last;
  {
    const std::lock_guard lock(mutex_);
    last = members_;
    members_.collectives = nullptr;
  }
  if (last.collectives == nullptr) return;
  const auto end = std::chrono::steady_clock::now() + patience;
  const auto busy = [&] { return shared_->under_way != 0 || last.messages->busy(); };
  while (busy() && std::chrono::steady_clock::now() < end)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  last.devices->shutdown(end, reason);
  if (busy()) {
    last.collectives->abort(reason);
    last.messages->abort(reason);
  }
  last.collectives.reset();
  last.messages->close();
}

#ifdef C10D_BACKEND_HAS_RECONFIGURE
/// All wait for the last one, as long as the caller says, and see that they have the same list.
void TorchBackend::meet(StoreRendezvous& rendezvous, const std::vector<std::string>& handles,
                        std::chrono::milliseconds limit, const std::string& what) {
  const auto here = exchange(rendezvous, Rank{rank_}, size_, "reconfigured/hello",
                             std::as_bytes(std::span(handle_)),
                             Deadline::after(std::min(bounded(limit), longest_)));
  if (!here) raise(what, here.error());
  for (int rank = 0; rank < size_; ++rank) {
    const auto at = static_cast<std::size_t>(rank);
    if (std::ranges::equal((*here)[at], std::as_bytes(std::span(handles[at])))) continue;
    const Error other{Code::kMismatch,
                      "ranks have different lists of handles: rank " + std::to_string(rank) +
                          " is not the one that rank " + std::to_string(rank_) + " expects",
                      Rank{rank_}, Rank{rank}};
    (void)rendezvous.fail(other);  // The others may have seen no difference.
    raise(what, other);
  }
}

TorchBackend::WorkPtr TorchBackend::reconfigure(const c10d::ReconfigureOptions& options) {
  const std::string what = "reconfiguring group '" + shared_->group + "'";
  const std::vector<std::string> handles = in_order(options.handles, what);
  const auto mine = std::ranges::find(handles, handle_);
  TORCH_CHECK(mine != handles.end(), "tutti: ", what, ": its own handle, ", handle_,
              ", is not among the ", handles.size(), " handles");
  const std::string reason = "rank " + std::to_string(rank_) + " reconfigures the group";
  {
    const std::lock_guard lock(mutex_);
    TORCH_CHECK(!shut_down_, "tutti: ", what, ": the process group was shut down");
    TORCH_CHECK(uuids_.insert(options.uuid).second, "tutti: ", what, ": uuid ", options.uuid,
                " has been used before");
  }
  std::unique_lock order(issue_, std::try_to_lock);
  if (!order.owns_lock()) {  // A call is under way on another thread.
    abort_members(reason);
    order.lock();
  }
  end_members(std::chrono::milliseconds(0), reason);
  {
    // A call that takes the members from now on, and compares sizes then, gets none, or the new
    // ones.
    const std::lock_guard lock(mutex_);
    members_ = {};
    coalesced_.reset();
    rank_ = static_cast<int>(mine - handles.begin());
    size_ = static_cast<int>(handles.size());
  }
  options_->global_ranks_in_group.resize(handles.size());
  std::iota(options_->global_ranks_in_group.begin(), options_->global_ranks_in_group.end(), 0);
  number_ = monitored_ = 0;
  StoreRendezvous rendezvous(store_, "tutti/reconfigured/" + std::to_string(options.uuid) + "/");
  meet(rendezvous, handles, options.timeout.value_or(longest_), what);
  join(rendezvous, what);
  shared_->error = c10d::ErrorType::SUCCESS;
  auto work = make_work(kReconfigure, {}, {}, number_++);
  work->complete();
  return work;
}
#endif

}  // namespace tutti::python
