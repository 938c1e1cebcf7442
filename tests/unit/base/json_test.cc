// JSON is written as nlohmann writes it, is read as it reads it, and what is odd in a text from
// anywhere reads as nothing.
#include "base/json.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <string>

#include <nlohmann/json.hpp>

#include "support/catch.h"

namespace tutti {
namespace {

using nlohmann::ordered_json;

/// The same value twice: ours, and nlohmann's.
struct Twins {
  Json ours;
  ordered_json theirs;
};

std::string some_text(std::mt19937_64& random) {
  static constexpr const char* kTexts[] = {"",
                                           "a",
                                           "name",
                                           "two words",
                                           "\"quoted\" \\ \b\t\n\x01\x7f",
                                           "\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80",
                                           "cut \xe2\x82",
                                           "\xff odd"};
  return kTexts[random() % std::size(kTexts)];
}

Twins scalar(std::mt19937_64& random) {
  static constexpr double kReals[] = {0.0, -0.0, 1.0, 0.1, 1e300, 5e-324, 123456789.125, 1e16, NAN};
  switch (random() % 7) {
    case 0: return {nullptr, nullptr};
    case 1: return {true, true};
    case 2: {
      const double real = kReals[random() % std::size(kReals)];
      return {real, real};
    }
    case 3: {
      const auto number = static_cast<std::int64_t>(random());
      return {number, number};
    }
    case 4: {
      const std::uint64_t number = random();
      return {number, number};
    }
    case 5: {
      const int number = static_cast<int>(random() % 7) - 3;
      return {number, number};
    }
    default: {
      const std::string text = some_text(random);
      return {text, text};
    }
  }
}

Twins value(std::mt19937_64& random, int depth) {
  const auto kind = depth == 0 ? 2 : random() % 3;
  if (kind == 2) return scalar(random);
  Twins made = kind == 0 ? Twins{Json::array(), ordered_json::array()}
                         : Twins{Json::object(), ordered_json::object()};
  for (std::uint64_t count = random() % 4; count > 0; --count) {
    const Twins part = value(random, depth - 1);
    if (kind == 0) {
      made.ours.push_back(part.ours);
      made.theirs.push_back(part.theirs);
    } else {
      const std::string name = "member " + std::to_string(random() % 5);
      made.ours[name] = part.ours;
      made.theirs[name] = part.theirs;
    }
  }
  return made;
}

TEST_CASE("JSON is written as nlohmann writes it, and read again") {
  std::mt19937_64 random(Catch::rngSeed());
  constexpr auto kReplace = ordered_json::error_handler_t::replace;
  for (int i = 0; i < 500; ++i) {
    const auto [ours, theirs] = value(random, 4);
    for (const int indent : {-1, 0, 1, 3}) {
      REQUIRE(ours.text({.indent = indent}) == theirs.dump(indent, ' ', false, kReplace));
      REQUIRE(ours.text({.indent = indent, .ascii = true}) ==
              theirs.dump(indent, ' ', true, kReplace));
    }
    const nlohmann::json sorted = theirs;
    REQUIRE(ours.text({.sorted = true}) == sorted.dump(-1, ' ', false, kReplace));
    const auto again = Json::parse(ours.text());
    REQUIRE(again);
    REQUIRE(again->text() == ordered_json::parse(ours.text()).dump());
  }
}

TEST_CASE("JSON values are made as they look in JSON") {
  Json rank{{"rank", 3}, {"calls", Json::array()}, {"host", {{"name", "a"}, {"up", true}}}};
  rank["calls"].push_back({{"call", 7}});
  rank["list"] = std::vector<int>{1, 2};
  rank["more"]["deep"] = 0.5;
  rank["rows"].push_back(nullptr);
  rank.update({{"rank", 4}, {"last", "b"}});
  CHECK(rank.text() ==
        R"({"rank":4,"calls":[{"call":7}],"host":{"name":"a","up":true},"list":[1,2],)"
        R"("more":{"deep":0.5},"rows":[null],"last":"b"})");
  CHECK(rank.text({.indent = 1}).starts_with("{\n \"rank\": 4,\n \"calls\": [\n  {\n"));
}

TEST_CASE("a part of JSON that is missing or of another kind reads as nothing") {
  const Json json = Json::parse(R"({"n": -3, "u": 18446744073709551615, "r": 2.5, "b": true,
                                    "s": "text", "a": [1, "x"], "o": {"k": null}})")
                        .value();
  CHECK(json["n"].get<int>() == -3);
  CHECK(json["u"].get<std::uint64_t>() == std::numeric_limits<std::uint64_t>::max());
  CHECK((json["n"].is_number_integer() && !json["n"].is_number_unsigned()));
  CHECK(
      (json["u"].is_number_unsigned() && json["r"].is_number() && !json["r"].is_number_integer()));
  CHECK(json.value("r", 0.0) == 2.5);
  CHECK(json.value("r", 7) == 2);
  CHECK(json.value("s", 7) == 7);
  CHECK(json.value("b", 7) == 7);
  CHECK(json.value("n", true));
  CHECK(json.value("s", "?") == "text");
  CHECK(json.value("n", "?") == "?");
  CHECK(json["s"] == "text");
  CHECK(json["n"] != "text");
  CHECK(json["a"][1] == "x");
  CHECK((json["a"].size() == 2 && json["a"][2].is_null() && json["o"].size() == 1));
  CHECK((json["none"].is_null() && json["none"]["deeper"][3].is_null()));
  CHECK((json["s"].empty() && json["s"].begin() == json["s"].end() && json["s"].members().empty()));
  CHECK((json.contains("o") && json["o"].contains("k") && !json["a"].contains("k")));
  CHECK(json["s"].get<int>() == 0);
  CHECK(Json(1e300).get<int>() == static_cast<int>(~0U));
}

TEST_CASE("what is no JSON is refused, with its place") {
  Json::Fault fault;
  for (const char* text : {"", "{", "[1,]", "{\"a\" 1}", "nul", "[1] 2", "\"\xff\""})
    CHECK_FALSE(Json::parse(text, &fault));
  REQUIRE_FALSE(Json::parse("[1,\n2,\n?]", &fault));
  CHECK((fault.byte == 8 && !fault.number));
  REQUIRE_FALSE(Json::parse("[1e999]", &fault));
  CHECK(fault.number);
  // The last member of a name counts, and stands where the first was.
  CHECK(Json::parse(R"({"a":1,"b":2,"a":3})").value().text() == R"({"a":3,"b":2})");
  const auto nested = [](std::size_t depth) {
    return std::string(depth, '[') + std::string(depth, ']');
  };
  CHECK(Json::parse(nested(256)));
  CHECK_FALSE(Json::parse(nested(257)));
  CHECK_FALSE(Json::parse(nested(1'000'000)));
}

}  // namespace
}  // namespace tutti
