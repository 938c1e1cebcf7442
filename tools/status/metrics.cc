#include "tools/status/metrics.h"

#include <fmt/format.h>

namespace tutti::tools {
namespace {

using exec::flight::SeenTotals;
using exec::flight::SeenTrack;

/// What stands between quotes: texts of a track are printable already.
std::string quoted(const std::string& text) {
  std::string safe;
  for (const char c : text) {
    if (c == '"' || c == '\\') safe += '\\';
    safe += c;
  }
  return '"' + safe + '"';
}

/// Lines of one metric, which have to stand together.
struct Metric {
  const char* name;
  const char* type;
  const char* help;
  std::string lines = {};

  void add(const std::string& labels, double value) {
    lines += fmt::format("{}{{{}}} {}\n", name, labels, value);
  }
  void add(const std::string& labels, std::uint64_t value) {
    lines += fmt::format("{}{{{}}} {}\n", name, labels, value);
  }
  std::string text() const {
    if (lines.empty()) return "";
    return fmt::format("# HELP {0} {1}\n# TYPE {0} {2}\n{3}", name, help, type, lines);
  }
};

struct Metrics {
  Metric calls{"tutti_calls_total", "counter", "Collective calls."};
  Metric bytes{"tutti_bytes_total", "counter",
               "Bytes of collective calls: of each the larger of input and output."};
  Metric messages{"tutti_messages_total", "counter", "Messages sent and received."};
  Metric message_bytes{"tutti_message_bytes_total", "counter", "Bytes of messages."};
  Metric call_seconds{"tutti_call_seconds_total", "counter",
                      "Time in calls by a plan and in small calls that waited long."};
  Metric waits{"tutti_waits_total", "counter", "Calls that waited for a rank that came last."};
  Metric wait_seconds{"tutti_wait_seconds_total", "counter",
                      "Time that calls waited for a rank that came last."};
  Metric waiting{"tutti_waiting_seconds", "gauge",
                 "How long the call in progress has waited; 0: none waits."};
  Metric stopped{"tutti_stopped", "gauge", "1: a signal or a debugger has stopped the process."};

  void add_totals(const std::string& labels, const SeenTotals& totals);
  std::string text() const {
    std::string all;
    for (const Metric* metric : {&calls, &bytes, &messages, &message_bytes, &call_seconds, &waits,
                                 &wait_seconds, &waiting, &stopped})
      all += metric->text();
    return all;
  }
};

double seconds(std::int64_t ns) { return static_cast<double>(ns) / 1e9; }

void Metrics::add_totals(const std::string& labels, const SeenTotals& totals) {
  for (std::size_t kind = 0; kind < totals.calls.size(); ++kind) {
    if (totals.calls[kind] == 0) continue;
    const std::string of =
        fmt::format("{},collective=\"{}\"", labels, exec::flight::kind_name(kind));
    calls.add(of, totals.calls[kind]);
    bytes.add(of, totals.bytes[kind]);
  }
  messages.add(labels, totals.messages);
  message_bytes.add(labels, totals.message_bytes);
  call_seconds.add(labels, seconds(totals.call_ns));
  for (std::size_t rank = 0; rank < totals.waits.size(); ++rank) {
    if (totals.waits[rank].calls == 0) continue;
    const std::string of = fmt::format("{},last=\"{}\"", labels, rank);
    waits.add(of, totals.waits[rank].calls);
    wait_seconds.add(of, seconds(totals.waits[rank].ns));
  }
}

}  // namespace

std::string metrics_of(const std::vector<CommStatus>& comms, std::int64_t now_ns) {
  Metrics metrics;
  for (const CommStatus& comm : comms) {
    for (const auto& [number, rank] : comm.by_rank) {
      const SeenTrack& track = rank.found->track;
      const std::string labels = fmt::format(
          "job={},communicator=\"{:016x}{}\",rank=\"{}\"", quoted(track.job),
          track.communicator[0] ^ track.communicator[1], track.devices ? "d" : "", number);
      metrics.add_totals(labels, track.totals);
      const bool waits = rank.awaited >= 0 && rank.since_ns != 0;
      metrics.waiting.add(labels, waits ? seconds(now_ns - rank.since_ns) : 0.);
      metrics.stopped.add(labels, std::uint64_t{rank.found->stopped});
    }
  }
  return metrics.text();
}

}  // namespace tutti::tools
