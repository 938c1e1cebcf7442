// The rules that hold where nothing was measured: docs/PERFORMANCE.md has the measurements, of 2 to
// 8 ranks on 2 CPUs.
#include <algorithm>
#include <limits>

#include "planner/tuning_table.h"

namespace tutti::planner {
namespace {

/// Beyond it two shots win: one shot makes every rank read every rank's whole message. With more
/// ranks than CPUs that is weighed against one more round of switches.
std::size_t plain_packets(int rank_count) {
  return rank_count <= 4 ? 16384
         : rank_count <= 8
             ? 8192
             : std::min<std::size_t>(4096, 65536 / static_cast<std::size_t>(rank_count));
}

/// A rooted packet lets the root, or those who give, run ahead; a plan joins all ranks. Measured
/// on 2 ranks: 2 KiB 1.3 to 2 times slower by a plan, 4 KiB 1.2 times faster (a gather 1.3 times
/// slower), 16 KiB 2 to 4.5 times.
std::size_t mapped_packets(Collective collective) {
  if (collective == Collective::kGather) return 4096;
  return has_root(collective) ? 2048 : 1024;
}

std::string_view large(Collective collective, int n, bool mapped) {
  switch (collective) {
    // Between two ranks one shot moves as much as two do, with half the waits. Mapped, two shots
    // move less.
    case Collective::kAllReduce: return n == 1 || (n == 2 && !mapped) ? "one_shot" : "two_shot";
    case Collective::kBroadcast: return n <= 2 || !mapped ? "direct" : "two_shot";
    // With slots two shots between two ranks send half as much again. Measured: 256 KiB 34 us and
    // 30, 16 MiB 3.3 ms and 2.9. Mapped, both share the arithmetic.
    case Collective::kReduce: return n == 1 || (n == 2 && !mapped) ? "direct" : "two_shot";
    case Collective::kReduceScatter:
    case Collective::kAllGather:
    case Collective::kGather:
    case Collective::kScatter:
    case Collective::kAllToAll: break;
  }
  return "direct";
}

}  // namespace

std::vector<Range> built_in_ranges(Collective collective, bool mapped, int rank_count,
                                   int usable_cpus) {
  (void)usable_cpus;
  const std::string name(large(collective, rank_count, mapped));
  const std::size_t packets = mapped
                                  ? std::min(mapped_packets(collective), plain_packets(rank_count))
                                  : plain_packets(rank_count);
  return {{packets, {{std::string(kPacketWay), 1, 0}, {name, 1, 0}}},
          {std::numeric_limits<std::size_t>::max(), {{name, 1, 0}}}};
}

}  // namespace tutti::planner
