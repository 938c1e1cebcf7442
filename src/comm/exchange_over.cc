#include "comm/exchange_over.h"

#include <algorithm>
#include <string>

#include "bootstrap/wire.h"

namespace tutti {

namespace {

// A rank announces the number of its bytes, that it has none, or that they are an error.
constexpr std::uint64_t kNothing = ~std::uint64_t{0}, kIsError = std::uint64_t{1} << 62;

Result<std::vector<SetUp>> gather(Communicator& control, std::span<const std::byte> mine,
                                  std::uint64_t said) {
  constexpr std::size_t kMost = std::size_t{1} << 20;
  const auto ranks = static_cast<std::size_t>(control.rank_count());
  std::vector<std::uint64_t> all_said(ranks);
  TUTTI_RETURN_IF_ERROR(control.all_gather(&said, all_said.data(), 1, DataType::kUint64));
  const auto size_of = [&](std::size_t rank) {
    return all_said[rank] == kNothing ? 0 : all_said[rank] & ~kIsError;
  };
  std::size_t longest = 0;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    if (size_of(rank) > kMost) {
      return Error{Code::kMismatch,
                   "the set-up data of rank " + std::to_string(rank) + " have " +
                       std::to_string(size_of(rank)) + " bytes; they may have " +
                       std::to_string(kMost),
                   control.rank(), Rank{static_cast<int>(rank)}};
    }
    longest = std::max(longest, static_cast<std::size_t>(size_of(rank)));
  }
  std::vector<std::byte> sent(longest), got(longest * ranks);
  std::copy(mine.begin(), mine.end(), sent.begin());
  if (longest != 0)
    TUTTI_RETURN_IF_ERROR(control.all_gather(sent.data(), got.data(), longest, DataType::kUint8));
  std::vector<SetUp> all(ranks);
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    if (all_said[rank] == kNothing) continue;
    const std::span<const std::byte> theirs(got.data() + rank * longest, size_of(rank));
    if ((all_said[rank] & kIsError) == 0) {
      all[rank].bytes.emplace(theirs.begin(), theirs.end());
      continue;
    }
    // Over a network what others say may be anything.
    auto message = bootstrap::wire::parse(theirs);
    if (!message || message->kind != bootstrap::wire::Kind::kFailed) {
      return Error{Code::kMismatch, "rank " + std::to_string(rank) + " sent a malformed error",
                   control.rank(), Rank{static_cast<int>(rank)}};
    }
    message->error.peer = known_rank(message->error.peer, control.rank_count());
    all[rank].error = std::move(message->error);
  }
  return all;
}

}  // namespace

Result<std::vector<SetUp>> exchange_over(Communicator& control, std::span<const std::byte> mine) {
  return gather(control, mine, mine.size());
}

Result<std::vector<SetUp>> end_exchange_over(Communicator& control, const Error* error) {
  if (error == nullptr) return gather(control, {}, kNothing);
  namespace wire = bootstrap::wire;
  const Bytes frame = wire::encode({.kind = wire::Kind::kFailed, .error = *error});
  const auto told = std::span(frame).subspan(wire::kLengthBytes);
  return gather(control, told, told.size() | kIsError);
}

Exchange exchange_over(Communicator& control) {
  return
      [&control](std::string_view, std::span<const std::byte> mine) -> Result<std::vector<Bytes>> {
        TUTTI_TRY(auto told, exchange_over(control, mine));
        std::vector<Bytes> all;
        for (std::size_t rank = 0; rank < told.size(); ++rank) {
          if (!told[rank].bytes) {
            const auto& error = told[rank].error;
            return Error{error ? error->code : Code::kPeerFailed,
                         "the set-up failed at rank " + std::to_string(rank) +
                             (error ? ": " + error->what : ""),
                         control.rank(), Rank{static_cast<int>(rank)}};
          }
          all.push_back(*std::move(told[rank].bytes));
        }
        return all;
      };
}

}  // namespace tutti
