// File: transport/verbs/connect.h: how ranks come to have queue pairs with each other.
//
// Everybody chooses ports, and says how many; all use as many as the rank with the fewest. For each
// of them, one rail after the other, everybody opens the port, registers memory and makes queue
// pairs; says where all that is (endpoint_info.h), or why it could not; connects; and writes to
// each peer once, so that a network that loses packets of RDMA is an error of joining and not of
// the first call. After each of these steps all ranks know which rank failed, and do without that
// rail; if none is left all fail with the same words. What is lost later is made anew by two ranks
// alone (renewal.h).
#pragma once
#include <memory>

#include "transport/net/endpoint.h"
#include "transport/net/rails.h"
#include "transport/verbs/network.h"

namespace tutti::verbs {

/// Queue pairs with each peer over each rail: payloads are spread over them, by where they belong.
inline constexpr std::size_t kPairs = 2;

struct Options {
  std::size_t pairs = kPairs;
  std::size_t spread_bytes = net::Rails::kSpreadBytes;  // For payloads that are spread over rails.
  RenewalTimes renewal{};
};

/// Collective over all of to.opening.peers. Memory of `to` outlives the network. `ports`: of this
/// machine.
Result<std::unique_ptr<VerbsNetwork>> connect(const net::Joining& to, std::span<const Port> ports,
                                              const Options& options = {});

/// As Transport::cards; of those that it would use others may have fewer, and then so has it.
Result<std::vector<std::string>> try_cards(const Opening& opening, std::span<const Port> ports);

}  // namespace tutti::verbs
