// File: support/transports.h: the transports that conformance is tried on, and how much of it.
//
// Here they are those that join ranks of this machine. Where there are others (a virtual machine
// with RDMA devices) and everything is slow, the environment says which, and how little will do:
//   TUTTI_TEST_TRANSPORT=verbs     this one alone
//   TUTTI_TEST_MOST_RANKS=3        no more ranks than that
//   TUTTI_TEST_ONE_IN=40           of cases that are sampled
#pragma once
#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "support/sample.h"
#include "transport/transport.h"

namespace tutti::test {

inline unsigned number_from(const char* variable, unsigned otherwise) {
  const char* const text = std::getenv(variable);
  const std::string_view digits = text == nullptr ? "" : text;
  unsigned value = otherwise;
  std::from_chars(digits.data(), digits.data() + digits.size(), value);
  return value;
}

/// Null: all are tried.
inline const char* transport_chosen() { return std::getenv("TUTTI_TEST_TRANSPORT"); }

inline std::vector<const Transport*> transports_here() {
  const char* const only = transport_chosen();
  std::vector<const Transport*> here;
  for (const Transport* transport : transports()) {
    const bool joins = transport->reach(this_process(), this_process());
    if (joins && (only == nullptr || transport->name == only)) here.push_back(transport);
  }
  return here;
}

inline bool too_many(int ranks) {
  static const unsigned most = number_from("TUTTI_TEST_MOST_RANKS", 4096);
  return static_cast<unsigned>(ranks) > most;
}

/// One in so many of the sampled cases runs.
inline unsigned share_here() { return share() * std::max(1U, number_from("TUTTI_TEST_ONE_IN", 1)); }

}  // namespace tutti::test
