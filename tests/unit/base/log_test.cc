// The library's own form of log lines, and levels of its parts.
#include "base/log.h"

#include <unistd.h>

#include <regex>

#include "support/catch.h"

namespace tutti {
namespace {

/// What `body` writes to stderr.
std::string written(const std::function<void()>& body) {
  std::FILE* const file = std::tmpfile();
  const int before = dup(STDERR_FILENO);
  dup2(fileno(file), STDERR_FILENO);
  body();
  std::fflush(stderr);
  dup2(before, STDERR_FILENO);
  close(before);
  std::rewind(file);
  std::string text(4096, '\0');
  text.resize(std::fread(text.data(), 1, text.size(), file));
  std::fclose(file);
  return text;
}

TEST_CASE("a line says when, host, process, rank and part, and is one line") {
  log::set_levels(log::all_at(log::Level::kInfo));
  const std::string form = "[0-9:.]{12} [^ :]+:" + std::to_string(getpid());
  const std::string before = written([] { log::info(log::Part::kNet, "two\nlines {}", 7); });
  INFO(before);
  CHECK(std::regex_match(before, std::regex(form + " tutti/net info: two lines 7\n")));
  log::set_rank(3);
  log::set_rank(4);
  const std::string after = written([] { log::error(log::Part::kPlans, "x"); });
  INFO(after);
  CHECK(std::regex_match(after, std::regex(form + " rank 3 tutti/plans error: x\n")));
}

TEST_CASE("parts have levels of their own") {
  const auto levels = log::parse_levels("error,net=debug,join=off");
  REQUIRE(levels);
  log::set_levels(*levels);
  CHECK(log::enabled(log::Part::kNet, log::Level::kDebug));
  CHECK(!log::enabled(log::Part::kNet, log::Level::kTrace));
  CHECK(!log::enabled(log::Part::kJoin, log::Level::kError));
  CHECK(log::enabled(log::Part::kCalls, log::Level::kError));
  CHECK(!log::enabled(log::Part::kCalls, log::Level::kWarn));
  const auto others = log::parse_levels("net=info");
  REQUIRE(others);
  log::set_levels(*others);
  CHECK(log::enabled(log::Part::kNet, log::Level::kInfo));
  CHECK(log::enabled(log::Part::kCalls, log::Level::kWarn));
  CHECK(!log::enabled(log::Part::kCalls, log::Level::kInfo));
}

}  // namespace
}  // namespace tutti
