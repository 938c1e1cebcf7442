#include "trainer/elastic.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <system_error>
#include <vector>

#include "trainer/stragglers.h"
#include "trainer/worker.h"

namespace tutti::trainer {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

// How long members look for the store of a rank that has announced itself, and may have died since.
constexpr auto kLongestLook = 10s;
constexpr std::string_view kAnnouncement = "newcomer.";
constexpr const char* kGrown = "grown";  // The name of the communicator with a new rank.

/// The place of a new rank, as it learns it.
struct Place {
  std::int32_t rank = 0, ranks = 0;
};

/// A rank that leaves a file there becomes a member, so no other user may write there.
Status check_folder(const std::string& folder) {
  struct stat facts {};
  if (::stat(folder.c_str(), &facts) != 0 || !S_ISDIR(facts.st_mode))
    return Error{Code::kInvalidArgument, "elastic: there is no folder " + folder};
  if (facts.st_uid == ::geteuid() && (facts.st_mode & (S_IWGRP | S_IWOTH)) == 0) return ok();
  return Error{Code::kInvalidArgument, "elastic: the folder " + folder +
                                           " belongs to another user, or others may write there, "
                                           "and join; take one of your own, or chmod go-w"};
}

/// A file with the id of a new rank's store; removed with the object.
class Announcement {
 public:
  Status write(const std::string& folder, const UniqueId& id) {
    std::string name;
    for (std::size_t i = id.bytes.size() - 8; i < id.bytes.size(); ++i)
      name += std::to_string(static_cast<unsigned>(id.bytes[i]));
    path_ = fs::path(folder) / (std::string(kAnnouncement) + name);
    const fs::path draft = fs::path(folder) / ("draft." + name);
    errno = 0;
    std::ofstream file(draft, std::ios::binary);
    file.write(reinterpret_cast<const char*>(id.bytes.data()),
               static_cast<std::streamsize>(id.bytes.size()));
    if (file) file.close();
    std::error_code failed(file ? 0 : errno, std::generic_category());
    if (file) fs::rename(draft, path_, failed);  // Whole, or not there.
    if (file && !failed) return ok();
    std::error_code ignored;
    fs::remove(draft, ignored);
    return Error{Code::kSystem, "can't write into the folder " + folder + ": " + failed.message()};
  }
  ~Announcement() {
    std::error_code ignored;
    if (!path_.empty()) fs::remove(path_, ignored);
  }

 private:
  fs::path path_;
};

/// The id of a rank that has announced itself, and takes it from the folder; empty: none has.
std::optional<UniqueId> take_newcomer(const std::string& folder) {
  std::error_code failed;
  for (const auto& entry : fs::directory_iterator(folder, failed)) {
    if (!entry.path().filename().string().starts_with(kAnnouncement)) continue;
    UniqueId id;
    std::ifstream file(entry.path(), std::ios::binary);
    file.read(reinterpret_cast<char*>(id.bytes.data()),
              static_cast<std::streamsize>(id.bytes.size()));
    if (fs::remove(entry.path(), failed) && file) return id;
  }
  return std::nullopt;
}

class Elastic {
 public:
  Elastic(std::optional<Communicator> comm, const Split& data, const TrainOptions& options,
          const Network& network, const ElasticOptions& elastic)
      : comm_(std::move(comm)),
        options_(options),
        elastic_(elastic),
        worker_(data, options, network),
        has_state_(comm_.has_value()) {
    worker_.keep_copies();
  }

  Result<ElasticOutcome> run(double samples) {
    const auto start = std::chrono::steady_clock::now();
    if (!comm_) TUTTI_RETURN_IF_ERROR(join());
    for (;;) {
      auto outcome = carry_on(samples, start);
      if (!outcome) {
        TUTTI_RETURN_IF_ERROR(recover(outcome.error()));
        // The members have given up what this rank had joined, and it has no weights.
        if (!has_state_ && comm_->rank_count() == 1) TUTTI_RETURN_IF_ERROR(join());
        continue;
      }
      return ElasticOutcome{*std::move(outcome), comm_->rank().value, comm_->rank_count()};
    }
  }

 private:
  /// To the end.
  Result<Outcome> carry_on(double samples, std::chrono::steady_clock::time_point start) {
    TUTTI_RETURN_IF_ERROR(synchronise());
    while (!worker_.done()) {
      if (worker_.begins_epoch()) TUTTI_RETURN_IF_ERROR(admit());
      TUTTI_TRY(const auto figures, worker_.advance());
      if (figures && comm_->rank().value == 0) {
        elastic_.progress(static_cast<int>(worker_.epochs().size()), options_.epochs, *figures);
      }
    }
    const auto end = std::chrono::steady_clock::now();
    const std::chrono::duration<double> took = end - start, together = end - since_;
    const double idle = worker_.phases().exposed_s - idle_before_;
    TUTTI_TRY(const Straggler straggler,
              find_straggler(*comm_, before_, {std::max(together.count(), 1e-9), idle}));
    TUTTI_TRY(Outcome outcome, outcome_of(worker_, samples, took.count()));
    outcome.straggler = straggler;
    return outcome;
  }

  std::string who() const { return "rank " + std::to_string(comm_->rank().value); }

  /// Goes on with the ranks that are left.
  Status recover(const Error& why) {
    if (!is_lost(why)) {
      comm_->abort(why.what);
      return Error{why.code, why.what, why.rank, why.peer};
    }
    TUTTI_TRY(auto shrunk, comm_->shrink());
    elastic_.say(who() + " of " + std::to_string(comm_->rank_count()) + " goes on as rank " +
                 std::to_string(shrunk.communicator.rank().value) + " of " +
                 std::to_string(shrunk.members.size()) + " after: " + why.what);
    comm_ = std::move(shrunk.communicator);
    return ok();
  }

  /// All ranks go back to the last turn that all have done, and those without state get it.
  Status synchronise() {
    TUTTI_RETURN_IF_ERROR(worker_.use(*comm_));
    if (!worker_.has_whole_state()) {
      return Error{Code::kInvalidArgument, "strategy " + options_.strategy.name +
                                               " loses a lost rank's state, so it can't be "
                                               "elastic; use ddp, horovod or hierarchical"};
    }
    const std::int64_t mine = has_state_ ? static_cast<std::int64_t>(worker_.turn()) : -1;
    std::vector<std::int64_t> all(static_cast<std::size_t>(comm_->rank_count()));
    TUTTI_RETURN_IF_ERROR(comm_->all_gather(&mine, all.data(), 1, DataType::kInt64));
    const auto has = [](std::int64_t turn) { return turn >= 0; };
    const auto root = std::find_if(all.begin(), all.end(), has);
    if (root == all.end())
      return Error{Code::kInternal, "all ranks that had weights are lost", comm_->rank()};
    std::int64_t least = *root;
    for (const std::int64_t turn : all) least = has(turn) ? std::min(least, turn) : least;
    if (has_state_ && !worker_.go_back(static_cast<std::uint64_t>(least))) {
      return Error{Code::kInternal, who() + " is more than one step ahead of another",
                   comm_->rank()};
    }
    if (!std::all_of(all.begin(), all.end(), has)) {
      TUTTI_RETURN_IF_ERROR(worker_.hand_over(Rank{static_cast<int>(root - all.begin())}));
      has_state_ = true;
    }
    TUTTI_TRY(before_, comm_->counters());
    since_ = std::chrono::steady_clock::now();
    idle_before_ = worker_.phases().exposed_s;
    return ok();
  }

  /// Takes in new ranks, one after the other.
  Status admit() {
    for (;;) {
      struct {
        UniqueId id;
        bool there = false;
      } newcomer;
      if (comm_->rank().value == 0) {
        const auto found = take_newcomer(elastic_.folder);
        newcomer.there = found.has_value();
        if (found) newcomer.id = *found;
      }
      TUTTI_RETURN_IF_ERROR(
          comm_->broadcast(&newcomer, &newcomer, sizeof(newcomer), DataType::kUint8, Rank{0}));
      if (!newcomer.there) return ok();
      auto grown = grow(newcomer.id);
      TUTTI_TRY(const std::uint64_t all, comm_->agree(grown ? 1 : 0));
      if (all != 1) {
        elastic_.say(who() + ": a new rank did not join" +
                     (grown ? "" : ": " + grown.error().what));
        // If a member has died, the others go on without it before they take anybody in.
        TUTTI_RETURN_IF_ERROR(comm_->barrier());
        continue;
      }
      if (comm_->rank().value == 0)
        elastic_.say("a new rank joins: " + std::to_string(grown->rank_count()) + " ranks go on");
      comm_ = *std::move(grown);
      TUTTI_RETURN_IF_ERROR(synchronise());
    }
  }

  Result<Communicator> grow(const UniqueId& id) {
    TUTTI_TRY(const auto rendezvous, unique_id_rendezvous(id, Deadline::after(kLongestLook)));
    const Place place{comm_->rank_count(), comm_->rank_count() + 1};
    if (comm_->rank().value == 0)
      TUTTI_RETURN_IF_ERROR(rendezvous->put("place", std::as_bytes(std::span(&place, 1))));
    return comm_->grow(*rendezvous, place.ranks, kGrown);
  }

  static bool is_lost(const Error& error) {
    return error.code == Code::kPeerFailed || error.code == Code::kTimeout ||
           error.code == Code::kRevoked || error.code == Code::kAborted;
  }

  /// For a new rank. If a member dies while it joins, it asks the ones that are left, once they
  /// have had time to find that out.
  Status join() {
    for (;;) {
      Status joined = join_members(Deadline::after(elastic_.settings.timeout));
      if (joined || !is_lost(joined.error()) || joined.error().code == Code::kTimeout)
        return joined;
      elastic_.say("asks again to be taken in, after: " + joined.error().what);
    }
  }

  Status join_members(Deadline deadline) {
    const Settings& settings = elastic_.settings;
    TUTTI_TRY(const UniqueId id, make_unique_id());
    TUTTI_TRY(const auto rendezvous, unique_id_rendezvous(id, deadline));
    Announcement announcement;
    TUTTI_RETURN_IF_ERROR(announcement.write(elastic_.folder, id));
    const auto told = rendezvous->get("place", deadline);
    Place place;
    if (!told || told->size() != sizeof(place)) {
      return Error{Code::kTimeout, "no rank of a training at " + elastic_.folder +
                                       " has taken this one in; new ranks are taken in before "
                                       "an epoch, within TUTTI_TIMEOUT_MS"};
    }
    std::memcpy(&place, told->data(), sizeof(place));
    TUTTI_TRY(comm_,
              Communicator::create(*rendezvous, Rank{place.rank}, place.ranks, settings, kGrown));
    elastic_.say("joined as " + who() + " of " + std::to_string(place.ranks));
    return ok();
  }

  std::optional<Communicator> comm_;
  const TrainOptions& options_;
  const ElasticOptions& elastic_;
  Worker worker_;
  bool has_state_;
  // When the ranks of now began to go on together: a straggler is one of theirs.
  Counters before_;
  std::chrono::steady_clock::time_point since_;
  double idle_before_ = 0;
};

}  // namespace

Result<ElasticOutcome> train_elastic(std::optional<Communicator> comm, const Split& data,
                                     const TrainOptions& options, const ElasticOptions& elastic) {
  TUTTI_RETURN_IF_ERROR(check_options(options));
  TUTTI_RETURN_IF_ERROR(check_folder(elastic.folder));
  TUTTI_TRY(const Network network, make_network(options.model, data.train));
  return Elastic(std::move(comm), data, options, network, elastic)
      .run(static_cast<double>(data.train.size()) * options.epochs);
}

}  // namespace tutti::trainer
