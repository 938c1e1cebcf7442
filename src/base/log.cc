#include "base/log.h"

#include <spdlog/details/console_globals.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <atomic>
#include <cstdlib>
#include <memory>
#include <utility>

#include "base/fork.h"

namespace tutti::log {
namespace {

constexpr std::pair<std::string_view, Level> kLevels[] = {
    {"trace", Level::kTrace}, {"debug", Level::kDebug}, {"info", Level::kInfo},
    {"warn", Level::kWarn},   {"error", Level::kError}, {"off", Level::kOff}};

spdlog::level::level_enum to_spdlog(Level level) {
  static_assert(static_cast<int>(Level::kError) == spdlog::level::err &&
                static_cast<int>(Level::kOff) == spdlog::level::off);
  return static_cast<spdlog::level::level_enum>(level);
}

/// How lines are written.
struct Form {
  spdlog::logger* logger;
  std::string (*head)(Level) = nullptr;  // Null: the pattern has all.
};

/// Over any file. Its mutex is the console's, which forks know of.
using FileSink = spdlog::sinks::stdout_sink_base<spdlog::details::console_mutex>;

spdlog::logger* make_logger(std::FILE* file, const char* pattern, spdlog::level::level_enum level) {
  auto* made = new spdlog::logger("tutti", std::make_shared<FileSink>(file));
  made->set_level(level);
  made->set_pattern(pattern);
  return made;
}

std::atomic<const Form*>& form() {
  // Leaked on purpose, as each form is: see the head of log.h.
  static auto* const current = [] {
    const char* named = secure_getenv("TUTTI_LOG");
    const auto level = named != nullptr ? parse_level(named) : std::nullopt;
    return new std::atomic<const Form*>(new Form{
        make_logger(stderr, "[%H:%M:%S.%e tutti %l] %v", to_spdlog(level.value_or(Level::kWarn)))});
  }();
  return *current;
}

// acquire: see what the thread that changed the form has written.
const Form& now() { return *form().load(std::memory_order_acquire); }

const HeldAcrossFork console_held(ForkOrder::kLog, []() -> std::mutex& {
  return spdlog::details::console_mutex::mutex();
});

}  // namespace

std::optional<Level> parse_level(std::string_view text) {
  for (const auto& [name, level] : kLevels) {
    if (name == text) return level;
  }
  return std::nullopt;
}

void set_level(Level level) { now().logger->set_level(to_spdlog(level)); }
bool enabled(Level level) { return now().logger->should_log(to_spdlog(level)); }

void write(Level level, std::string_view line) {
  const Form& as = now();
  if (as.head == nullptr)
    as.logger->log(to_spdlog(level), line);
  else
    as.logger->log(to_spdlog(level), as.head(level) + std::string(line));
}

void write_as(std::FILE* file, std::string (*head)(Level)) {
  const auto level = now().logger->level();
  // release: pairs with `now`.
  form().store(new Form{make_logger(file, "%v", level), head}, std::memory_order_release);
}

}  // namespace tutti::log
