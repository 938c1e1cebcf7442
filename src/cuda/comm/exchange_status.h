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
  std::string words() const { return {text, strnlen(text, sizeof text)}; }
};

/// The words of all ranks, or the error of this rank or of the first other that has one.
template <class Word>
Result<std::vector<Word>> exchange_status(Communicator& control, Word mine, const Status& status) {
  mine.status = ExchangedStatus(status);
  std::vector<Word> all(static_cast<std::size_t>(control.rank_count()));
  TUTTI_RETURN_IF_ERROR(control.all_gather(&mine, all.data(), sizeof(Word), DataType::kUint8));
  if (!status) return status.error();
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    const ExchangedStatus& failure = all[rank].status;
    if (failure.code == 0) continue;
    const Rank other{static_cast<int>(rank)};
    return Error{static_cast<Code>(failure.code),
                 "rank " + std::to_string(rank) + ": " + failure.words(), control.rank(), other};
  }
  return all;
}

/// The same where ranks have no more to tell.
inline Status exchange_status(Communicator& control, const Status& status) {
  struct Word {
    ExchangedStatus status;
  };
  TUTTI_TRY([[maybe_unused]] const auto all, exchange_status(control, Word(), status));
  return ok();
}

}  // namespace tutti
