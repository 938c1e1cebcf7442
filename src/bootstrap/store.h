// File: bootstrap/store.h: the keys and values of one job, in this process's memory.
//
// The memory rendezvous is this store; the TCP rendezvous serves one. Any thread may call anything.
// Invariants: a value never changes once it is stored (a second put stores another one), so readers
// share it; the first failure stays, and from then on nobody gets a value.
#pragma once
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "tutti/rendezvous.h"

namespace tutti::bootstrap {

using SharedBytes = std::shared_ptr<const Bytes>;

class Store {
 public:
  /// kInvalidArgument for sizes out of bounds, kSystem when the store is full.
  Status put(std::string_view key, std::span<const std::byte> value);
  /// The value, null if there is none yet, or the failure.
  Result<SharedBytes> find(std::string_view key) const;
  /// Waits for the value. kTimeout at the deadline; one that has passed still looks once.
  Result<SharedBytes> wait(std::string_view key, Deadline deadline) const;
  /// It drops the values: no client gets them any more.
  void fail(const Error& error);
  bool failed() const;

  /// `hook` is called with every key that was put, and with "" once the store has failed; under the
  /// store's lock, so it must not call back. One at a time.
  void on_change(std::function<void(std::string_view key)> hook);

 private:
  Result<SharedBytes> find_locked(std::string_view key) const;

  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  std::map<std::string, SharedBytes, std::less<>> values_;
  std::size_t bytes_ = 0;
  std::optional<Error> failure_;
  std::function<void(std::string_view)> hook_;
};

/// A rendezvous over a store that this process holds.
class LocalRendezvous : public Rendezvous {
 public:
  explicit LocalRendezvous(std::shared_ptr<Store> store) : store_(std::move(store)) {}
  Status put(std::string_view key, std::span<const std::byte> value) override {
    return store_->put(key, value);
  }
  Result<Bytes> get(std::string_view key, Deadline deadline) override;
  Status fail(const Error& error) override {
    store_->fail(error);
    return ok();
  }

 private:
  std::shared_ptr<Store> store_;
};

}  // namespace tutti::bootstrap
