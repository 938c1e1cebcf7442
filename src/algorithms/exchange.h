// File: algorithms/exchange.h: one round in which every rank sends several chunks and takes
// several.
//
// Steps of a lane run in order, and with one slot per channel the second chunk can only be sent
// once the first was taken. If all ranks sent all of their chunks first, all would stand still; if
// all took a chunk after each that they send, a round of b chunks would be a chain of b messages.
// So some ranks lead: they send everything first, and take then. The others take everything first.
// However many chunks a round has, its chain is of two messages at most, and with enough slots the
// chunks of a rank travel one behind the other. The price is paid by long messages: a rank sends
// and takes by turns.
#pragma once
#include <span>
#include <vector>

#include "plan/builder.h"

namespace tutti {

/// A step of a round.
struct Move {
  std::uint32_t chunk = 0;
  std::vector<plan::Location> sources;
  std::vector<plan::Location> targets;
};

/// Adds the steps of one round. `leads` has to differ between ranks where one sends several chunks
/// to the other (along a ring of an odd number of ranks: but for one pair). A rank that sends at
/// most one chunk to each peer cannot get stuck, and always leads.
void exchange(plan::Builder& plan, bool leads, std::span<const Move> sends,
              std::span<const Move> takes);

/// Whether `rank` leads, where each rank sends to the rank at distance `jump` in one direction: it
/// does at an even place of its ring of such ranks.
bool leads(int rank, int jump, int n);

}  // namespace tutti
