// File: bootstrap/limits.h: what every rendezvous checks before it does anything.
#pragma once
#include <unistd.h>

#include <array>
#include <cstddef>
#include <string>
#include <string_view>
#include <system_error>

#include "tutti/result.h"

namespace tutti::bootstrap {

inline constexpr std::size_t kMostKeyBytes = 256;
inline constexpr std::size_t kMostValueBytes = std::size_t{16} << 20;
/// Length of an error's text, as it travels to other ranks.
inline constexpr std::size_t kMostErrorBytes = 4096;

inline Status check_sizes(std::string_view key, std::size_t value_bytes = 0) {
  if (key.empty() || key.size() > kMostKeyBytes) {
    return Error{Code::kInvalidArgument, "rendezvous: a key of " + std::to_string(key.size()) +
                                             " bytes; it takes 1 to " +
                                             std::to_string(kMostKeyBytes)};
  }
  if (value_bytes > kMostValueBytes) {
    return Error{Code::kInvalidArgument,
                 "rendezvous: a value of " + std::to_string(value_bytes) + " bytes for key '" +
                     std::string(key) + "'; it takes at most " + std::to_string(kMostValueBytes)};
  }
  return ok();
}

inline Error never_came(std::string_view key) {
  return {Code::kTimeout, "rendezvous: nobody put the key '" + std::string(key) + "' in time"};
}

/// "process 4711 on node7", for messages.
inline std::string this_process_name() {
  std::array<char, 64> host{};
  ::gethostname(host.data(), host.size() - 1);
  return "process " + std::to_string(::getpid()) + " on " + host.data();
}

/// A rank below 0 is not known.
inline Error ended_while_joining(Rank rank, const std::string& process) {
  const std::string who =
      rank.value < 0 ? process : "rank " + std::to_string(rank.value) + " (" + process + ")";
  return {Code::kPeerFailed,
          "joining: " + who + " has ended before it had joined; what it printed says why", Rank{},
          rank};
}

inline Error system_error(const std::string& what, int error_number) {
  return {Code::kSystem, what + ": " + std::generic_category().message(error_number)};
}

}  // namespace tutti::bootstrap
