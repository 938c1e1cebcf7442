// Plans that users wrote: what is read, what is proved, what is refused and how.
#include <fstream>
#include <string>

#include "plan/passes/passes.h"
#include "plan/structure.h"
#include "plan/text/text.h"
#include "plan/verify/verify.h"
#include "planner/plan_files.h"
#include "support/catch.h"
#include "support/plans.h"
#include "support/processes.h"

using namespace tutti;
using planner::PlanFiles;

namespace {

std::string write(const test::ScratchDirectory& folder, const std::string& name,
                  const std::string& text) {
  const std::string path = folder.path() + "/" + name;
  std::ofstream(path) << text;
  return path;
}

std::string text_of(Collective collective, std::string_view algorithm, plan::Shape shape) {
  shape.collective = collective;
  return plan::to_text(build(*find_algorithm(collective, algorithm), shape));
}

std::string with(std::string text, std::string_view from, std::string_view to) {
  const auto at = text.find(from);
  REQUIRE(at != std::string::npos);
  return text.replace(at, from.size(), to);
}

}  // namespace

TEST_CASE("every plan that the library makes can be given to it as a file") {
  const test::ScratchDirectory folder;
  int tried = 0;
  const auto visit = [&](const plan::Plan& plan) {
    const std::string file = write(folder, "one.plan", "# mine\n" + plan::to_text(plan));
    INFO(plan::to_text(plan).substr(0, 100));
    const auto files = PlanFiles::load(file, Contract::kRelaxed);
    INFO((files ? "" : files.error().what));
    REQUIRE(files);
    const plan::Shape& shape = plan.shape;
    const plan::Plan* found = files->find(shape.collective, shape.rank_count, shape.root, true);
    REQUIRE(found != nullptr);
    // The contract is what can be proved, not what is claimed; all else is as written.
    plan::Plan expected = plan;
    expected.contract = Contract::kDeterministic;
    if (!plan::verify(expected)) expected.contract = Contract::kRelaxed;
    CHECK(*found == expected);
    const bool touches = plan::touches_peers(plan);
    CHECK((files->find(shape.collective, shape.rank_count, shape.root, false) == nullptr) ==
          touches);
    CHECK(files->find(shape.collective, shape.rank_count + 1, shape.root, true) == nullptr);
    const bool rooted = has_root(shape.collective);
    CHECK((files->find(shape.collective, shape.rank_count, shape.root + 1, true) == nullptr) ==
          rooted);
    const auto strict = PlanFiles::load(file, Contract::kDeterministic);
    CHECK(bool(strict) == (expected.contract == Contract::kDeterministic));
    if (!strict) CHECK_THAT(strict.error().what, Catch::Contains("TUTTI_CONTRACT=relaxed"));
    ++tried;
  };
  test::for_each_plan({1, 2, 3, 4, 8}, [&](const plan::Plan& plan) {
    visit(plan);
    if (const auto lowered = plan::direct(plan)) visit(*lowered);
    if (const auto lowered = plan::multicast(plan)) visit(*lowered);
  });
  CHECK(tried > 300);
}

TEST_CASE("the hash of plan files is that of the plans, whatever is around them") {
  const test::ScratchDirectory folder;
  const std::string text = text_of(Collective::kAllReduce, "two_shot", {.rank_count = 3});
  const auto hash = [&](const std::string& files) {
    const auto loaded = PlanFiles::load(files, Contract::kDeterministic);
    REQUIRE(loaded);
    return loaded->hash();
  };
  const std::string plain = write(folder, "a", text);
  const std::string commented = write(folder, "b", "# said\n\n" + with(text, " -> ", "   ->  "));
  const std::string renamed = write(folder, "c", with(text, "two_shot", "mine"));
  const std::string other =
      write(folder, "d", text_of(Collective::kAllGather, "direct", {.rank_count = 3}));
  CHECK(hash("") == 0);
  CHECK(hash(plain) != 0);
  CHECK(hash(plain) == hash(commented));
  CHECK(hash(plain) != hash(renamed));
  CHECK(hash(plain + "," + other) != hash(plain));
}

TEST_CASE("what is wrong with a plan file is one line that names it") {
  const test::ScratchDirectory folder;
  const std::string text = text_of(Collective::kAllReduce, "two_shot", {.rank_count = 2});
  const std::string good = write(folder, "good", text);
  const std::string lanes = plan::to_text(plan::replicate(
      build(*find_algorithm(Collective::kAllReduce, "two_shot"), {.rank_count = 2}), 65));
  struct Wrong {
    std::string files;
    const char* words;
  };
  const Wrong wrongs[] = {
      {folder.path() + "/none", "No such file"},
      {folder.path(), "directory"},
      {write(folder, "empty", ""), "line 1"},
      {write(folder, "cut", text.substr(0, text.size() / 2)), "line "},
      {write(folder, "word", with(text, "contribution\n", "contributed\n")), "line 4, column "},
      {write(folder, "bytes", std::string("\0\xff\x7f", 3)), "line 1, column 1"},
      {write(folder, "missing", with(text, "  move 0: output[0] -> to(1):result\n", "")),
       "lane 0: rank 0 sends 1 slot to rank 1"},
      {write(folder, "twice", with(text, "input[0], from(1)", "from(1)")), "rank 0, lane 0, step"},
      {write(folder, "apart", with(text, "deterministic", "deterministic apart")), "'apart'"},
      {write(folder, "lanes", lanes), "65 lanes"},
      {good + "," + write(folder, "again", text), "has a plan for all_reduce of 2 ranks too"},
      {good + "," + folder.path() + "/none", "No such file"},
      {write(folder, "claims",
             with(text_of(Collective::kAllReduce, "ring", {.rank_count = 3}), "relaxed",
                  "deterministic")),
       "rank "},
      {write(folder, "ring", text_of(Collective::kAllReduce, "ring", {.rank_count = 3})),
       "TUTTI_CONTRACT=relaxed"},
  };
  for (const Wrong& wrong : wrongs) {
    INFO(wrong.files);
    const auto loaded = PlanFiles::load(wrong.files, Contract::kDeterministic);
    REQUIRE_FALSE(loaded);
    const std::string& what = loaded.error().what;
    CHECK_THAT(what, Catch::StartsWith("plan file '" + folder.path()));
    CHECK_THAT(what, Catch::Contains(wrong.words));
    CHECK(what.find('\n') == std::string::npos);
  }
}
