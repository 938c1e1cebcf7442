// File: planner/tuning_table.h: what was measured on a machine, and which way is best there.
//
// A table is a value. Its key says where it holds: the machine (topology/probe/fingerprint.h),
// or those of all hosts, the version of the library, the transport, the number of ranks, on which
// host each of them is, and the CPUs that they share. It has what a hop and a copied byte cost,
// between hosts too, and where these differ what each carries; and for each collective, with plain
// buffers and with buffers that peers can map, ranges of message sizes with the ways that were
// measured, best first. A time is that at the range's upper end; between two ends times are
// interpolated (select.cc).
//
// A file holds tables for several keys, as JSON: see tuning_text. What is read is bounded, and
// checked for everything but names: a table of another version may name ways that this one lacks.
//
// `built_in_ranges` stands for no machine: the rules that were measured on 2 CPUs
// (`docs/decisions/0012-who-chooses.md`), without times.
#pragma once
#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/link_cost.h"
#include "tutti/result.h"
#include "tutti/types.h"

namespace tutti::planner {

/// Whether copy engines can do a collective: all ranks have inputs, and nothing is reduced.
constexpr bool has_copy_engines(Collective collective) {
  return collective == Collective::kAllGather || collective == Collective::kAllToAll;
}

/// The eager path's name where algorithms have names.
inline constexpr std::string_view kEagerName = "packet";
/// That of calls over multicast memory (cuda/comm/multicast.h).
inline constexpr std::string_view kMulticastName = "nvls";
/// That of the direct plan where the devices' copy engines run it, without a kernel.
inline constexpr std::string_view kCopyEnginesName = "copy_engines";

/// Costs of a host's ranks, to estimate a plan. The defaults are of 2 cores of an AMD EPYC.
struct HostCosts {
  LinkCost link{0.18, 22};                  // From one rank to another: a slot or a signal.
  double reduce_gigabytes_per_second = 45;  // By one rank, bytes read and written.
  friend bool operator==(const HostCosts&, const HostCosts&) = default;
};

/// The machine and ranks for which a table holds.
struct TuningKey {
  std::uint64_t machine = 0;
  std::string version, transport;
  int rank_count = 0;
  int usable_cpus = 0;
  std::vector<int> hosts = {};  // By rank, as Hosts::of; empty: one host.
  friend bool operator==(const TuningKey&, const TuningKey&) = default;
};

/// The rate of one of several hosts, in each direction. It holds for the host of that name.
struct HostRate {
  std::string name;
  double gigabytes_per_second = 0;
  // NOLINTNEXTLINE(modernize-use-nullptr): not a 0.
  friend auto operator<=>(const HostRate&, const HostRate&) = default;
};

/// A way that a call can go: kEagerName or an algorithm's name; how its lanes are repeated; and how
/// long it took, 0: not measured.
struct Way {
  std::string name;
  std::uint32_t lanes = 1;
  double microseconds = 0;
  friend bool operator==(const Way&, const Way&) = default;
};

/// Messages of more bytes than the range before has, and of at most so many.
struct Range {
  std::size_t up_to = 0;
  std::vector<Way> ways;  // Best first.
  friend bool operator==(const Range&, const Range&) = default;
};

struct TuningTable {
  TuningKey key;
  HostCosts costs;
  NetworkCost network = {};          // Between hosts, the fastest of them.
  std::vector<HostRate> rates = {};  // By host, where not all are alike; else empty.
  /// By collective; of plain buffers, of buffers that all ranks can map. Ascending.
  std::array<std::array<std::vector<Range>, 2>, kCollectiveCount> ranges;
  const std::vector<Range>& of(Collective collective, bool mapped) const {
    return ranges[static_cast<std::size_t>(collective)][mapped ? 1 : 0];
  }
  std::vector<Range>& of(Collective collective, bool mapped) {
    return ranges[static_cast<std::size_t>(collective)][mapped ? 1 : 0];
  }
  friend bool operator==(const TuningTable&, const TuningTable&) = default;
};

// Bounds of what is read.
inline constexpr std::size_t kMostTuningBytes = std::size_t{4} << 20;
inline constexpr std::size_t kMostTables = 256;
inline constexpr std::size_t kMostRanges = 64;
inline constexpr std::size_t kMostWays = 64;
inline constexpr std::size_t kMostTunedHosts = 4096;

/// Tables as text, one range a line. parse_tuning makes equal tables of it.
std::string tuning_text(const std::vector<TuningTable>& tables);

/// The reverse. `where` is the file's name, for errors: one line with the place in the file.
Result<std::vector<TuningTable>> parse_tuning(std::string_view text, std::string_view where);

/// The table of that key, or null.
const TuningTable* find_table(const std::vector<TuningTable>& tables, const TuningKey& key);
/// Why there is none, in a few words: "made on another machine", "of version 0.0.9".
std::string why_no_table(const std::vector<TuningTable>& tables, const TuningKey& key);
/// Puts a table in the place of one of the same key, or adds it.
void put_table(std::vector<TuningTable>& tables, TuningTable table);

/// The rules that hold where nothing was measured, as ranges without times. Up to kBuiltInRanks
/// they come before any estimate.
std::vector<Range> built_in_ranges(Collective collective, bool mapped, int rank_count,
                                   int usable_cpus);
inline constexpr int kBuiltInRanks = 8;

/// Bytes of a block, from which ranks read each other's plain inputs where they can
/// (Request::read) instead of sending slots; SIZE_MAX: never.
std::size_t built_in_read_from_bytes(Collective collective);

/// The same for ranks on several hosts, as `hosts` says by rank: which small messages go by
/// packets. All else is estimated.
std::vector<Range> network_ranges(const std::vector<int>& hosts, const NetworkCost& cost);

}  // namespace tutti::planner
