// File: tutti/detail/tell.h: how a kernel that gives up reports it, to its host and on its peers'
// boards. For kernels: those of the library and the program's own. Part of the library's insides:
// programs include tutti/device.cuh.
#pragma once
#include "tutti/detail/device_common.h"
#include "tutti/detail/prim.h"

namespace tutti::cuda {

TUTTI_DEVICE std::uint64_t* told_on(std::byte* board) {
  return reinterpret_cast<std::uint64_t*>(board);
}
TUTTI_DEVICE std::uint64_t* claimed_on(std::byte* board) {
  return reinterpret_cast<std::uint64_t*>(board) + 1;
}

namespace detail {

/// A report as it is written and read: word by word.
inline constexpr unsigned kReportWords = sizeof(Report) / sizeof(std::uint64_t);
using ReportWords = std::uint64_t[kReportWords];

TUTTI_DEVICE void write_report(Report* at, const ReportWords& words) {
  auto* to = reinterpret_cast<std::uint64_t*>(at);
#pragma unroll
  for (unsigned i = 1; i < kReportWords; ++i) store_relaxed(to + i, words[i]);
  // release: a reader that sees `why` sees the whole report.
  store_release(to, words[0]);
}

/// The report that a board has of the rank `told` - 1.
TUTTI_DEVICE void read_report(const std::byte* board, std::uint64_t told, ReportWords& words) {
  const auto* from =
      reinterpret_cast<const std::uint64_t*>(board + kBoardHead + (told - 1) * kReportBytes);
#pragma unroll
  for (unsigned i = 0; i < kReportWords; ++i) words[i] = load_relaxed(from + i);
}

/// Writes the report of `rank` to the boards of all others; null: not reached.
TUTTI_DEVICE void post_report(std::byte* const* boards, unsigned ranks, unsigned rank,
                              const ReportWords& words) {
#pragma unroll 1
  for (unsigned peer = 0; peer < ranks; ++peer) {
    std::byte* const board = boards[peer];
    if (peer == rank || board == nullptr) continue;
    std::byte* const at = board + kBoardHead + rank * kReportBytes;
    write_report(reinterpret_cast<Report*>(at), words);
    store_release(told_on(board), rank + 1);  // release: the report is there.
  }
}

}  // namespace detail
}  // namespace tutti::cuda
