// File: cuda/comm/exchange_status.h: what ranks tell each other when something is set up, each with
// whether it failed, so that all give up together, with the first one's reason.
#pragma once
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "tutti/communicator.h"
#include "tutti/result.h"

namespace tutti {

/// The trouble that keeps a rank from going on. Plain data; 0: nothing.
struct ExchangedStatus {
  std::int32_t code = 0;
  char text[252] = {};
  explicit ExchangedStatus(const Status& status = ok()) {
    if (status) return;
    code = static_cast<std::int32_t>(status.error().code);
    std::strncpy(text, status.error().what.c_str(), sizeof text - 1);
  }
};

/// The words of all ranks, or the error of this rank or of the first other that has one.
template <class Word>
Result<std::vector<Word>> exchange_status(Communicator& control, const Word& mine,
                                          const Status& status) {
  std::vector<Word> all(static_cast<std::size_t>(control.rank_count()));
  TUTTI_RETURN_IF_ERROR(control.all_gather(&mine, all.data(), sizeof(Word), DataType::kUint8));
  if (!status) return status.error();
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    ExchangedStatus& failure = all[rank].status;
    if (failure.code == 0) continue;
    failure.text[sizeof failure.text - 1] = 0;
    const Rank other{static_cast<int>(rank)};
    return Error{static_cast<Code>(failure.code),
                 "rank " + std::to_string(rank) + ": " + failure.text, control.rank(), other};
  }
  return all;
}

}  // namespace tutti
