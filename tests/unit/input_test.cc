// What programs read from files named on a command line: all of it, or one reason why not.
#include "base/input.h"

#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "base/folder.h"

namespace tutti {
namespace {

TEST_CASE("a file is read whole, and up to its limit") {
  const auto folder = make_temporary_folder("tutti-input");
  REQUIRE(folder);
  const std::string path = *folder + "/file";
  const std::string text(100'000, 'x');
  std::ofstream(path) << text;
  CHECK(*read_whole(path) == text);
  CHECK(*read_whole(path, text.size()) == text);
  CHECK_FALSE(read_whole(path, text.size() - 1));
  std::filesystem::remove_all(*folder);
}

TEST_CASE("what can't be read says why") {
  const auto why = [](const std::string& path) { return read_whole(path, 1 << 20).error().what; };
  CHECK(why("/") == "/: Is a directory");
  CHECK(why("/nonexistent/file") == "/nonexistent/file: No such file or directory");
  CHECK(why("/dev/zero") == "/dev/zero: longer than 1 MiB");
}

TEST_CASE("a temporary folder that can't be made says so") {
  const char* const before = std::getenv("TMPDIR");
  const std::string saved = before == nullptr ? "" : before;
  ::setenv("TMPDIR", "/nonexistent", 1);
  const auto folder = make_temporary_folder("tutti-input");
  before == nullptr ? ::unsetenv("TMPDIR") : ::setenv("TMPDIR", saved.c_str(), 1);
  REQUIRE_FALSE(folder);
  CHECK(folder.error().what.find("TMPDIR") != std::string::npos);
}

}  // namespace
}  // namespace tutti
