// The all-gather of set-up, over any rendezvous.
//
// Every rank puts what it has under "<phase>/<rank>". Rank 0 gets them all, checks that they go
// together, and puts the whole table under "<phase>/all", which is what the others get: 2n requests
// instead of n². A rank that finds a mismatch, or that a rank is missing at the deadline, tells all
// ranks (Rendezvous::fail), since none could go on. After kJoinPatience a line of the log names the
// ranks that are missing.
//
//   contribution   magic u32 · rank count u32 · nonce u64 · pid i64 · host (64) · the bytes
//   table          magic u32 · rank count u32 · per rank: nonce u64 · length u64 · the bytes
//
// Numbers are in host order: a job runs on one kind of machine. Nonces tell two processes apart
// that claim one rank: the table holds the nonce of the one that was heard.
#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>

#include "base/log.h"
#include "base/long_wait.h"
#include "bootstrap/limits.h"
#include "tutti/rendezvous.h"

namespace tutti {
namespace {

using std::chrono::steady_clock;

constexpr std::uint32_t kContribution = 0x31637474, kTable = 0x31747474;
constexpr int kMostExchangeRanks = 1 << 16;
constexpr std::size_t kMostNamed = 8;  // Missing ranks in a message; more are only counted.
// How long a rank that has given up goes on to find out which ranks are missing.
constexpr std::chrono::seconds kSearchTime{1};
// How long rank 0 has at least from the moment that all have come.
constexpr std::chrono::seconds kHandingOutTime{2};

struct Head {
  std::uint32_t magic = kContribution;
  std::uint32_t rank_count = 0;
  std::uint64_t nonce = 0;
  std::int64_t pid = 0;
  std::array<char, 64> host{};

  std::string who() const {
    return "process " + std::to_string(pid) + " on " +
           std::string(host.data(), strnlen(host.data(), host.size()));
  }
};

struct TableHead {
  std::uint32_t magic = kTable;
  std::uint32_t rank_count = 0;
};

struct TableEntry {
  std::uint64_t nonce = 0;
  std::uint64_t length = 0;
};

template <class Plain>
void append(Bytes& to, const Plain& value) {
  const auto bytes = std::as_bytes(std::span(&value, 1));
  to.insert(to.end(), bytes.begin(), bytes.end());
}

/// Takes a value off the front; false if there is not enough.
template <class Plain>
bool take(std::span<const std::byte>& from, Plain& value) {
  if (from.size() < sizeof(value)) return false;
  std::memcpy(&value, from.data(), sizeof(value));
  from = from.subspan(sizeof(value));
  return true;
}

std::string seconds_since(steady_clock::time_point start) {
  const std::chrono::duration<double> span = steady_clock::now() - start;
  return fmt::format("{:.1f} s", span.count());
}

/// "rank 3", "ranks 2 and 3", "ranks 1, 2, 3 and 5 more".
std::string name_ranks(const std::vector<int>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  const std::size_t named = std::min(ranks.size(), kMostNamed);
  for (std::size_t i = 0; i < named; ++i) {
    if (i > 0) text += i + 1 == ranks.size() ? " and " : ", ";
    text += std::to_string(ranks[i]);
  }
  if (ranks.size() > named) text += " and " + std::to_string(ranks.size() - named) + " more";
  return text;
}

/// One exchange of one rank.
class Exchange {
 public:
  Exchange(Rendezvous& rendezvous, Rank me, int rank_count, std::string_view phase,
           Deadline deadline)
      : rendezvous_(rendezvous),
        me_(me.value),
        rank_count_(rank_count),
        phase_(phase),
        deadline_(deadline) {
    const auto slash = phase_.rfind('/');
    const bool named = slash != std::string::npos && slash != 0;
    const std::string step = named ? phase_.substr(slash + 1) : "";
    title_ = named ? "joining communicator '" + phase_.substr(0, slash) + "'"
                   : "exchange '" + phase_ + "'";
    // A rank that has not made the first step has not come at all, so errors do not name that step.
    step_ = step.empty() || step == "hello" ? "" : " to the step '" + step + "'";
  }

  Result<std::vector<Bytes>> run(std::span<const std::byte> mine);

 private:
  std::string key(int rank) const { return phase_ + "/" + std::to_string(rank); }
  Error error(Code code, const std::string& what, int peer = -1) const {
    return {code, title_ + ": " + what, Rank{me_}, Rank{peer}};
  }
  /// Tells all ranks, since none can go on. Returns the error that all get: the first one told.
  Error tell_all(Error told) {
    if (Status sent = rendezvous_.fail(told); !sent) {
      told.what += " (the others were not told)";
      return told;
    }
    return failure().value_or(std::move(told));
  }
  /// The error that a rank has told to all. Call it after `announce`: then only such an error keeps
  /// this rank from reading what it has put there itself.
  std::optional<Error> failure() {
    auto mine = rendezvous_.get(key(me_), Deadline{steady_clock::now()});
    return mine ? std::nullopt : std::optional(std::move(mine.error()));
  }
  Error miscount(int rank, std::uint32_t count) {
    return tell_all(error(
        Code::kMismatch,
        fmt::format("rank {} counts {} ranks, rank {} counts {}", rank, count, me_, rank_count_),
        rank));
  }
  /// The error of a rank that two processes claim; `other` said so first.
  Error claimed_by(const Head& other) {
    return tell_all(error(Code::kMismatch,
                          head_.who() + " says it is rank " + std::to_string(me_) + ", but " +
                              other.who() +
                              " has said so before; give every process a rank of "
                              "its own, and every run a job name or unique id of its own",
                          me_));
  }
  /// Fails if a second process has claimed this rank, in the same instant. Other ranks read that in
  /// the table of rank 0; rank 0 calls this.
  Status sole();
  Status announce(std::span<const std::byte> mine);
  /// Rank 0: gets every rank's bytes and hands out the table.
  Result<std::vector<Bytes>> collect(std::span<const std::byte> mine);
  Result<std::vector<Bytes>> read_table(std::span<const std::byte> table);
  /// The value of `key`, which rank `whom` puts; empty at the deadline. If it takes long, the log
  /// names the missing ranks.
  Result<std::optional<Bytes>> wait(const std::string& key, int whom);
  Result<std::optional<Bytes>> wait_until(const std::string& key, Deadline deadline);
  struct Missing {
    std::vector<int> ranks;
    int searched = 0;  // Only ranks below this one were looked for.
  };
  /// The ranks from `first` on that have not come yet; an error if the rendezvous has failed.
  Result<Missing> find_missing(int first);
  /// "rank 2 of 3 has not come"; `missing` is not empty.
  std::string describe(const Missing& missing) const;
  void log_missing(int whom);
  /// After the deadline: the error that all ranks get. `awaited` is the rank that was waited for.
  Error too_late(const Missing& found, int awaited);

  Rendezvous& rendezvous_;
  const int me_, rank_count_;
  const std::string phase_;
  std::string title_, step_;  // For messages.
  const Deadline deadline_;
  bool logged_ = false;
  const steady_clock::time_point start_ = steady_clock::now();
  Head head_;
};

Status Exchange::announce(std::span<const std::byte> mine) {
  head_.rank_count = static_cast<std::uint32_t>(rank_count_);
  head_.pid = getpid();
  if (getrandom(&head_.nonce, sizeof(head_.nonce), 0) != sizeof(head_.nonce))
    return bootstrap::system_error(title_ + ": random bytes", errno);
  gethostname(head_.host.data(), head_.host.size() - 1);  // For messages; empty is fine.
  // A first look, without waiting, at whether somebody has this rank already.
  const auto taken = rendezvous_.get(key(me_), Deadline{steady_clock::now()});
  if (!taken && taken.error().code != Code::kTimeout) return taken.error();
  Head other;
  std::span<const std::byte> rest;
  if (taken) rest = *taken;
  if (take(rest, other)) return claimed_by(other);
  Bytes value;
  append(value, head_);
  value.insert(value.end(), mine.begin(), mine.end());
  TUTTI_RETURN_IF_ERROR(rendezvous_.put(key(me_), value));
  return me_ == 0 ? sole() : ok();
}

Status Exchange::sole() {
  TUTTI_TRY(const auto value, rendezvous_.get(key(me_), Deadline{steady_clock::now()}));
  Head other;
  std::span<const std::byte> rest(value);
  if (take(rest, other) && other.nonce != head_.nonce) return claimed_by(other);
  return ok();
}

Result<std::vector<Bytes>> Exchange::collect(std::span<const std::byte> mine) {
  std::vector<Bytes> all(static_cast<std::size_t>(rank_count_));
  all[0].assign(mine.begin(), mine.end());
  Bytes table;
  append(table, TableHead{kTable, head_.rank_count});
  append(table, TableEntry{head_.nonce, mine.size()});
  table.insert(table.end(), mine.begin(), mine.end());
  for (int rank = 1; rank < rank_count_; ++rank) {
    TUTTI_TRY(const auto value, wait(key(rank), rank));
    if (!value) {
      TUTTI_RETURN_IF_ERROR(sole());
      TUTTI_TRY(const auto found, find_missing(rank));
      return too_late(found, rank);
    }
    std::span<const std::byte> rest(*value);
    Head theirs;
    if (!take(rest, theirs) || theirs.magic != kContribution) {
      return tell_all(
          error(Code::kMismatch, fmt::format("rank {} uses another version of Tutti", rank), rank));
    }
    if (theirs.rank_count != head_.rank_count) return miscount(rank, theirs.rank_count);
    if (table.size() + sizeof(TableEntry) + rest.size() > bootstrap::kMostValueBytes) {
      return tell_all(error(Code::kInvalidArgument, "the ranks together give more than the " +
                                                        std::to_string(bootstrap::kMostValueBytes) +
                                                        " bytes that an exchange takes"));
    }
    append(table, TableEntry{theirs.nonce, rest.size()});
    table.insert(table.end(), rest.begin(), rest.end());
    all[static_cast<std::size_t>(rank)].assign(rest.begin(), rest.end());
  }
  TUTTI_RETURN_IF_ERROR(sole());
  TUTTI_RETURN_IF_ERROR(rendezvous_.put(phase_ + "/all", table));
  return all;
}

Result<std::vector<Bytes>> Exchange::read_table(std::span<const std::byte> table) {
  const auto malformed = [this] {
    return error(Code::kMismatch, "rank 0 uses another version of Tutti", 0);
  };
  TableHead head;
  if (!take(table, head) || head.magic != kTable) return malformed();
  if (head.rank_count != head_.rank_count) return miscount(0, head.rank_count);
  std::vector<Bytes> all(static_cast<std::size_t>(rank_count_));
  for (int rank = 0; rank < rank_count_; ++rank) {
    TableEntry entry;
    if (!take(table, entry) || entry.length > table.size()) return malformed();
    if (rank == me_ && entry.nonce != head_.nonce) {
      return tell_all(error(
          Code::kMismatch,
          "two processes say that they are rank " + std::to_string(me_) + "; one is " + head_.who(),
          me_));
    }
    const auto bytes = table.first(entry.length);
    all[static_cast<std::size_t>(rank)].assign(bytes.begin(), bytes.end());
    table = table.subspan(entry.length);
  }
  return all;
}

Result<std::optional<Bytes>> Exchange::wait_until(const std::string& key, Deadline deadline) {
  auto value = rendezvous_.get(key, deadline);
  if (value) return std::optional(*std::move(value));
  if (value.error().code != Code::kTimeout) return std::move(value.error());
  // A rank's verdict may be a timeout, too.
  if (auto told = failure()) return *std::move(told);
  return std::optional<Bytes>{};
}

Result<std::optional<Bytes>> Exchange::wait(const std::string& key, int whom) {
  const Deadline patience{start_ + kJoinPatience};
  if (!logged_ && patience.at < deadline_.at) {
    TUTTI_TRY(auto value, wait_until(key, patience));
    if (value) return value;
    if (me_ == 0) TUTTI_RETURN_IF_ERROR(sole());
    logged_ = true;
    log_missing(whom);
  }
  return wait_until(key, deadline_);
}

Result<Exchange::Missing> Exchange::find_missing(int first) {
  const Deadline search = Deadline::after(kSearchTime);
  Missing missing;
  for (missing.searched = first; missing.searched < rank_count_ && !search.passed();
       ++missing.searched) {
    TUTTI_TRY(const auto value, wait_until(key(missing.searched), Deadline{steady_clock::now()}));
    if (!value) missing.ranks.push_back(missing.searched);
  }
  return missing;
}

std::string Exchange::describe(const Missing& missing) const {
  std::string text = name_ranks(missing.ranks) + " of " + std::to_string(rank_count_) +
                     (missing.ranks.size() == 1 ? " has" : " have") + " not come" + step_;
  if (missing.searched < rank_count_)
    text += " (not looked for: ranks " + std::to_string(missing.searched) + " and up)";
  return text;
}

/// Rank 0 warns about all missing ranks. Other ranks warn only about rank 0, for which they wait.
void Exchange::log_missing(int whom) {
  const auto level = [&](const std::vector<int>& ranks) {
    return me_ == 0 || ranks.front() == 0 ? log::Level::kWarn : log::Level::kInfo;
  };
  const auto missing = find_missing(whom);
  if (!missing || missing->ranks.empty() || !log::enabled(log::Part::kJoin, level(missing->ranks)))
    return;
  log::write(log::Part::kJoin, level(missing->ranks),
             fmt::format("{}: rank {} has waited {}: {}; it goes on waiting", title_, me_,
                         seconds_since(start_), describe(*missing)));
}

Error Exchange::too_late(const Missing& found, int awaited) {
  const std::string waited = " within " + seconds_since(start_) + " (TUTTI_TIMEOUT_MS)";
  if (!found.ranks.empty())
    return tell_all(error(Code::kTimeout, describe(found) + waited, found.ranks.front()));
  if (me_ != 0 && found.searched < rank_count_)
    return tell_all(
        error(Code::kTimeout, fmt::format("ranks below {0} have come{1}{2}; ranks from {0} "
                                          "on were not looked for",
                                          found.searched, step_, waited)));
  const std::string late = me_ == 0 ? "rank " + std::to_string(awaited) + " has come too late"
                                    : "rank 0 has not handed out what all ranks gave";
  return tell_all(error(Code::kTimeout, late + step_ + waited, awaited));
}

Result<std::vector<Bytes>> Exchange::run(std::span<const std::byte> mine) {
  TUTTI_RETURN_IF_ERROR(announce(mine));
  if (me_ == 0) return collect(mine);
  const std::string all = phase_ + "/all";
  TUTTI_TRY(auto table, wait(all, 0));
  if (!table) {
    TUTTI_TRY(const auto found, find_missing(0));
    // If all have come, the last one came just now, and rank 0 has yet to see it.
    if (found.ranks.empty() && found.searched == rank_count_) {
      TUTTI_TRY(table, wait_until(all, Deadline::after(kHandingOutTime)));
    }
    if (!table) return too_late(found, 0);
  }
  return read_table(*table);
}

}  // namespace

Result<std::vector<Bytes>> exchange(Rendezvous& rendezvous, Rank me, int rank_count,
                                    std::string_view phase, std::span<const std::byte> mine,
                                    Deadline deadline) {
  constexpr std::size_t kMostPhaseBytes = bootstrap::kMostKeyBytes - 16;
  constexpr std::size_t kMostBytes = bootstrap::kMostValueBytes - sizeof(Head) - sizeof(TableHead);
  if (rank_count < 1 || rank_count > kMostExchangeRanks || me.value < 0 || me.value >= rank_count) {
    return Error{Code::kInvalidArgument,
                 "exchange: rank " + std::to_string(me.value) + " of " +
                     std::to_string(rank_count) +
                     " ranks: a rank is in 0 to count - 1, a count in 1 to " +
                     std::to_string(kMostExchangeRanks),
                 me};
  }
  if (phase.empty() || phase.size() > kMostPhaseBytes || mine.size() > kMostBytes) {
    return Error{Code::kInvalidArgument,
                 "exchange: a phase's name of " + std::to_string(phase.size()) + " bytes with " +
                     std::to_string(mine.size()) + " bytes of data: it takes 1 to " +
                     std::to_string(kMostPhaseBytes) + " and at most " + std::to_string(kMostBytes),
                 me};
  }
  return Exchange(rendezvous, me, rank_count, phase, deadline).run(mine);
}

}  // namespace tutti
