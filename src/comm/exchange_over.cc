#include "comm/exchange_over.h"

#include <algorithm>
#include <string>

namespace tutti {

Result<std::vector<std::optional<Bytes>>> exchange_over(
    Communicator& control, std::optional<std::span<const std::byte>> mine) {
  constexpr std::size_t kMost = std::size_t{1} << 20;
  constexpr std::uint64_t kNothing = ~std::uint64_t{0};
  const auto ranks = static_cast<std::size_t>(control.rank_count());
  const std::uint64_t own = mine ? mine->size() : kNothing;
  std::vector<std::uint64_t> sizes(ranks);
  TUTTI_CHECK_OK(control.all_gather(&own, sizes.data(), 1, DataType::kUint64));
  std::size_t longest = 0;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    const std::uint64_t size = sizes[rank];
    if (size == kNothing) continue;
    if (size > kMost) {
      return Error{Code::kMismatch,
                   "the set-up data of rank " + std::to_string(rank) + " have " +
                       std::to_string(size) + " bytes; they may have " + std::to_string(kMost),
                   control.rank(), Rank{static_cast<int>(rank)}};
    }
    longest = std::max(longest, static_cast<std::size_t>(size));
  }
  std::vector<std::byte> sent(longest), got(longest * ranks);
  if (mine) std::copy(mine->begin(), mine->end(), sent.begin());
  if (longest != 0)
    TUTTI_CHECK_OK(control.all_gather(sent.data(), got.data(), longest, DataType::kUint8));
  std::vector<std::optional<Bytes>> all(ranks);
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    if (sizes[rank] == kNothing) continue;
    const std::span<const std::byte> theirs(got.data() + rank * longest, sizes[rank]);
    all[rank].emplace(theirs.begin(), theirs.end());
  }
  return all;
}

Exchange exchange_over(Communicator& control) {
  return
      [&control](std::string_view, std::span<const std::byte> mine) -> Result<std::vector<Bytes>> {
        TUTTI_TRY(auto told, exchange_over(control, mine));
        std::vector<Bytes> all;
        for (std::size_t rank = 0; rank < told.size(); ++rank) {
          if (!told[rank]) {
            return Error{Code::kPeerFailed, "the set-up failed at rank " + std::to_string(rank),
                         control.rank(), Rank{static_cast<int>(rank)}};
          }
          all.push_back(*std::move(told[rank]));
        }
        return all;
      };
}

}  // namespace tutti
