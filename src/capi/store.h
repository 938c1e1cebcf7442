// File: capi/store.h: a C program's store (tutti_options.h) as a rendezvous.
#pragma once
#include <string_view>

#include "tutti/rendezvous.h"
#include "tutti/tutti.h"

namespace tutti::c_api {

/// Failures go through the store too: waits look for one every so often, so that the store needs
/// no function for them.
class CStore : public Rendezvous {
 public:
  explicit CStore(const tutti_store_t& store) : store_(store) {}
  Status put(std::string_view key, std::span<const std::byte> value) override;
  Result<Bytes> get(std::string_view key, Deadline deadline) override;
  Status fail(const Error& error) override;

 private:
  /// 0: it was there and is in `value`. 1: not in time.
  Result<int> look(std::string_view key, int timeout_ms, Bytes& value) const;

  tutti_store_t store_;
};

}  // namespace tutti::c_api
