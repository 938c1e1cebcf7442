// What a new tuning table changes, in words.
#include "tools/tune/changes.h"

#include "support/catch.h"

namespace tutti::tools {
namespace {

using planner::Range;
using Parts = std::vector<std::string>;

TEST_CASE("sizes that get another algorithm") {
  const std::vector<Range> old{{64, {{"packet"}}}, {4096, {{"ring"}}}, {65536, {{"two_shot"}}}};
  CHECK(changes(old, old).empty());
  // Times and the order of the others do not matter, nor where the last range ends.
  CHECK(
      changes(old,
              {{64, {{"packet", 1, 2.5}, {"ring"}}}, {4096, {{"ring"}}}, {1 << 20, {{"two_shot"}}}})
          .empty());
  CHECK(changes(old, {{64, {{"pat"}}}, {4096, {{"ring"}}}, {65536, {{"two_shot"}}}}) ==
        Parts{"packet -> pat to 64"});
  // Another limit.
  CHECK(changes(old, {{1024, {{"packet"}}}, {4096, {{"ring"}}}, {65536, {{"two_shot"}}}}) ==
        Parts{"ring -> packet over 64 to 1K"});
  // Lanes make a difference; the largest sizes have no end.
  CHECK(changes(old, {{64, {{"packet"}}}, {4096, {{"ring"}}}, {65536, {{"two_shot", 2}}}}) ==
        Parts{"two_shot -> two_shot:2 over 4K"});
  // One change over several ranges is one part, two changes are two.
  CHECK(changes({{64, {{"a"}}}, {256, {{"a"}}}, {1024, {{"b"}}}}, {{65536, {{"c"}}}}) ==
        Parts{"a -> c to 256", "b -> c over 256"});
}

TEST_CASE("a collective that joins or leaves the table") {
  const std::vector<Range> ranges{{64, {{"packet"}}}, {4096, {{"ring"}}}};
  CHECK(changes({}, ranges) ==
        Parts{"not in the table -> packet to 64", "not in the table -> ring over 64"});
  CHECK(changes(ranges, {}) ==
        Parts{"packet -> not in the table to 64", "ring -> not in the table over 64"});
  CHECK(changes({}, {}).empty());
}

TEST_CASE("parts are broken into lines of at most 100 columns") {
  CHECK(in_lines({"a", "b"}, 25) == "a, b");
  const std::string text = in_lines(Parts(30, "ring -> pat to 64"), 25);
  std::size_t column = 25, lines = 1;
  for (const char c : text) {
    column = c == '\n' ? 0 : column + 1;
    lines += c == '\n';
    CHECK(column <= 100);
  }
  CHECK(lines == 8);
}

}  // namespace
}  // namespace tutti::tools
