// File: tutti/settings.h: every knob of the library, in one value that is read once.
#pragma once
#include <chrono>
#include <cstddef>
#include <string>

#include "tutti/export.h"
#include "tutti/result.h"

namespace tutti {

/// Each field can be set by the environment variable named beside it. Programs that set fields
/// themselves start from `Settings::from_environment()` or from `Settings{}`.
struct TUTTI_API Settings {
  std::chrono::milliseconds timeout{60'000};     // TUTTI_TIMEOUT_MS: the deadline of every wait.
  Contract contract = Contract::kDeterministic;  // TUTTI_CONTRACT: deterministic or relaxed.
  /// TUTTI_ALGORITHM: force one, "direct" or "all_reduce=ring,broadcast=binomial"; or forbid one,
  /// "^ring", "all_reduce=^packet".
  std::string algorithm;
  std::string transport;       // TUTTI_TRANSPORT: force one, "shared_memory".
  std::size_t slot_bytes = 0;  // TUTTI_SLOT_BYTES: size of a channel slot; 0 chooses by rank count.
  int slot_count = 0;          // TUTTI_SLOT_COUNT: slots per channel; 0 chooses.
  int lanes = 0;               // TUTTI_LANES: parallel shares of a collective; 0 chooses.
  int group_size = 0;  // TUTTI_GROUP_SIZE: ranks in a row that are near each other; 0 chooses.
  int spin = -1;       // TUTTI_SPIN: pauses before a waiting rank yields; -1 chooses.
  /// TUTTI_TUNING: the file of tables that `tutti tune` wrote; "off" for none; empty for the usual
  /// place, if there is one. Rank 0's is what all ranks use.
  std::string tuning;
  std::string net_interfaces;  // TUTTI_NET_INTERFACES: "eth0,ib*", "^docker0"; empty chooses.
  std::string log = "warn";    // TUTTI_LOG: trace, debug, info, warn, error or off.

  /// Reads the environment. An unknown value is an error that names the variable and what it takes.
  static Result<Settings> from_environment();
  /// One "name = value" a line, with the source of each value.
  std::string to_string() const;
};

}  // namespace tutti
