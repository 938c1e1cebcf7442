// The names in a folder: all but its own and its parent's, sorted; errors name the folder.
#include "base/folder.h"

#include <sys/stat.h>

#include <fstream>

#include "support/catch.h"
#include "support/processes.h"

namespace tutti {
namespace {

TEST_CASE("the names in a folder are sorted, and without those of the folder and its parent") {
  const test::ScratchDirectory folder;
  CHECK(names_in(folder.path()).value().empty());
  for (const char* const file : {"b", "a", ".hidden", "..."})
    std::ofstream(folder.path() + "/" + file);
  REQUIRE(::mkdir((folder.path() + "/c").c_str(), 0700) == 0);
  std::ofstream(folder.path() + "/c/below");
  CHECK(names_in(folder.path()).value() ==
        std::vector<std::string>{"...", ".hidden", "a", "b", "c"});
}

TEST_CASE("a folder that can't be read, or has too many entries, is an error that names it") {
  const test::ScratchDirectory folder;
  const std::string file = folder.path() + "/file";
  std::ofstream{file};
  const auto said = [](const Result<std::vector<std::string>>& names) {
    return names ? "none" : names.error().to_string();
  };
  CHECK(said(names_in(file)) == "system error: reading the folder " + file + ": Not a directory");
  CHECK(said(names_in(file + "s")) ==
        "system error: reading the folder " + file + "s: No such file or directory");
  CHECK(names_in(folder.path(), 1).value() == std::vector<std::string>{"file"});
  std::ofstream(folder.path() + "/another");
  CHECK(said(names_in(folder.path(), 1)) ==
        "system error: the folder " + folder.path() + " has more than 1 entries");
}

}  // namespace
}  // namespace tutti
