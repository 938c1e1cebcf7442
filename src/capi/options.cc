// The C API's functions with a structure of options (tutti_options.h): joining, also at a place
// that the caller names, and waiting for several works. calls.cc has the calls.
#include <algorithm>
#include <chrono>
#include <climits>
#include <condition_variable>
#include <cstddef>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "base/settings/settings_table.h"
#include "capi/handles.h"
#include "capi/store.h"

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

std::optional<std::chrono::steady_clock::time_point> end_of(int timeout_ms) {
  if (timeout_ms < 0) return std::nullopt;
  return std::chrono::steady_clock::now() + std::chrono::milliseconds(timeout_ms);
}

/// As tutti_work_wait, until `end` if there is one.
Status wait_until(Work& work, const std::optional<std::chrono::steady_clock::time_point>& end) {
  if (!end) return work.wait();
  return work.wait(std::max(*end - std::chrono::steady_clock::now(), std::chrono::nanoseconds(0)));
}

/// What callbacks of several works tell a thread that waits for one of them.
struct FirstDone {
  std::mutex mutex;
  std::condition_variable changed;
  bool any = false;
};

void tell(FirstDone& first) {
  {
    const std::lock_guard lock(first.mutex);
    first.any = true;
  }
  first.changed.notify_all();
}

/// The place of a work that is done; `count` if none is.
std::size_t find_done(const tutti_work_t* works, std::size_t count) {
  const auto* const found = std::find_if(
      works, works + count, [](tutti_work_t one) { return one != nullptr && one->work.test(); });
  return static_cast<std::size_t>(found - works);
}

/// `place`: what `find_done` then says.
Status wait_any(const tutti_work_t* works, std::size_t count, int timeout_ms, std::size_t& place) {
  const auto end = end_of(timeout_ms);
  place = find_done(works, count);
  if (place < count) return works[place]->work.wait();
  const auto first = std::make_shared<FirstDone>();
  for (std::size_t i = 0; i < count; ++i) {
    if (works[i] == nullptr) continue;
    // Where this thread can't wait, it says why.
    Status now = works[i]->work.wait(std::chrono::seconds(0));
    if (!now && now.error().code == Code::kInvalidArgument && !works[i]->work.test()) return now;
    works[i]->work.then([first](const Status&) { tell(*first); });
  }
  std::unique_lock lock(first->mutex);
  if (!end)  // Each call's own deadline ends this.
    first->changed.wait(lock, [&] { return first->any; });
  else if (!first->changed.wait_until(lock, *end, [&] { return first->any; }))
    return Error{Code::kTimeout, "wait: none is done yet; they go on and can be waited for again"};
  place = find_done(works, count);
  return place < count ? works[place]->work.wait()
                       : Status(Error{Code::kInternal, "wait: a work was done and is not"});
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
    const auto end = end_of(timeout_ms);
    Status first = ok();
    for (std::size_t i = 0; i < count; ++i) {
      if (works[i] == nullptr) return invalid(name, "a work is NULL");
      Status one = wait_until(works[i]->work, end);
      if (!one && first) first = std::move(one);
    }
    return first;
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
    return wait_any(works, count, timeout_ms, *index);
  });
}

}  // extern "C"
