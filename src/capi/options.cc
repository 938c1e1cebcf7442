// The C API's functions with a structure of options (tutti_options.h): joining, also at a place
// that the caller names, and waiting for several works. calls.cc has the calls.
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "base/settings/settings_table.h"
#include "capi/handles.h"
#include "capi/store.h"
#include "tutti/wait.h"

using namespace tutti;         // NOLINT(google-build-using-namespace): the API has no namespace.
using namespace tutti::c_api;  // NOLINT(google-build-using-namespace)

namespace {

/// The environment's settings, and before them the program's.
Result<Settings> settings_of(const char* function, const tutti_config_t& config) {
  TUTTI_TRY(Settings settings, Settings::from_environment());
  for (const char* const* one = config.settings; one != nullptr && *one != nullptr; ++one) {
    const std::string_view text(*one);
    const auto equals = text.find('=');
    if (equals == std::string_view::npos)
      return invalid(function, "'" + shown_value(text) + "' in `settings` is not NAME=VALUE");
    TUTTI_RETURN_IF_ERROR(
        change_setting(settings, text.substr(0, equals), text.substr(equals + 1)));
  }
  return settings;
}

Status check_config(const char* function, const tutti_config_t& config) {
  const int points = (config.id != nullptr ? 1 : 0) + (config.rendezvous != nullptr ? 1 : 0) +
                     (config.store != nullptr ? 1 : 0);
  if (points > 1)
    return invalid(function, "there is more than one of `id`, `rendezvous` and `store`");
  if (config.rank_count == 0 && config.rank != 0)
    return invalid(function, "there is a `rank`, but `rank_count` is 0");
  if (config.rank_count != 0 && (config.rank < 0 || config.rank >= config.rank_count))
    return invalid(function, "`rank` is not from 0 to the rank count - 1");
  if (config.rendezvous != nullptr && *config.rendezvous == '\0')
    return invalid(function, "`rendezvous` is empty; it is host:port or a directory");
  if (config.store != nullptr && (config.store->put == nullptr || config.store->get == nullptr))
    return invalid(function, "`store` lacks `put` or `get`");
  return ok();
}

/// Joins where the launcher says, or at a place that the caller names.
Result<Communicator> join_at(const tutti_config_t& config, LaunchInfo info,
                             const Settings& settings) {
  if (config.rank_count != 0 && config.rendezvous != nullptr) {
    LaunchInfo here;
    here.job = std::move(info.job);
    here.secret = std::move(info.secret);
    info = std::move(here);
  }
  if (config.rank_count != 0) {
    info.rank = Rank{config.rank};
    info.rank_count = config.rank_count;
  }
  if (config.job != nullptr) info.job = config.job;
  if (config.rendezvous != nullptr) info.rendezvous = config.rendezvous;
  TUTTI_TRY(const auto meeting, launch_rendezvous(info, Deadline::after(settings.timeout)));
  return Communicator::create(*meeting, info.rank, info.rank_count, settings);
}

Result<Communicator> join(const char* function, const tutti_config_t& config) {
  TUTTI_RETURN_IF_ERROR(check_config(function, config));
  TUTTI_TRY(const Settings settings, settings_of(function, config));
  TUTTI_TRY(LaunchInfo info, detect_launch());
  const bool said = config.rank_count != 0;
  const Rank rank = said ? Rank{config.rank} : info.rank;
  const int ranks = said ? config.rank_count : info.rank_count;
  if (config.id != nullptr) return Communicator::create(id_of(*config.id), rank, ranks, settings);
  if (config.store == nullptr) return join_at(config, std::move(info), settings);
  CStore store(*config.store);
  return Communicator::create(store, rank, ranks, settings);
}

std::chrono::nanoseconds time_of(int timeout_ms) {
  return timeout_ms < 0 ? std::chrono::nanoseconds::max()
                        : std::chrono::nanoseconds(std::chrono::milliseconds(timeout_ms));
}

/// One that was never started for each NULL.
std::vector<Work> works_of(const tutti_work_t* works, std::size_t count) {
  std::vector<Work> all(count);
  std::transform(works, works + count, all.begin(),
                 [](tutti_work_t one) { return one != nullptr ? one->work : Work(); });
  return all;
}

}  // namespace

extern "C" {

tutti_result_t tutti_comm_init_config(tutti_comm_t* comm, const tutti_config_t* config) {
  return guard_make(__func__, comm, [&, name = __func__]() -> Result<Communicator> {
    TUTTI_TRY(const auto all, read_options(name, "config", config));
    return join(name, all);
  });
}

tutti_result_t tutti_comm_init_at(tutti_comm_t* comm, const char* rendezvous, const char* job,
                                  int rank, int rank_count) {
  return guard_make(__func__, comm, [&, name = __func__]() -> Result<Communicator> {
    // In a configuration, 0 means that the launcher says how many.
    if (rank_count == 0) return invalid(name, "`rank_count` is 0");
    tutti_config_t config = {};
    config.rendezvous = rendezvous != nullptr ? rendezvous : "";
    config.job = job;
    config.rank = rank;
    config.rank_count = rank_count;
    return join(name, config);
  });
}

tutti_result_t tutti_work_wait_all(const tutti_work_t* works, size_t count, int timeout_ms) {
  return guard(__func__, [=, name = __func__]() -> Status {
    if (works == nullptr && count > 0) return invalid(name, "`works` is NULL");
    if (std::find(works, works + count, nullptr) != works + count)
      return invalid(name, "a work is NULL");
    return wait_all(works_of(works, count), time_of(timeout_ms));
  });
}

tutti_result_t tutti_work_wait_any(const tutti_work_t* works, size_t count, int timeout_ms,
                                   size_t* index) {
  if (index != nullptr) *index = count;
  return guard(__func__, [=, name = __func__]() -> Status {
    if (index == nullptr) return invalid(name, "`index` is NULL");
    if (works == nullptr && count > 0) return invalid(name, "`works` is NULL");
    if (std::all_of(works, works + count, [](tutti_work_t one) { return one == nullptr; }))
      return invalid(name, "there is no work to wait for");
    if (in_group())  // Its messages begin at its end.
      return invalid(name, "this thread has a group open; end it first");
    std::vector<Work> all = works_of(works, count);
    TUTTI_TRY(*index, wait_any(all, time_of(timeout_ms)));
    return all[*index].wait();
  });
}

}  // extern "C"
