// File: trainer/strategies/response_cache.h: which gradients are ready on all ranks (horovod.cc).
//
// A new gradient is negotiated: rank 0 gathers what each rank has ready, and answers with what all
// have. From then on it has a place in the response cache, which is the same on all ranks, and one
// bit of an all-reduce by `and` says whether it is ready everywhere.
#pragma once
#include <vector>

#include "trainer/strategies/strategy.h"

namespace tutti::trainer {

class ResponseCache {
 public:
  explicit ResponseCache(const std::vector<Unit>& units) : units_(units), cached_(units.size()) {}

  /// By unit, whether it is ready on all ranks; `mine`: whether it is on this one. Collective.
  Result<std::vector<char>> agree(Traffic& traffic, const std::vector<char>& mine);
  std::uint64_t negotiations() const { return negotiations_; }

 private:
  Status negotiate(Traffic& traffic, const std::vector<char>& mine, std::vector<char>& all);

  const std::vector<Unit>& units_;
  std::vector<char> cached_;
  std::uint64_t negotiations_ = 0;
};

}  // namespace tutti::trainer
