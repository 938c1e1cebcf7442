// Messages that wait: whether their peers live, and whether they are late.
#include <algorithm>
#include <optional>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "exec/calls/agreement.h"
#include "exec/messages.h"

namespace tutti::exec {

std::optional<Error> Messages::check_health(std::chrono::steady_clock::time_point now,
                                            std::chrono::milliseconds timeout) {
  for (int rank = 0; rank < static_cast<int>(peers_.size()); ++rank) {
    Peer& peer = peers_[static_cast<std::size_t>(rank)];
    for (Queue* queue : {&peer.receives, &peer.sends}) {
      // A message that moves is not late, however long it takes in all.
      if (std::exchange(queue->moved, false)) queue->since = now;
      if (queue->first == nullptr) continue;
      const Message& message = *queue->first;
      // The data that it sent before it ended is there: one more look.
      const Presence there = endpoint_.presence(rank);
      if (there.state != Presence::State::kHere && !poll())
        return failure(message, Code::kPeerFailed, endpoint_.why_gone(rank, there));
      if (const Message* one = late_in(*queue, now, timeout)) return late(*one, rank, timeout);
    }
  }
  return check_health_any(now, timeout);
}

/// Since when the first message of a queue, or a receive behind it, has not gone on.
std::chrono::steady_clock::time_point Messages::since(const Queue& queue, const Message& message) {
  const bool begun = message.sends || message.stage != Message::Stage::kHeader;
  return std::max(message.batch->start, begun ? queue.since : message.since);
}

/// The first message of a queue that is late; null: none is. A receive waits for its tag alone:
/// messages with other tags do not make its time longer.
const Message* Messages::late_in(Queue& queue, std::chrono::steady_clock::time_point now,
                                 std::chrono::milliseconds timeout) {
  const auto first_of_tag = [&](const Message& message) {
    const Message* at = queue.first;
    while (at->tag != message.tag) at = at->next;
    return at == &message;
  };
  const Message* before = nullptr;
  for (Message* at = queue.first; at != nullptr; before = at, at = at->next) {
    if (std::exchange(at->next_of_tag, false)) at->since = now;
    if (before != nullptr && (at->sends || at->tag == before->tag)) continue;
    if (now - since(queue, *at) > timeout && first_of_tag(*at)) return at;
  }
  return nullptr;
}

/// "; it has sent messages with tags 5, 9, which no receive asks for": for the error of a receive.
std::string Messages::not_asked_for(int rank) {
  constexpr std::size_t kMost = 4;
  Peer& peer = peers_[static_cast<std::size_t>(rank)];
  std::vector<int> tags;
  for (const Unexpected& one : peer.unexpected) {
    if (std::ranges::find(tags, one.message.tag) == tags.end()) tags.push_back(one.message.tag);
  }
  std::string text;
  if (!tags.empty()) {
    const bool more = tags.size() > kMost;
    tags.resize(std::min(tags.size(), kMost));
    text =
        fmt::format("; rank {} has sent messages with {} {}{}, which no receive asks for", rank,
                    tags.size() == 1 ? "tag" : "tags", fmt::join(tags, ", "), more ? ", ..." : "");
  }
  const bool begun =
      peer.receives.first != nullptr && peer.receives.first->stage != Message::Stage::kHeader;
  if (begun || !peer.inbox.has_slot()) return text;
  return text + fmt::format(
                    "; its next message has tag {}, and this rank keeps no more than {} "
                    "bytes that no receive asks for (TUTTI_UNEXPECTED_BYTES)",
                    next_tag(peer.inbox), most_unexpected_);
}

/// The error of a message to or from a rank at its deadline. If that rank waits for another one,
/// that one is to blame, as all ranks then say.
Error Messages::late(const Message& message, int rank, std::chrono::milliseconds timeout) {
  const int blamed = follow_waits(region_, me_, rank);
  const std::string between = blamed == rank ? "" : fmt::format("rank {}, which waits for ", rank);
  Error error =
      failure(message, Code::kTimeout,
              fmt::format("waited {} ms for {}rank {}, {}; TUTTI_TIMEOUT_MS sets the limit",
                          timeout.count(), between, blamed,
                          describe_latest(endpoint_, Rank{me_}, blamed, "collective call")) +
                  (message.sends ? "" : not_asked_for(rank)));
  error.peer = Rank{blamed};
  return error;
}

/// Checks a receive from any rank: an error if a rank that is needed has ended, or all have, or it
/// took too long.
std::optional<Error> Messages::check_health_any(std::chrono::steady_clock::time_point now,
                                                std::chrono::milliseconds timeout) {
  if (any_.first == nullptr) return std::nullopt;
  const Message& message = *any_.first;
  bool alive = false;
  std::optional<std::pair<int, Presence>> first_gone;
  for (int rank = 0; rank < static_cast<int>(peers_.size()); ++rank) {
    if (rank == me_) continue;
    const Presence there = endpoint_.presence(rank);
    const bool ended = there.state != Presence::State::kHere;
    alive = alive || !ended;
    if (ended && !first_gone) first_gone.emplace(rank, there);
    // relaxed: it orders nothing; a later look sees what a thread has just said.
    const bool needed =
        message.needed != nullptr && message.needed[rank].load(std::memory_order_relaxed);
    if (ended && needed && !poll()) {
      Error error = failure(message, Code::kPeerFailed, endpoint_.why_gone(rank, there));
      error.peer = Rank{rank};
      return error;
    }
    if (any_.first != &message) return std::nullopt;
  }
  if (!alive && !poll())
    return failure(message, Code::kPeerFailed, "all other ranks have ended or left");
  const bool is_late = !message.patient && now - message.batch->start > timeout;
  if (any_.first != &message || !is_late) return std::nullopt;
  // It may be the one that was to send.
  const std::string gone =
      first_gone ? endpoint_.why_gone(first_gone->first, first_gone->second) + "; " : "";
  std::string others;
  for (int rank = 0; rank < static_cast<int>(peers_.size()) && others.empty(); ++rank) {
    if (rank != me_) others = not_asked_for(rank);
  }
  Error error = failure(message, Code::kTimeout,
                        fmt::format("waited {} ms, and no rank sent; {}TUTTI_TIMEOUT_MS sets the "
                                    "limit{}",
                                    timeout.count(), gone, others));
  if (first_gone) error.peer = Rank{first_gone->first};
  return error;
}

std::optional<std::pair<int, std::chrono::steady_clock::time_point>> Messages::longest_wait()
    const {
  std::optional<std::pair<int, std::chrono::steady_clock::time_point>> longest;
  for (int rank = 0; rank < static_cast<int>(peers_.size()); ++rank) {
    const Peer& peer = peers_[static_cast<std::size_t>(rank)];
    for (const Queue* queue : {&peer.receives, &peer.sends}) {
      if (queue->first == nullptr) continue;
      const auto start = since(*queue, *queue->first);
      if (!longest || start < longest->second) longest.emplace(rank, start);
    }
  }
  return longest;
}

bool Messages::waits_for(int peer) const {
  return peers_[static_cast<std::size_t>(peer)].front() != nullptr;
}

Error Messages::stuck(int peer, const std::string& why) const {
  return failure(*peers_[static_cast<std::size_t>(peer)].front(), Code::kMismatch, why);
}

}  // namespace tutti::exec
