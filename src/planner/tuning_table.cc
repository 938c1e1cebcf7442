#include "planner/tuning_table.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

namespace tutti::planner {
namespace {

using nlohmann::json;

constexpr int kFormat = 1;
constexpr double kMostMicroseconds = 1e12;
constexpr int kMostRankCount = 1 << 20;
constexpr std::uint32_t kMostLanes = 64;
constexpr std::size_t kMostWord = 64;

/// A number so that reading it gives the same bits.
std::string number(double value) { return json(value).dump(); }

std::string range_text(const Range& range) {
  std::string text = fmt::format("{{\"up_to\": {}, \"ways\": [", range.up_to);
  for (std::size_t i = 0; i < range.ways.size(); ++i) {
    const Way& way = range.ways[i];
    text += fmt::format("{}{{\"way\": {}, \"lanes\": {}, \"us\": {}}}", i == 0 ? "" : ", ",
                        json(way.name).dump(), way.lanes, number(way.microseconds));
  }
  return text + "]}";
}

std::string ranges_text(const std::vector<Range>& ranges) {
  std::string text = "[";
  for (std::size_t i = 0; i < ranges.size(); ++i)
    text += fmt::format("{}\n          {}", i == 0 ? "" : ",", range_text(ranges[i]));
  return text + "]";
}

/// The part that only tables of several hosts have.
std::string hosts_text(const TuningTable& table) {
  if (table.key.hosts.empty()) return {};
  const NetworkCost& network = table.network;
  std::string text = fmt::format(
      "      \"hosts\": [{}],\n      \"network\": {{\"latency_us\": {}, \"message_us\": {}, "
      "\"gigabytes_per_second\": {}, \"rates\": [",
      fmt::join(table.key.hosts, ", "), number(network.link.latency_us), number(network.message_us),
      number(network.link.gigabytes_per_second));
  for (std::size_t host = 0; host < table.rates.size(); ++host) {
    const HostRate& rate = table.rates[host];
    text += fmt::format("{}\n        {{\"name\": {}, \"gigabytes_per_second\": {}}}",
                        host == 0 ? "" : ",", json(rate.name).dump(),
                        number(rate.gigabytes_per_second));
  }
  return text + "]},\n";
}

std::string table_text(const TuningTable& table) {
  const TuningKey& key = table.key;
  const HostCosts& costs = table.costs;
  std::string text = fmt::format(
      "    {{\n      \"machine\": \"{:016x}\", \"version\": {}, \"transport\": {},\n"
      "      \"ranks\": {}, \"cpus\": {},\n"
      "      \"latency_us\": {}, \"gigabytes_per_second\": {}, "
      "\"reduce_gigabytes_per_second\": {},\n{}      \"collectives\": {{",
      key.machine, json(key.version).dump(), json(key.transport).dump(), key.rank_count,
      key.usable_cpus, number(costs.link.latency_us), number(costs.link.gigabytes_per_second),
      number(costs.reduce_gigabytes_per_second), hosts_text(table));
  bool first = true;
  for (int i = 0; i < kCollectiveCount; ++i) {
    const auto collective = static_cast<Collective>(i);
    const auto& plain = table.of(collective, false);
    const auto& mapped = table.of(collective, true);
    if (plain.empty() && mapped.empty()) continue;
    text += fmt::format("{}\n        \"{}\": {{\n        \"plain\": {},\n        \"mapped\": {}}}",
                        first ? "" : ",", to_string(collective), ranges_text(plain),
                        ranges_text(mapped));
    first = false;
  }
  return text + "\n      }\n    }";
}

/// Takes a document apart. The first thing that is wrong is kept, with its place.
class Reader {
 public:
  std::optional<Error> error;

  explicit Reader(std::string_view where) : where_(where) {}

  std::vector<TuningTable> file(const json& document) {
    std::vector<TuningTable> tables;
    if (!document.is_object()) return fail("", "is no table of tunings"), tables;
    if (integer(document, "", "tutti_tuning", 0, 1'000'000) != kFormat) {
      return fail("tutti_tuning",
                  fmt::format("is not {}, the form that this version reads", kFormat)),
             tables;
    }
    const json& list = array(document, "", "tables", kMostTables);
    for (std::size_t i = 0; i < list.size() && !error; ++i)
      tables.push_back(table(list[i], fmt::format("tables[{}]", i)));
    return tables;
  }

 private:
  void fail(const std::string& place, const std::string& what) {
    if (error) return;
    error = Error{Code::kInvalidArgument,
                  fmt::format("{}: {}{}{}", where_, place, place.empty() ? "" : " ", what)};
  }

  const json& member(const json& object, const std::string& place, const char* name) {
    static const json nothing;
    if (object.is_object()) {
      if (const auto found = object.find(name); found != object.end()) return *found;
    }
    fail(place.empty() ? name : place + "." + name, "is missing");
    return nothing;
  }

  const json& array(const json& object, const std::string& place, const char* name,
                    std::size_t most) {
    static const json nothing = json::array();
    const json& list = member(object, place, name);
    if (list.is_array() && list.size() <= most) return list;
    fail(place.empty() ? name : place + "." + name,
         fmt::format("is no list of at most {} entries", most));
    return nothing;
  }

  double real(const json& object, const std::string& place, const char* name, double most) {
    const json& value = member(object, place, name);
    if (value.is_number()) {
      const double real = value.get<double>();
      if (std::isfinite(real) && real >= 0 && real <= most) return real;
    }
    fail(place + "." + name, fmt::format("is no number from 0 to {:g}", most));
    return 0;
  }

  std::uint64_t integer(const json& object, const std::string& place, const char* name,
                        std::uint64_t least, std::uint64_t most) {
    const json& value = member(object, place, name);
    if (value.is_number_unsigned()) {
      const auto whole = value.get<std::uint64_t>();
      if (whole >= least && whole <= most) return whole;
    }
    fail(place.empty() ? name : place + "." + name,
         fmt::format("is no whole number from {} to {}", least, most));
    return least;
  }

  /// Printable, so that it can be shown in one line.
  std::string word(const json& object, const std::string& place, const char* name) {
    const json& value = member(object, place, name);
    if (value.is_string()) {
      const auto& text = value.get_ref<const std::string&>();
      const bool printable =
          std::all_of(text.begin(), text.end(), [](char c) { return c > ' ' && c <= '~'; });
      if (!text.empty() && text.size() <= kMostWord && printable) return text;
    }
    fail(place + "." + name, fmt::format("is no word of at most {} letters", kMostWord));
    return "?";
  }

  std::uint64_t hexadecimal(const json& object, const std::string& place, const char* name) {
    const std::string text = word(object, place, name);
    std::uint64_t value = 0;
    const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), value, 16);
    if (failure != std::errc{} || end != text.data() + text.size() || text.size() != 16)
      fail(place + "." + name, "is not 16 hexadecimal digits");
    return value;
  }

  std::vector<Range> ranges(const json& object, const std::string& place, const char* name) {
    std::vector<Range> all;
    const json& list = array(object, place, name, kMostRanges);
    for (std::size_t i = 0; i < list.size() && !error; ++i) {
      const std::string here = fmt::format("{}.{}[{}]", place, name, i);
      Range range;
      range.up_to = integer(list[i], here, "up_to", all.empty() ? 1 : all.back().up_to + 1,
                            std::uint64_t{1} << 62);
      const json& ways = array(list[i], here, "ways", kMostWays);
      if (ways.empty()) fail(here + ".ways", "is empty");
      for (std::size_t k = 0; k < ways.size() && !error; ++k) {
        const std::string at = fmt::format("{}.ways[{}]", here, k);
        Way way;
        way.name = word(ways[k], at, "way");
        way.lanes = static_cast<std::uint32_t>(integer(ways[k], at, "lanes", 1, kMostLanes));
        way.microseconds = real(ways[k], at, "us", kMostMicroseconds);
        range.ways.push_back(std::move(way));
      }
      all.push_back(std::move(range));
    }
    return all;
  }

  /// Absent of tables of one host. Hosts count from 0, in the order of ranks.
  void hosts(const json& object, const std::string& place, TuningTable& table) {
    if (!object.is_object() || !object.contains("hosts")) return;
    const json& list = array(object, place, "hosts", static_cast<std::size_t>(kMostRankCount));
    int count = 0;
    for (std::size_t rank = 0; rank < list.size() && !error; ++rank) {
      const bool known = list[rank].is_number_unsigned() &&
                         list[rank].get<std::uint64_t>() <= static_cast<std::uint64_t>(count);
      if (!known) return fail(place + ".hosts", "does not count hosts from 0 on");
      table.key.hosts.push_back(list[rank].get<int>());
      count = std::max(count, table.key.hosts.back() + 1);
    }
    if (table.key.hosts.size() != static_cast<std::size_t>(table.key.rank_count))
      fail(place + ".hosts", "has not one number for each rank");
    const json& network = member(object, place, "network");
    const std::string here = place + ".network";
    table.network.link.latency_us = real(network, here, "latency_us", kMostMicroseconds);
    table.network.message_us = real(network, here, "message_us", kMostMicroseconds);
    table.network.link.gigabytes_per_second = rate(network, here);
    const json& rates = array(network, here, "rates", kMostTunedHosts);
    for (std::size_t host = 0; host < rates.size() && !error; ++host) {
      const std::string at = fmt::format("{}.rates[{}]", here, host);
      table.rates.push_back({word(rates[host], at, "name"), rate(rates[host], at)});
    }
    if (!table.rates.empty() && table.rates.size() != static_cast<std::size_t>(count))
      fail(here + ".rates", "has not one entry for each host");
  }

  /// A rate is a divisor: never 0.
  double rate(const json& object, const std::string& place) {
    const double value = real(object, place, "gigabytes_per_second", 1e9);
    if (value < 1e-9) fail(place + ".gigabytes_per_second", "is too little");
    return value;
  }

  TuningTable table(const json& object, const std::string& place) {
    TuningTable table;
    table.key.machine = hexadecimal(object, place, "machine");
    table.key.version = word(object, place, "version");
    table.key.transport = word(object, place, "transport");
    table.key.rank_count = static_cast<int>(integer(object, place, "ranks", 1, kMostRankCount));
    table.key.usable_cpus = static_cast<int>(integer(object, place, "cpus", 1, kMostRankCount));
    table.costs.link.latency_us = real(object, place, "latency_us", kMostMicroseconds);
    table.costs.link.gigabytes_per_second = real(object, place, "gigabytes_per_second", 1e9);
    table.costs.reduce_gigabytes_per_second =
        real(object, place, "reduce_gigabytes_per_second", 1e9);
    hosts(object, place, table);
    const json& collectives = member(object, place, "collectives");
    if (!collectives.is_object()) fail(place + ".collectives", "is no object");
    for (int i = 0; i < kCollectiveCount && !error; ++i) {
      const auto collective = static_cast<Collective>(i);
      const std::string name(to_string(collective));
      const auto found = collectives.find(name);
      if (found == collectives.end()) continue;
      const std::string here = place + ".collectives." + name;
      table.of(collective, false) = ranges(*found, here, "plain");
      table.of(collective, true) = ranges(*found, here, "mapped");
    }
    return table;
  }

  std::string_view where_;
};

}  // namespace

std::string tuning_text(const std::vector<TuningTable>& tables) {
  std::string text = fmt::format("{{\n  \"tutti_tuning\": {},\n  \"tables\": [", kFormat);
  for (std::size_t i = 0; i < tables.size(); ++i)
    text += (i == 0 ? "\n" : ",\n") + table_text(tables[i]);
  return text + "\n  ]\n}\n";
}

Result<std::vector<TuningTable>> parse_tuning(std::string_view text, std::string_view where) {
  const auto bad = [&](const std::string& what) {
    return Error{Code::kInvalidArgument, fmt::format("{}: {}", where, what)};
  };
  if (text.size() > kMostTuningBytes)
    return bad(fmt::format("{} bytes; a table has at most {}", text.size(), kMostTuningBytes));
  json document;
  try {
    document = json::parse(text);
  } catch (const json::parse_error& failure) {
    const std::size_t end = std::min(failure.byte, text.size());
    const auto line =
        1 + std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(end), '\n');
    return bad(fmt::format("line {} is no JSON; `tutti tune` writes it anew", line));
  } catch (const json::exception&) {  // A number beyond all bounds.
    return bad("is no JSON that can be read; `tutti tune` writes it anew");
  }
  Reader reader(where);
  auto tables = reader.file(document);
  if (reader.error) return *std::move(reader.error);
  return tables;
}

const TuningTable* find_table(const std::vector<TuningTable>& tables, const TuningKey& key) {
  const auto found = std::find_if(tables.begin(), tables.end(),
                                  [&](const TuningTable& table) { return table.key == key; });
  return found == tables.end() ? nullptr : &*found;
}

std::string why_no_table(const std::vector<TuningTable>& tables, const TuningKey& key) {
  if (tables.empty()) return "it has no tables";
  // The nearest tells most: what differs last in this order.
  const auto why = [&](const TuningTable& table) -> std::pair<int, std::string> {
    const TuningKey& has = table.key;
    const bool one = key.hosts.empty();
    // Between hosts the machines are only asked for where a table may fit.
    const bool comparable = has.hosts.empty() == one && key.machine != 0;
    if (comparable && has.machine != key.machine)
      return {0, one ? "made on another machine" : "made on other machines"};
    if (has.version != key.version)
      return {1, fmt::format("made by version {}, this is {}", has.version, key.version)};
    if (has.transport != key.transport)
      return {2, fmt::format("made over {}, this is {}", has.transport, key.transport)};
    if (has.rank_count != key.rank_count)
      return {3, fmt::format("made for {} ranks, these are {}", has.rank_count, key.rank_count)};
    if (has.hosts != key.hosts) return {4, "made for ranks that share hosts otherwise"};
    return {5, fmt::format("made on {} CPUs, here are {}", has.usable_cpus, key.usable_cpus)};
  };
  std::pair<int, std::string> best{-1, ""};
  for (const TuningTable& table : tables) best = std::max(best, why(table));
  return best.second;
}

void put_table(std::vector<TuningTable>& tables, TuningTable table) {
  for (TuningTable& old : tables) {
    if (old.key != table.key) continue;
    old = std::move(table);
    return;
  }
  tables.push_back(std::move(table));
}

}  // namespace tutti::planner
