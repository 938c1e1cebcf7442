// Equal lines of several ranks as one: what joins, in which order, and when it is passed on.
#include "tools/run/line_folder.h"

#include "support/catch.h"

namespace tutti::tools {
namespace {

using std::chrono::milliseconds;

/// Three ranks, on a clock that the test sets.
class Folded {
 public:
  Folded() {
    for (int i = 0; i < 3; ++i) folder.add_rank();
  }
  Folded& say(int rank, std::string_view line) {
    folder.add(rank, line, now, out);
    return *this;
  }
  /// What is passed on within that time.
  std::string after(int wait_ms) {
    now += milliseconds(wait_ms);
    folder.release(now, out);
    return std::exchange(out, {});
  }
  LineFolder folder;
  LineFolder::Time now{};
  std::string out;
};

TEST_CASE("ranks are listed in ranges") {
  CHECK(ranks_prefix({3}) == "[3] ");
  CHECK(ranks_prefix({1, 0}) == "[0,1] ");
  CHECK(ranks_prefix({2, 0, 1}) == "[0-2] ");
  CHECK(ranks_prefix({9, 0, 1, 2, 5, 8}) == "[0-2,5,8,9] ");
}

TEST_CASE("a line that all ranks have written is passed on at once, others within 50 ms") {
  Folded ranks;
  CHECK(ranks.say(2, "same").say(0, "same").say(1, "same").after(0) == "[0-2] same\n");
  CHECK(ranks.say(1, "alone").after(0).empty());
  CHECK(ranks.folder.next() == ranks.now + LineFolder::kHoldTime);
  CHECK(ranks.after(10).empty());
  CHECK(ranks.say(0, "alone").after(LineFolder::kHoldTime.count() - 11).empty());
  CHECK(ranks.after(1) == "[0,1] alone\n");  // The one that came last does not prolong it.
  CHECK(ranks.say(2, "alone").after(50) == "[2] alone\n");
  CHECK(ranks.folder.empty());
  CHECK_FALSE(ranks.folder.next());
}

TEST_CASE("one rank waits for nobody") {
  LineFolder folder;
  folder.add_rank();
  std::string out;
  folder.add(0, "line", {}, out);
  folder.release({}, out);
  CHECK(out == "[0] line\n");
}

TEST_CASE("the lines of each rank keep their order") {
  Folded ranks;
  ranks.say(0, "a").say(0, "b").say(1, "b").say(1, "a").say(2, "a").say(2, "b");
  CHECK(ranks.after(50) == "[0,2] a\n[0-2] b\n[1] a\n");
  // What a rank writes twice are two lines.
  ranks.say(0, "a").say(0, "a").say(1, "a").say(1, "a").say(2, "a");
  CHECK(ranks.after(50) == "[0-2] a\n[0,1] a\n");
  // Lines that have been passed on do not count.
  ranks.say(0, "a").say(0, "b").after(50);
  CHECK(ranks.say(0, "c").say(1, "c").after(50) == "[0,1] c\n");
}

TEST_CASE("the launcher's own lines keep their place, and none joins them") {
  Folded ranks;
  ranks.say(0, "x");
  ranks.folder.add_own("x", ranks.now);
  ranks.say(1, "x").say(2, "x").say(2, "x");
  CHECK(ranks.after(0) == "[0-2] x\nx\n");
  CHECK(ranks.after(50) == "[2] x\n");
}

TEST_CASE("lines of the log are equal whatever the process and the rank") {
  Folded ranks;
  ranks.say(0, "12:00:00.001 vm:12 rank 0 tutti/net warning: odd");
  ranks.say(1, "12:00:00.002 vm:13 rank 1 tutti/net warning: odd");
  CHECK(ranks.after(50) == "[0,1] 12:00:00.001 vm tutti/net warning: odd\n");
  const std::string alone = "12:00:00.001 vm:12 tutti/net warning: odd";
  CHECK(ranks.say(0, alone).after(50) == "[0] " + alone + "\n");
  for (const std::string_view other :
       {"12:00:00.001", "12:00:00.001 vm:12", "12:00:00.001 vm:12 ", "12:00:00.001 vm:12 rank 3",
        "12:00:00.001 vm:12 program: odd", "12:00:00,001 vm:12 tutti/net: odd", "tutti/net: odd"}) {
    INFO(other);
    CHECK(split_head(other) == std::pair(std::string_view(), other));
  }
}

TEST_CASE("what a rank has written is passed on when asked for") {
  Folded ranks;
  ranks.say(0, "a").say(1, "b").say(2, "c");
  ranks.folder.release_of(1, ranks.out);
  CHECK(std::exchange(ranks.out, {}) == "[0] a\n[1] b\n");
  ranks.folder.release_of(1, ranks.out);
  CHECK(ranks.out.empty());
  ranks.folder.release_all(ranks.out);
  CHECK(ranks.out == "[2] c\n");
}

TEST_CASE("what does not fit is passed on at once") {
  Folded ranks;
  for (std::size_t i = 0; i < LineFolder::kMostLines; ++i) ranks.say(0, std::to_string(i));
  CHECK(ranks.out.empty());
  ranks.say(0, "more");
  CHECK(std::exchange(ranks.out, {}) == "[0] 0\n");
  ranks.after(50);
  ranks.say(1, "short").say(0, std::string(LineFolder::kMostBytes, 'x'));
  CHECK(ranks.out.starts_with("[1] short\n"));
  CHECK(ranks.folder.empty() == false);
  CHECK(ranks.say(1, "y").out.size() > LineFolder::kMostBytes);
}

}  // namespace
}  // namespace tutti::tools
