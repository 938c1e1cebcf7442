#include "base/log.h"

#include <spdlog/details/console_globals.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
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

std::optional<Level> parse_level(std::string_view text) {
  for (const auto& [name, level] : kLevels) {
    if (name == text) return level;
  }
  return std::nullopt;
}

std::size_t index_of(Part part) { return static_cast<std::size_t>(part); }

/// How lines are written.
struct Form {
  spdlog::logger* logger;
  std::string (*head)(Level) = nullptr;  // Null: the library's own.
};

/// Over any file. Its mutex is the console's, which forks know of.
using FileSink = spdlog::sinks::stdout_sink_base<spdlog::details::console_mutex>;

/// Levels are looked at before, as parts have their own.
spdlog::logger* make_logger(std::FILE* file, const char* pattern) {
  auto* made = new spdlog::logger("tutti", std::make_shared<FileSink>(file));
  made->set_level(spdlog::level::trace);
  made->set_pattern(pattern);
  return made;
}

std::atomic<const Form*>& form() {
  // Leaked on purpose, as each form is: see the head of log.h.
  static auto* const current =
      new std::atomic<const Form*>(new Form{make_logger(stderr, "%H:%M:%S.%e %v")});
  return *current;
}

// acquire: see what the thread that changed the form has written.
const Form& now() { return *form().load(std::memory_order_acquire); }

std::array<std::atomic<Level>, kParts.size()>& levels() {
  static auto* const current = [] {
    auto* made = new std::array<std::atomic<Level>, kParts.size()>;
    const char* named = secure_getenv("TUTTI_LOG");
    const auto begin = named != nullptr ? parse_levels(named) : std::nullopt;
    for (std::size_t part = 0; part < made->size(); ++part)
      (*made)[part] = begin.value_or(all_at(Level::kWarn))[part];
    return made;
  }();
  return *current;
}

constexpr int kUnset = -2;
std::atomic<int> shown_rank{kUnset};

/// "node1:4711 rank 3 tutti/net warning: "
std::string own_head(Part part, Level level) {
  char host[256] = {};
  static_cast<void>(gethostname(host, sizeof host - 1));
  const std::string_view name(host);
  // relaxed: a word of its own.
  const int rank = shown_rank.load(std::memory_order_relaxed);
  const spdlog::string_view_t word = spdlog::level::to_string_view(to_spdlog(level));
  return fmt::format("{}:{}{} tutti/{} {}: ", name.substr(0, name.find('.')), getpid(),
                     rank >= 0 ? fmt::format(" rank {}", rank) : "", kParts[index_of(part)],
                     std::string_view(word.data(), word.size()));
}

const HeldAcrossFork console_held(ForkOrder::kLog, []() -> std::mutex& {
  // A thread that makes one of these at the time of a fork would leave it unmade in the child,
  // where the first line waits for that thread: so the fork waits instead.
  static_cast<void>(form());
  static_cast<void>(levels());
  return spdlog::details::console_mutex::mutex();
});

}  // namespace

std::optional<Levels> parse_levels(std::string_view text) {
  Levels parsed = all_at(Level::kWarn);
  bool first = true;
  for (bool more = true; more; first = false) {
    const auto comma = text.find(',');
    const std::string_view word = text.substr(0, comma);
    more = comma != std::string_view::npos;
    if (more) text.remove_prefix(comma + 1);
    const auto equals = word.find('=');
    const auto level = parse_level(word.substr(equals == std::string_view::npos ? 0 : equals + 1));
    if (!level) return std::nullopt;
    if (equals == std::string_view::npos) {
      if (!first) return std::nullopt;  // It would undo what stands before.
      parsed = all_at(*level);
      continue;
    }
    const auto part = std::ranges::find(kParts, word.substr(0, equals));
    if (part == kParts.end()) return std::nullopt;
    parsed[static_cast<std::size_t>(part - kParts.begin())] = *level;
  }
  return parsed;
}

void set_levels(const Levels& wanted) {
  // relaxed, here and in enabled: a line more or less.
  for (std::size_t part = 0; part < wanted.size(); ++part)
    levels()[part].store(wanted[part], std::memory_order_relaxed);
}

void set_rank(int rank) {
  int unset = kUnset;
  // relaxed: a word of its own.
  shown_rank.compare_exchange_strong(unset, rank, std::memory_order_relaxed);
}

bool enabled(Part part, Level level) {
  return level >= levels()[index_of(part)].load(std::memory_order_relaxed);
}

void write(Part part, Level level, std::string_view line) {
  const Form& as = now();
  std::string text = as.head == nullptr ? own_head(part, level) : as.head(level);
  text += line;
  std::ranges::replace(text, '\n', ' ');
  as.logger->log(to_spdlog(level), text);
}

void write_as(std::FILE* file, std::string (*head)(Level)) {
  // release: pairs with `now`.
  form().store(new Form{make_logger(file, "%v"), head}, std::memory_order_release);
}

}  // namespace tutti::log
