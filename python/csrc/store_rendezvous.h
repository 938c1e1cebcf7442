// File: python/csrc/store_rendezvous.h: ranks that meet at a store of torch's.
//
// All keys begin with "tutti/<n>/", where n counts the groups that this rank has made at the store:
// a group that is made anew under the same prefix does not read what the one before has left.
#pragma once
#include <string>

#include <torch/csrc/distributed/c10d/Store.hpp>

#include "tutti/rendezvous.h"

namespace tutti::python {

/// What torch's stores throw becomes an Error of code kSystem, or kTimeout.
class StoreRendezvous : public Rendezvous {
 public:
  /// Throws what the store throws.
  StoreRendezvous(c10::intrusive_ptr<c10d::Store> store, int rank);
  /// Goes on under a prefix of before.
  StoreRendezvous(c10::intrusive_ptr<c10d::Store> store, std::string prefix)
      : store_(std::move(store)), prefix_(std::move(prefix)) {}
  Status put(std::string_view key, std::span<const std::byte> value) override;
  Result<Bytes> get(std::string_view key, Deadline deadline) override;
  Status fail(const Error& error) override;

  const std::string& prefix() const { return prefix_; }

 private:
  std::string full(std::string_view key) const { return prefix_ + std::string(key); }
  Status failure();

  c10::intrusive_ptr<c10d::Store> store_;
  std::string prefix_;
};

}  // namespace tutti::python
