// What a process group offers after a failure: which ranks are lost, and a group of those that are
// left.
#include <algorithm>
#include <random>

#include "backend.h"
#include "errors.h"

namespace tutti::python {
namespace {

constexpr int kShrinkAbort = 1;  // torch.distributed.SHRINK_ABORT.

/// The ranks that are not among `members`, ascending.
std::vector<int> others_than(const std::vector<Rank>& members, int ranks) {
  std::vector<int> lost;
  for (int rank = 0; rank < ranks; ++rank) {
    if (std::ranges::find(members, Rank{rank}) == members.end()) lost.push_back(rank);
  }
  return lost;
}

/// A communicator for messages, and a number that names the new group in the store.
struct Extras {
  std::optional<Communicator> messages;
  std::uint64_t number = 0;
};

Status make_extras(Communicator& shrunk, Extras& made) {
  TUTTI_TRY(made.messages, shrunk.split(0, shrunk.rank().value));
  std::random_device random;
  made.number = std::uint64_t{random()} << 32 | random();
  return shrunk.broadcast(&made.number, &made.number, 1, DataType::kUint64, Rank{0});
}

}  // namespace

std::shared_ptr<Communicator> TorchBackend::to_recover(const char* function) {
  auto communicator = this->communicator();
  if (communicator == nullptr)
    raise(std::string(function) + " of group '" + shared_->group + "'", no_ranks());
  return communicator;
}

void TorchBackend::revoke(const std::string& reason) {
  const Members now = members();
  if (now.collectives == nullptr) raise("revoke of group '" + shared_->group + "'", no_ranks());
  now.collectives->revoke(reason);
  now.messages->abort(reason);
  now.devices->abort(reason);
}

std::vector<int> TorchBackend::lost_ranks(const std::vector<int>& exclude) {
  const auto whole = to_recover("lost_ranks");
  const std::lock_guard order(issue_);
  std::vector<Rank> excluded;
  for (const int rank : exclude) excluded.push_back(Rank{rank});
  const auto shrunk = whole->shrink(excluded);
  if (!shrunk) raise("lost_ranks of group '" + shared_->group + "'", shrunk.error());
  completed_.store(static_cast<std::int64_t>(shrunk->completed), std::memory_order_relaxed);
  return others_than(shrunk->members, size_);
}

std::uint64_t TorchBackend::agree(std::uint64_t flags) {
  const auto whole = to_recover("agree");
  const std::lock_guard order(issue_);
  const auto agreed = whole->agree(flags);
  if (!agreed) raise("agree of group '" + shared_->group + "'", agreed.error());
  return *agreed;
}

std::optional<std::string> TorchBackend::health() {
  const auto whole = communicator();
  if (whole == nullptr) return no_ranks().what;
  const std::unique_lock order(issue_, std::try_to_lock);
  if (!order.owns_lock()) return std::nullopt;
  const Status there = whole->health();
  if (there) return std::nullopt;
  return python::describe("health of group '" + shared_->group + "'", there.error());
}

TorchBackend::Ptr<c10d::Backend> TorchBackend::shrink(
    const std::vector<int64_t>& ranks_to_exclude, int shrink_flags,
    const Ptr<c10d::Backend::Options>& opts_override) {
  const std::string what = "shrinking group '" + shared_->group + "'";
  const auto whole = to_recover("shrink");
  // First: it ends what another thread waits for.
  if ((shrink_flags & kShrinkAbort) != 0)
    revoke("rank " + std::to_string(rank_) + " called shrink_group with SHRINK_ABORT");
  const std::lock_guard order(issue_);
  std::vector<Rank> excluded;
  for (const std::int64_t rank : ranks_to_exclude) excluded.push_back(Rank{static_cast<int>(rank)});
  auto shrunk = whole->shrink(excluded);
  if (!shrunk) raise(what, shrunk.error());
  for (const int lost : others_than(shrunk->members, size_)) {
    if (std::ranges::find(excluded, Rank{lost}) != excluded.end()) continue;
    raise(what, {Code::kPeerFailed,
                 "it has been lost too: call shrink_group again with this rank in the list",
                 Rank{rank_}, Rank{lost}});
  }
  Extras extras;
  Status made = make_extras(shrunk->communicator, extras);
  // If a rank dies meanwhile, all ranks fail here, or none.
  const auto agreed = shrunk->communicator.agree(made ? 1 : 0);
  if (made && !agreed) made = agreed.error();
  if (made && *agreed == 0) {
    made = Error{Code::kPeerFailed, "another rank could not make the group; call it again",
                 Rank{rank_}};
  }
  if (!made) raise(what, made.error());

  auto own = c10::make_intrusive<Options>(
      options_->backend,
      opts_override ? std::min(bounded(opts_override->timeout), longest_) : longest_);
  own->group_name = options_->group_name + " shrunk";
  own->group_desc = options_->group_desc;
  for (const Rank member : shrunk->members) {
    const auto at = static_cast<std::size_t>(member.value);
    if (at < options_->global_ranks_in_group.size())
      own->global_ranks_in_group.push_back(options_->global_ranks_in_group[at]);
  }
  const Communicator& joined = shrunk->communicator;
  auto backend = create_apart(store_, joined.rank().value, joined.rank_count(), own);
  backend->set_members(members().prefix + "shrunk." + std::to_string(extras.number) + "/",
                       std::move(shrunk->communicator), *std::move(extras.messages));
  backend->completed_.store(static_cast<std::int64_t>(shrunk->completed),
                            std::memory_order_relaxed);
  return backend;
}

}  // namespace tutti::python
