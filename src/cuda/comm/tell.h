// File: cuda/comm/tell.h: what ranks tell each other when something is set up, each with whether it
// failed, so that all give up together, with the first one's reason.
#pragma once
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "tutti/communicator.h"
#include "tutti/result.h"

namespace tutti {

/// What keeps a rank from going on. Plain data; 0: nothing.
struct Trouble {
  std::int32_t code = 0;
  char text[252] = {};
  explicit Trouble(const Status& status = ok()) {
    if (status) return;
    code = static_cast<std::int32_t>(status.error().code);
    std::strncpy(text, status.error().what.c_str(), sizeof text - 1);
  }
};

/// The words of all ranks, or the error of this rank or of the first other that has one.
template <class Word>
Result<std::vector<Word>> tell(Communicator& control, const Word& mine, const Status& status) {
  std::vector<Word> all(static_cast<std::size_t>(control.rank_count()));
  TUTTI_CHECK_OK(control.all_gather(&mine, all.data(), sizeof(Word), DataType::kUint8));
  if (!status) return status.error();
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    Trouble& trouble = all[rank].trouble;
    if (trouble.code == 0) continue;
    trouble.text[sizeof trouble.text - 1] = 0;
    const Rank other{static_cast<int>(rank)};
    return Error{static_cast<Code>(trouble.code),
                 "rank " + std::to_string(rank) + ": " + trouble.text, control.rank(), other};
  }
  return all;
}

}  // namespace tutti
