// File: topology/probe/sources/driver_json.h: reading what a driver's library said back from a
// capture, which is a file from outside. Internal to *_json.cc.
#pragma once
#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "tutti/result.h"

namespace tutti::topology {

using Json = nlohmann::json;

/// The value of a member; one that is absent or of another type leaves `value` as it is.
template <class Value>
void get(const Json& object, const char* key, Value& value) {
  const auto found = object.find(key);
  if (found == object.end()) return;
  if constexpr (std::is_same_v<Value, std::string>) {
    if (found->is_string()) value = found->template get<std::string>().substr(0, 256);
  } else if constexpr (std::is_same_v<Value, bool>) {
    if (found->is_boolean()) value = found->template get<bool>();
  } else {
    if (found->is_number() && found->template get<double>() > -1e6 &&
        found->template get<double>() < 1e6) {
      value = found->template get<Value>();
    }
  }
}

/// Small whole numbers, at most `most` of them; what is none becomes `odd`.
inline std::vector<int> get_list(const Json& object, const char* key, std::size_t most, int odd) {
  std::vector<int> values;
  const auto found = object.find(key);
  if (found == object.end() || !found->is_array()) return values;
  for (const Json& one : *found) {
    const bool sound = one.is_number_unsigned() && one.get<std::uint64_t>() < 256;
    if (values.size() < most) values.push_back(sound ? one.get<int>() : odd);
  }
  return values;
}

/// Names come from the driver; what is not UTF-8 must not make the writer throw.
inline std::string text_of(const Json& whole) {
  return whole.dump(1, ' ', true, Json::error_handler_t::replace) + "\n";
}

/// What a library that did not answer leaves in a capture.
inline std::string absent_to_json(const Error& why) { return text_of({{"absent", why.what}}); }

/// A capture's object and its list of objects called `list`, at most `most` of them. An Error if it
/// is none, and the reason if it is of a library that did not answer.
inline Result<Json> parse_answers(std::string_view text, std::string_view source, const char* list,
                                  std::size_t most) {
  const auto bad = [&](std::string_view what) {
    return Error{Code::kInvalidArgument, fmt::format("{}: {}", source, what), {}, {}};
  };
  Json whole = Json::parse(text, nullptr, false);
  if (!whole.is_object()) return bad("it is no JSON object");
  if (whole.contains("absent")) {
    std::string why = "it was absent";
    get(whole, "absent", why);
    return Error{Code::kUnsupported, why, {}, {}};
  }
  const auto found = whole.find(list);
  if (found == whole.end() || !found->is_array()) {
    return bad(fmt::format("it has no list called {}", list));
  }
  if (found->size() > most) return bad(fmt::format("{} has more than {} members", list, most));
  for (const Json& one : *found) {
    if (!one.is_object()) return bad(fmt::format("a member of {} is no object", list));
  }
  return whole;
}

}  // namespace tutti::topology
