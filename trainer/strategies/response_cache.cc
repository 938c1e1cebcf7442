#include "trainer/strategies/response_cache.h"

namespace tutti::trainer {
namespace {

constexpr std::size_t kBits = 64;

}  // namespace

Result<std::vector<char>> ResponseCache::agree(Traffic& traffic, const std::vector<char>& mine) {
  // Bit u: ready, and in the cache. The last word: nothing is ready that is not in it.
  std::vector<std::uint64_t> bits(mine.size() / kBits + 2);
  bits.back() = ~std::uint64_t{0};
  for (std::size_t u = 0; u < mine.size(); ++u) {
    if (mine[u] != 0 && cached_[u] != 0) bits[u / kBits] |= std::uint64_t{1} << u % kBits;
    if (mine[u] != 0 && cached_[u] == 0) bits.back() = 0;
  }
  TUTTI_RETURN_IF_ERROR(
      traffic.all_reduce(bits.data(), bits.size(), DataType::kUint64, ReduceOp::kAnd));
  std::vector<char> all(mine.size());
  for (std::size_t u = 0; u < mine.size(); ++u)
    all[u] = static_cast<char>(bits[u / kBits] >> u % kBits & 1U);
  if (bits.back() == 0) TUTTI_RETURN_IF_ERROR(negotiate(traffic, mine, all));
  return all;
}

/// Adds to `all` what is new and ready on all ranks. A number for each unit: 0, or its size.
Status ResponseCache::negotiate(Traffic& traffic, const std::vector<char>& mine,
                                std::vector<char>& all) {
  ++negotiations_;
  std::vector<std::uint64_t> asked(mine.size()), asked_by_all(mine.size() * traffic.ranks());
  for (std::size_t u = 0; u < mine.size(); ++u)
    asked[u] = mine[u] != 0 && cached_[u] == 0 ? units_[u].size : 0;
  Request request{.collective = Collective::kGather,
                  .input = asked.data(),
                  .output = asked_by_all.data(),
                  .count = asked.size(),
                  .type = DataType::kUint64,
                  .root = Rank{0}};
  TUTTI_RETURN_IF_ERROR(traffic.call(request));
  for (std::size_t u = 0; u < asked.size() && traffic.me() == 0; ++u) {
    for (std::size_t r = 0; r < traffic.ranks(); ++r)
      asked[u] = asked_by_all[r * asked.size() + u] == asked[u] ? asked[u] : 0;
  }
  request.collective = Collective::kBroadcast;
  request.output = asked.data();
  TUTTI_RETURN_IF_ERROR(traffic.call(request));
  for (std::size_t u = 0; u < asked.size(); ++u) {
    if (asked[u] == 0) continue;
    cached_[u] = 1;
    all[u] = 1;
  }
  return ok();
}

}  // namespace tutti::trainer
