#include "bootstrap/store.h"

#include "base/wall.h"
#include "bootstrap/limits.h"

namespace tutti {
namespace bootstrap {
namespace {

// Unauthenticated peers that speak the protocol must not be able to fill the memory of rank 0.
constexpr std::size_t kMostKeys = std::size_t{1} << 20;
constexpr std::size_t kMostBytes = std::size_t{1} << 30;

}  // namespace

Status Store::put(std::string_view key, std::span<const std::byte> value) {
  TUTTI_RETURN_IF_ERROR(check_sizes(key, value.size()));
  auto stored = std::make_shared<const Bytes>(value.begin(), value.end());
  const std::lock_guard lock(mutex_);
  if (failure_) return ok();  // No client would get the value.
  const auto found = values_.find(key);
  const std::size_t replaced = found == values_.end() ? 0 : found->second->size();
  if (values_.size() >= kMostKeys || bytes_ - replaced + value.size() > kMostBytes) {
    return Error{Code::kSystem, "rendezvous: the store is full (" + std::to_string(values_.size()) +
                                    " keys, " + std::to_string(bytes_) + " bytes)"};
  }
  bytes_ += value.size() - replaced;
  if (found == values_.end())
    values_.emplace(key, std::move(stored));
  else
    found->second = std::move(stored);
  if (hook_) hook_(key);
  changed_.notify_all();
  return ok();
}

Result<SharedBytes> Store::find_locked(std::string_view key) const {
  if (failure_) return *failure_;
  const auto found = values_.find(key);
  return found == values_.end() ? SharedBytes{} : found->second;
}

Result<SharedBytes> Store::find(std::string_view key) const {
  TUTTI_RETURN_IF_ERROR(check_sizes(key));
  const std::lock_guard lock(mutex_);
  return find_locked(key);
}

Result<SharedBytes> Store::wait(std::string_view key, Deadline deadline) const {
  TUTTI_RETURN_IF_ERROR(check_sizes(key));
  std::unique_lock lock(mutex_);
  for (;;) {
    TUTTI_TRY(auto value, find_locked(key));
    if (value) return value;
    if (deadline.passed()) return never_came(key);
    changed_.wait_until(lock, deadline.at);
  }
}

void Store::fail(const Error& error) {
  const std::lock_guard lock(mutex_);
  if (failure_) return;
  failure_ = copy_of(error);
  values_.clear();
  bytes_ = 0;
  changed_.notify_all();
  if (hook_) hook_("");
}

bool Store::failed() const {
  const std::lock_guard lock(mutex_);
  return failure_.has_value();
}

void Store::on_change(std::function<void(std::string_view key)> hook) {
  const std::lock_guard lock(mutex_);
  hook_ = std::move(hook);
}

Result<Bytes> LocalRendezvous::get(std::string_view key, Deadline deadline) {
  TUTTI_TRY(const SharedBytes value, store_->wait(key, deadline));
  return *value;
}

}  // namespace bootstrap

std::shared_ptr<Rendezvous> memory_rendezvous() {
  return std::make_shared<bootstrap::LocalRendezvous>(std::make_shared<bootstrap::Store>());
}

}  // namespace tutti
