// File: tutti/detail/device_common.h: what the host and all kernels know, those of the library and
// the program's own. Part of the library's insides: programs include tutti/device_handle.h.
#pragma once
#include <cstddef>
#include <cstdint>

#include "tutti/types.h"

namespace tutti::cuda {

/// Ranks that map each other's memory, at most: their buffers are in a launch's arguments.
inline constexpr unsigned kMostDeviceRanks = 64;
inline constexpr unsigned kWarpLanes = 32;

/// Elements in a unit of `type`.
constexpr std::size_t unit_elements(DataType type) {
  const std::size_t fit = 16 / size_of(type);
  return fit < 8 ? fit : 8;
}

/// A call, or a message, or a kernel of the program's.
struct KnownCall {
  std::uint32_t number = 0;  // Counted from 1; 0: not known.
  std::uint32_t words[3] = {};
};
/// The first word of a kernel of the program's. Its number is that of its channel + 1; the other
/// words are the place in a window for kOutside.
inline constexpr std::uint32_t kProgramKernel = 4;

/// Why a launch ended early. The host writes kAborted to end it. kOutside: a kernel of the
/// program's named a rank, a channel or a part of a window that there is not.
enum class Why : std::uint8_t {
  kNothing,
  kAborted,
  kTimedOut,
  kDiffers,
  kOverlaps,
  kTold,
  kOutside
};

/// How a rank reports to its host, and on its peers' boards, that its calls ended early.
struct Report {
  std::uint64_t why = 0;  // report_word, written last; 0: no report.
  KnownCall own, other;   // The reporting rank's call, and that of the peer it waited for.
};
constexpr std::uint64_t report_word(Why why, unsigned teller, unsigned peer) {
  return static_cast<std::uint64_t>(why) | std::uint64_t{teller} << 16 | std::uint64_t{peer} << 32;
}

// A board, in each rank's memory, begins with two words: 1 + the rank whose report is the latest,
// and whether a thread of this rank has reported. Then there are reports, by rank.
inline constexpr std::size_t kBoardHead = 128;
inline constexpr std::size_t kReportBytes = 64;
static_assert(sizeof(Report) <= kReportBytes);

/// Signals of a channel between this rank and one peer, in this rank's memory. Counters only grow
/// and survive launches.
struct alignas(128) SignalLine {
  std::uint64_t incoming = 0;  // How many the peer has sent; the peer writes it.
  std::uint64_t apart[7] = {};
  std::uint64_t sent = 0, taken = 0;  // How many this rank has sent, and waited for.
};

}  // namespace tutti::cuda
