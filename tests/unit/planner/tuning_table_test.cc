// Tuning tables: text and back, whatever is in them; broken texts; finding one by its key.
#include <algorithm>

#include "planner/tuning_table.h"
#include "support/catch.h"
#include "support/tuning_tables.h"

namespace tutti::planner {
namespace {

std::vector<TuningTable> some_tables(std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<TuningTable> tables;
  for (std::size_t count = random() % 4; count > 0; --count)
    tables.push_back(test::random_table(random));
  return tables;
}

bool is_one_line(const Error& error) {
  return error.code == Code::kInvalidArgument && error.what.starts_with("file.json: ") &&
         error.what.find('\n') == std::string::npos && error.what.size() < 400;
}

TEST_CASE("a table's text gives the same table back, to the last bit") {
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    INFO("seed " << seed);
    const auto tables = some_tables(seed);
    const auto again = parse_tuning(tuning_text(tables), "file.json");
    INFO((again ? "" : again.error().what));
    REQUIRE(again);
    CHECK(*again == tables);
  }
}

TEST_CASE(
    "a text that is cut off, or has any byte changed, is tables or one line that says where") {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    INFO("seed " << seed);
    std::mt19937_64 random(seed);
    const std::string text = tuning_text({test::random_table(random)});
    for (int i = 0; i < 100; ++i) {
      std::string broken = text;
      if (i % 2 == 0)
        broken.resize(random() % (text.size() - 2));
      else
        broken[random() % text.size()] = static_cast<char>(random() % 256);
      const auto read = parse_tuning(broken, "file.json");
      if (i % 2 == 0) REQUIRE_FALSE(read);
      if (!read) CHECK(is_one_line(read.error()));
    }
  }
}

TEST_CASE("what is wrong with a table is said with its place") {
  std::mt19937_64 random(1);
  TuningTable table = test::random_table(random);
  for (auto& lists : table.ranges) lists = {};
  table.of(Collective::kBroadcast, false) = {{64, {{"packet", 1, 0.5}}}, {128, {{"direct", 1, 2}}}};
  table.key.rank_count = 3;
  table.key.hosts = {0, 1, 1};
  table.network = {{5, 1}, 2};
  table.rates = {{"a", 1}, {"b", 0.5}};
  const std::string text = tuning_text({table});
  struct Mistake {
    std::string before, after, place;
  };
  const std::vector<Mistake> mistakes{
      {"\"up_to\": 128", "\"up_to\": 64", "tables[0].collectives.broadcast.plain[1].up_to"},
      {"\"up_to\": 64", "\"up_to\": -1", "tables[0].collectives.broadcast.plain[0].up_to"},
      {"\"us\": 0.5", "\"us\": -0.5", "plain[0].ways[0].us"},
      {"\"us\": 0.5", "\"us\": 1e300", "plain[0].ways[0].us"},
      {"\"us\": 0.5", "\"us\": \"x\"", "plain[0].ways[0].us"},
      {"\"lanes\": 1", "\"lanes\": 65", "plain[0].ways[0].lanes"},
      {"\"way\": \"packet\"", "\"way\": \"\"", "plain[0].ways[0].way"},
      {"\"way\": \"packet\"", "\"way\": \"a\\nb\"", "plain[0].ways[0].way"},
      {"\"tables\": [", "\"tables\": 1, \"x\": [", "tables"},
      {"\"tutti_tuning\": 1", "\"tutti_tuning\": 2", "tutti_tuning"},
      {"\"machine\": \"", "\"machine\": \"g", "tables[0].machine"},
      {"\"ranks\"", "\"rank\"", "tables[0].ranks"},
      {"[0, 1, 1]", "[0, 1]", "tables[0].hosts"},
      {"[0, 1, 1]", "[0, 2, 1]", "tables[0].hosts"},
      {"[0, 1, 1]", "[0, -1, 1]", "tables[0].hosts"},
      {"[0, 1, 1]", "[0, 1, 99999999999999999999]", "tables[0].hosts"},
      {"[0, 1, 1]", "[0, 0, 0]", "tables[0].network.rates"},
      {"[0, 1, 1]", "1", "tables[0].hosts"},
      {"\"network\"", "\"net\"", "tables[0].network"},
      {"\"name\": \"a\"", "\"name\": \"a b\"", "tables[0].network.rates[0].name"},
      {"\"gigabytes_per_second\": 0.5", "\"gigabytes_per_second\": 0",
       "tables[0].network.rates[1].gigabytes_per_second"},
      {"\"collectives\": {", "\"collectives\": 3, \"x\": {", "tables[0].collectives"},
  };
  for (const Mistake& mistake : mistakes) {
    INFO(mistake.before << " -> " << mistake.after);
    std::string broken = text;
    const auto at = broken.find(mistake.before);
    REQUIRE(at != std::string::npos);
    broken.replace(at, mistake.before.size(), mistake.after);
    const auto read = parse_tuning(broken, "file.json");
    REQUIRE_FALSE(read);
    CHECK(is_one_line(read.error()));
    CHECK_THAT(read.error().what, Catch::Contains(mistake.place));
  }
  const auto third = parse_tuning("{\n\"tutti_tuning\": 1,\n]", "file.json");
  REQUIRE_FALSE(third);
  CHECK_THAT(third.error().what, Catch::StartsWith("file.json: line 3 "));
  CHECK_FALSE(parse_tuning(std::string(kMostTuningBytes + 1, ' '), "file.json"));
  CHECK_FALSE(parse_tuning(std::string(100'000, '['), "file.json"));
}

TEST_CASE("a table is found by its whole key, and what is not found is explained") {
  std::mt19937_64 random(7);
  const TuningTable table = test::random_table(random);
  std::vector<TuningTable> tables;
  CHECK(why_no_table(tables, table.key) == "it has no tables");
  put_table(tables, table);
  REQUIRE(find_table(tables, table.key) != nullptr);
  const auto differs = [&](auto change, const std::string& why) {
    TuningKey key = table.key;
    change(key);
    CHECK(find_table(tables, key) == nullptr);
    CHECK_THAT(why_no_table(tables, key), Catch::Contains(why));
  };
  differs([](TuningKey& key) { ++key.machine; }, "another machine");
  differs([](TuningKey& key) { key.version = "9"; }, "this is 9");
  differs([](TuningKey& key) { key.transport = "y"; }, "this is y");
  differs([](TuningKey& key) { ++key.rank_count; }, "ranks");
  differs([](TuningKey& key) { ++key.usable_cpus; }, "CPUs");
  differs([](TuningKey& key) { key.hosts.push_back(0); }, "ranks that share hosts otherwise");
  TuningTable newer = table;
  newer.costs.link.latency_us += 1;
  put_table(tables, newer);
  REQUIRE(tables.size() == 1);
  CHECK(tables.front() == newer);
}

}  // namespace
}  // namespace tutti::planner
