#include "virtual/recovery.h"

#include <cstdio>
#include <string>
#include <vector>

#include "virtual/calls.h"
#include "virtual/kernel/scheduler.h"

namespace tutti::virt {
namespace {

constexpr int kNumber = 77;  // The number of its call, for value_of.
constexpr std::size_t kElements = 100;

void note_error(RecoveryReport& report, const Error& error) {
  report.code = static_cast<std::int32_t>(error.code);
  report.peer = error.peer.value;
  std::snprintf(report.text, sizeof(report.text), "%s", error.what.c_str());
}

std::uint64_t bit(int rank) { return std::uint64_t{1} << rank; }

/// The flags say which ranks have agreed: each clears its own bit.
void agree_and_add(Shrunk& shrunk, int me, RecoveryReport& report) {
  const auto flags = shrunk.communicator.agree(~bit(me));
  if (!flags) return note_error(report, flags.error());
  report.agreed = ~*flags;
  std::vector<std::int32_t> numbers(kElements);
  for (std::size_t i = 0; i < kElements; ++i) numbers[i] = value_of(kNumber, me, i);
  const Status added = shrunk.communicator.all_reduce(numbers.data(), numbers.data(), kElements,
                                                      DataType::kInt32, ReduceOp::kSum);
  if (!added) return note_error(report, added.error());
  report.added = true;
  for (std::size_t i = 0; i < kElements; ++i) {
    int sum = 0;
    for (const Rank rank : shrunk.members) sum += value_of(kNumber, rank.value, i);
    report.wrong |= numbers[i] != sum;
  }
}

std::string say(int rank, const RecoveryReport& report, const char* what) {
  char text[700];
  std::snprintf(
      text, sizeof(text),
      "rank %d, recovery from %.6f to %.6f s: %s; members %llx, agreed %llx, code %d, "
      "peer %d: %s",
      rank, static_cast<double>(report.begin) / 1e9, static_cast<double>(report.end) / 1e9, what,
      static_cast<unsigned long long>(report.members),
      static_cast<unsigned long long>(report.agreed), report.code, report.peer, report.text);
  return text;
}

}  // namespace

void recover(Communicator& whole, bool failed_on_part, int me, RecoveryReport& report) {
  report.begun = true;
  report.begin = world->now;
  note("recovers", me);
  if (failed_on_part) whole.revoke("a part has failed");
  auto shrunk = whole.shrink();
  report.shrunk_at = world->now;
  if (shrunk) {
    for (const Rank rank : shrunk->members) report.members |= bit(rank.value);
    agree_and_add(*shrunk, me, report);
  } else {
    note_error(report, shrunk.error());
  }
  report.end = world->now;
  note("recovered", static_cast<std::int64_t>(report.members), report.code);
}

std::string broken_recovery() {
  const Parameters& run = world->parameters;
  // shrink takes twice the limit at most, agree as long, and the sum a call's time.
  const Time most = 6 * static_cast<Time>(run.timeout_ms) * kMilli + 7 * kSecond;
  for (int rank = 0; rank < run.ranks; ++rank) {
    const RecoveryReport& mine = world->reports[rank].recovery;
    if (!mine.begun || world->processes[rank].killed) continue;
    if (mine.end == 0) return say(rank, mine, "it has not returned");
    if (mine.end - mine.begin > most) return say(rank, mine, "it took too long");
    if (mine.shrunk_at - mine.begin > 2 * static_cast<Time>(run.timeout_ms) * kMilli + kSecond)
      return say(rank, mine, "shrink took too long");
    if (mine.wrong) return say(rank, mine, "the sum of the ranks that are left is wrong");
    if (mine.members == 0) return say(rank, mine, "it was left out, or could not shrink");
    if ((mine.members & bit(rank)) == 0) return say(rank, mine, "it is no member itself");
    if (mine.agreed != 0 && (mine.agreed & ~mine.members) != 0)
      return say(rank, mine, "a rank has agreed that is no member");
    if (mine.code != 0 && world->kills_done < 2)
      return say(rank, mine, "it failed though no other rank has died");
    for (int other = 0; other < run.ranks; ++other) {
      const RecoveryReport& theirs = world->reports[other].recovery;
      const Process& process = world->processes[other];
      if (process.killed && process.killed_at < mine.begin && (mine.members & bit(other)) != 0)
        return say(rank, mine, "a dead rank is a member");
      if (process.killed || !theirs.begun || theirs.members == 0) continue;
      if (theirs.members != mine.members) return say(rank, mine, "others have other members");
      if (theirs.agreed != mine.agreed && theirs.agreed != 0 && mine.agreed != 0)
        return say(rank, mine, "others have agreed on something else");
    }
  }
  return {};
}

}  // namespace tutti::virt
