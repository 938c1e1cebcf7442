#include "planner/tuning_table.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/json.h"

namespace tutti::planner {
namespace {

constexpr int kFormat = 1;
constexpr double kMostMicroseconds = 1e12;
constexpr int kMostRankCount = 1 << 20;
constexpr std::uint32_t kMostLanes = 64;
constexpr std::size_t kMostWord = 64;

/// A number so that reading it gives the same bits; a word in quotes.
template <class Value>
std::string text_of(const Value& value) {
  return Json(value).text();
}

/// What `text` makes of each item, one after the other.
template <class Items, class Text>
std::string joined(const Items& items, std::string_view separator, Text text) {
  std::string all;
  for (const auto& item : items) {
    if (!all.empty()) all += separator;
    all += text(item);
  }
  return all;
}

std::string ranges_text(const std::vector<Range>& ranges) {
  const auto way_text = [](const Way& way) {
    return fmt::format(R"({{"way": {}, "lanes": {}, "us": {}}})", text_of(way.name), way.lanes,
                       text_of(way.microseconds));
  };
  return "[" +
         joined(ranges, ",",
                [&](const Range& range) {
                  return fmt::format("\n          {{\"up_to\": {}, \"ways\": [{}]}}", range.up_to,
                                     joined(range.ways, ", ", way_text));
                }) +
         "]";
}

/// The part that only tables of several hosts have.
std::string hosts_text(const TuningTable& table) {
  if (table.key.hosts.empty()) return {};
  const NetworkCost& network = table.network;
  return fmt::format(
      "      \"hosts\": [{}],\n      \"network\": {{\"latency_us\": {}, \"message_us\": {}, "
      "\"gigabytes_per_second\": {}, \"rates\": [{}]}},\n",
      fmt::join(table.key.hosts, ", "), text_of(network.link.latency_us),
      text_of(network.message_us), text_of(network.link.gigabytes_per_second),
      joined(table.rates, ",", [](const HostRate& rate) {
        return fmt::format("\n        {{\"name\": {}, \"gigabytes_per_second\": {}}}",
                           text_of(rate.name), text_of(rate.gigabytes_per_second));
      }));
}

std::string table_text(const TuningTable& table) {
  const TuningKey& key = table.key;
  const HostCosts& costs = table.costs;
  std::string collectives;
  for (int i = 0; i < kCollectiveCount; ++i) {
    const auto collective = static_cast<Collective>(i);
    const auto& plain = table.of(collective, false);
    const auto& mapped = table.of(collective, true);
    if (plain.empty() && mapped.empty()) continue;
    collectives +=
        fmt::format("{}\n        \"{}\": {{\n        \"plain\": {},\n        \"mapped\": {}}}",
                    collectives.empty() ? "" : ",", to_string(collective), ranges_text(plain),
                    ranges_text(mapped));
  }
  return fmt::format(
      "\n    {{\n      \"machine\": \"{:016x}\", \"version\": {}, \"transport\": {},\n"
      "      \"ranks\": {}, \"cpus\": {},\n"
      "      \"latency_us\": {}, \"gigabytes_per_second\": {}, "
      "\"reduce_gigabytes_per_second\": {},\n{}      \"collectives\": {{{}\n      }}\n    }}",
      key.machine, text_of(key.version), text_of(key.transport), key.rank_count, key.usable_cpus,
      text_of(costs.link.latency_us), text_of(costs.link.gigabytes_per_second),
      text_of(costs.reduce_gigabytes_per_second), hosts_text(table), collectives);
}

/// A value of a document, and where in it.
struct Node {
  const Json& value;
  std::string place;
};

/// Takes a document apart. The first thing that is wrong is kept, with its place.
class Reader {
 public:
  std::optional<Error> error;

  explicit Reader(std::string_view where) : where_(where) {}

  std::vector<TuningTable> file(const Json& document) {
    const Node all{document, ""};
    if (!document.is_object()) fail(all, "is no table of tunings");
    if (integer(all, "tutti_tuning", 0, 1'000'000) != kFormat) {
      fail({document, "tutti_tuning"},
           fmt::format("is not {}, the form that this version reads", kFormat));
    }
    std::vector<TuningTable> tables;
    for (const Node& each : array(all, "tables", kMostTables)) {
      tables.push_back(table(each));
      if (error) break;
    }
    return tables;
  }

 private:
  void fail(const Node& at, std::string_view what) {
    if (error) return;
    error = Error{Code::kInvalidArgument,
                  fmt::format("{}: {}{}{}", where_, at.place, at.place.empty() ? "" : " ", what)};
  }

  Node member(const Node& object, const char* name) {
    static const Json nothing;
    const std::string place = object.place.empty() ? name : object.place + "." + name;
    if (const Json* found = object.value.find(name)) return {*found, place};
    fail({nothing, place}, "is missing");
    return {nothing, place};
  }

  std::vector<Node> array(const Node& object, const char* name, std::size_t most) {
    const Node list = member(object, name);
    std::vector<Node> entries;
    if (!list.value.is_array() || list.value.size() > most) {
      fail(list, fmt::format("is no list of at most {} entries", most));
      return entries;
    }
    for (const Json& entry : list.value)
      entries.push_back({entry, fmt::format("{}[{}]", list.place, entries.size())});
    return entries;
  }

  double real(const Node& object, const char* name, double most) {
    const Node at = member(object, name);
    const double real = at.value.is_number() ? at.value.get<double>() : -1;
    if (std::isfinite(real) && real >= 0 && real <= most) return real;
    fail(at, fmt::format("is no number from 0 to {:g}", most));
    return 0;
  }

  std::uint64_t integer(const Node& object, const char* name, std::uint64_t least,
                        std::uint64_t most) {
    const Node at = member(object, name);
    if (at.value.is_number_unsigned()) {
      const auto whole = at.value.get<std::uint64_t>();
      if (whole >= least && whole <= most) return whole;
    }
    fail(at, fmt::format("is no whole number from {} to {}", least, most));
    return least;
  }

  /// Printable, so that it can be shown in one line.
  std::string word(const Node& object, const char* name) {
    const Node at = member(object, name);
    std::string text = at.value.is_string() ? at.value.get<std::string>() : "";
    const bool printable = std::ranges::all_of(text, [](char c) { return c > ' ' && c <= '~'; });
    if (!text.empty() && text.size() <= kMostWord && printable) return text;
    fail(at, fmt::format("is no word of at most {} letters", kMostWord));
    return "?";
  }

  std::uint64_t hexadecimal(const Node& object, const char* name) {
    const std::string text = word(object, name);
    std::uint64_t value = 0;
    const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), value, 16);
    if (failure != std::errc{} || end != text.data() + text.size() || text.size() != 16)
      fail(member(object, name), "is not 16 hexadecimal digits");
    return value;
  }

  std::vector<Range> ranges(const Node& object, const char* name) {
    std::vector<Range> all;
    for (const Node& each : array(object, name, kMostRanges)) {
      Range range;
      range.up_to =
          integer(each, "up_to", all.empty() ? 1 : all.back().up_to + 1, std::uint64_t{1} << 62);
      const std::vector<Node> ways = array(each, "ways", kMostWays);
      if (ways.empty()) fail(member(each, "ways"), "is empty");
      for (const Node& way : ways) {
        range.ways.push_back({word(way, "way"),
                              static_cast<std::uint32_t>(integer(way, "lanes", 1, kMostLanes)),
                              real(way, "us", kMostMicroseconds)});
      }
      all.push_back(std::move(range));
    }
    return all;
  }

  /// Absent of tables of one host. Hosts count from 0, in the order of ranks.
  void hosts(const Node& object, TuningTable& table) {
    if (!object.value.is_object() || !object.value.contains("hosts")) return;
    const Node list = member(object, "hosts");
    std::size_t count = 0;
    for (const Node& host : array(object, "hosts", static_cast<std::size_t>(kMostRankCount))) {
      if (!host.value.is_number_unsigned() || host.value.get<std::uint64_t>() > count)
        return fail(list, "does not count hosts from 0 on");
      table.key.hosts.push_back(host.value.get<int>());
      count = std::max(count, host.value.get<std::size_t>() + 1);
    }
    if (table.key.hosts.size() != static_cast<std::size_t>(table.key.rank_count))
      fail(list, "has not one number for each rank");
    const Node network = member(object, "network");
    table.network.link.latency_us = real(network, "latency_us", kMostMicroseconds);
    table.network.message_us = real(network, "message_us", kMostMicroseconds);
    table.network.link.gigabytes_per_second = rate(network);
    for (const Node& host : array(network, "rates", kMostTunedHosts))
      table.rates.push_back({word(host, "name"), rate(host)});
    if (!table.rates.empty() && table.rates.size() != count)
      fail(member(network, "rates"), "has not one entry for each host");
  }

  /// A rate is a divisor: never 0.
  double rate(const Node& object) {
    const double value = real(object, "gigabytes_per_second", 1e9);
    if (value < 1e-9) fail(member(object, "gigabytes_per_second"), "is too little");
    return value;
  }

  TuningTable table(const Node& object) {
    TuningTable table;
    table.key.machine = hexadecimal(object, "machine");
    table.key.version = word(object, "version");
    table.key.transport = word(object, "transport");
    table.key.rank_count = static_cast<int>(integer(object, "ranks", 1, kMostRankCount));
    table.key.usable_cpus = static_cast<int>(integer(object, "cpus", 1, kMostRankCount));
    table.costs.link.latency_us = real(object, "latency_us", kMostMicroseconds);
    table.costs.link.gigabytes_per_second = real(object, "gigabytes_per_second", 1e9);
    table.costs.reduce_gigabytes_per_second = real(object, "reduce_gigabytes_per_second", 1e9);
    hosts(object, table);
    const Node collectives = member(object, "collectives");
    if (!collectives.value.is_object()) fail(collectives, "is no object");
    for (int i = 0; i < kCollectiveCount && !error; ++i) {
      const auto collective = static_cast<Collective>(i);
      const std::string name(to_string(collective));
      if (!collectives.value.contains(name)) continue;
      const Node ways = member(collectives, name.c_str());
      table.of(collective, false) = ranges(ways, "plain");
      table.of(collective, true) = ranges(ways, "mapped");
    }
    return table;
  }

  std::string_view where_;
};

}  // namespace

std::string tuning_text(const std::vector<TuningTable>& tables) {
  return fmt::format("{{\n  \"tutti_tuning\": {},\n  \"tables\": [{}\n  ]\n}}\n", kFormat,
                     joined(tables, ",", table_text));
}

Result<std::vector<TuningTable>> parse_tuning(std::string_view text, std::string_view where) {
  const auto bad = [&](const std::string& what) {
    return Error{Code::kInvalidArgument, fmt::format("{}: {}", where, what)};
  };
  if (text.size() > kMostTuningBytes)
    return bad(fmt::format("{} bytes; a table has at most {}", text.size(), kMostTuningBytes));
  Json::Fault fault;
  const auto document = Json::parse(text, &fault);
  if (!document) {
    if (fault.number) return bad("is no JSON that can be read; `tutti tune` writes it anew");
    const auto end = text.begin() + static_cast<std::ptrdiff_t>(std::min(fault.byte, text.size()));
    return bad(fmt::format("line {} is no JSON; `tutti tune` writes it anew",
                           1 + std::count(text.begin(), end, '\n')));
  }
  Reader reader(where);
  auto tables = reader.file(*document);
  if (reader.error) return *std::move(reader.error);
  return tables;
}

const TuningTable* find_table(const std::vector<TuningTable>& tables, const TuningKey& key) {
  const auto found = std::ranges::find(tables, key, &TuningTable::key);
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
  const auto old = std::ranges::find(tables, table.key, &TuningTable::key);
  (old == tables.end() ? tables.emplace_back() : *old) = std::move(table);
}

}  // namespace tutti::planner
