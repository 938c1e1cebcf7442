#include "transport/verbs/words.h"

#include <fmt/format.h>

namespace tutti::verbs {
namespace {

/// Null: the library's words have to do.
const char* meaning(ibv_wc_status status) {
  switch (status) {
    case IBV_WC_RETRY_EXC_ERR:
      return "no acknowledgement: its process has ended, or its host, a cable or a switch is down";
    case IBV_WC_RNR_RETRY_EXC_ERR: return "it takes no messages";
    case IBV_WC_REM_ACCESS_ERR: return "it does not allow access to its memory";
    case IBV_WC_LOC_QP_OP_ERR:
      return "this rank's device can't send: its link is down, or its address was removed";
    case IBV_WC_WR_FLUSH_ERR: return "the queue pair has failed";
    default: return nullptr;
  }
}

}  // namespace

std::string in_words(const ibv_wc& completion) {
  const char* const words = meaning(completion.status);
  return fmt::format("{} ({}, status {}, vendor's {})",
                     words != nullptr ? words : "the device reports an error",
                     library().wc_status_str(completion.status),
                     static_cast<int>(completion.status), completion.vendor_err);
}

}  // namespace tutti::verbs
