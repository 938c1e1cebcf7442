// File: support/net/networks.h: which transports need not be tried in full.
//
// All transports between hosts carry the same frames of the same wire (transport/net); what differs
// is how. So the first of them is tried in full, and of large products of cases a share with each
// of the others, which takes tens of milliseconds to open.
#pragma once
#include <algorithm>

#include "support/transports.h"
#include "transport/transport.h"

namespace tutti::test {

/// Whether it joins hosts, and is not the first that does.
inline bool another_network(const Transport& transport) {
  Peer here = this_process(), there = here;
  there.host[0] = ~here.host[0];
  there.process[0] = ~here.process[0];
  const auto all = transports();
  const auto first = std::find_if(all.begin(), all.end(),
                                  [&](const Transport* one) { return one->reach(here, there); });
  return first != all.end() && *first != &transport && transport.reach(here, there);
}

/// One in so many of the sampled cases runs with that transport. If only one transport is tried,
/// the environment sets the share.
inline unsigned share_with(const Transport& transport, unsigned one_in = 8) {
  const bool in_full = transport_chosen() != nullptr || !another_network(transport);
  return share_here() * (in_full ? 1 : one_in);
}

}  // namespace tutti::test
