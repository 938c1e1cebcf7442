#include "exec/recovery_board.h"

#include <algorithm>

namespace tutti::exec {

RecoveryBoard::RecoveryBoard(HostExecutor& executor)
    : executor_(executor),
      region_(executor.team().region),
      link_(executor.team().remote_link),
      seen_(static_cast<std::size_t>(executor.team().ranks)) {
  executor_.claim_link();
}

RecoveryBoard::~RecoveryBoard() { executor_.free_link(); }

void RecoveryBoard::show(const Words& words) noexcept {
  const Team& team = executor_.team();
  Note& note = region_.board(team.me);
  // relaxed: only this rank writes it.
  const std::uint64_t version = note.version.load(std::memory_order_relaxed) + 1;
  // relaxed, then a release fence: a reader that sees any of the new words sees the new version in
  // the first one, and knows that it is not of one writing.
  note.words[0].store(version, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_release);
  for (std::size_t i = 0; i < words.size(); ++i)
    note.words[i + 1].store(words[i], std::memory_order_relaxed);
  // release: a reader that sees the version sees the words.
  note.version.store(version, std::memory_order_release);
  for (int rank = 0; rank < team.ranks; ++rank) {
    if (rank != team.me) notify(region_.doorbell(rank), team.fence);
  }
  try {
    if (link_ != nullptr) link_->flush();
  } catch (const std::exception&) {  // No memory now; the next look sends it.
  }
}

bool RecoveryBoard::look(int rank) {
  Seen& seen = seen_[static_cast<std::size_t>(rank)];
  const Note& note = region_.board(rank);
  if (!image_.copy(note, seen.version)) return false;
  // relaxed: after the acquire fence of `copy`; pairs with the fence in `show`.
  if (note.words[0].load(std::memory_order_relaxed) != image_.version) return false;
  seen.version = image_.version;
  std::copy(image_.words.begin() + 1, image_.words.end(), seen.words.begin());
  return true;
}

void RecoveryBoard::flush(std::chrono::milliseconds longest) {
  if (link_ == nullptr) return;
  const auto end = std::chrono::steady_clock::now() + longest;
  while (link_->pending()) {
    const auto now = std::chrono::steady_clock::now();
    if (now >= end) return;
    if (!link_->progress()) link_->sleep(end - now);
  }
}

}  // namespace tutti::exec
