#include "tools/report/page.h"

#include <fmt/format.h>

#include "base/json.h"
#include "base/shown_time.h"
#include "perf/sweep/svg.h"
#include "tools/report/parts.h"
#include "tools/topo/topo.h"
#include "topology/graph/paths.h"

namespace tutti::tools {
namespace {

using perf::escaped;
using topology::Adjacency;
using topology::Graph;
using topology::NodeId;
using topology::Path;

// The page has the paths between so many nodes; of a larger machine, between the first ones.
constexpr std::size_t kMostEnds = 32;

std::string link_words(const topology::Link& link) {
  std::string words(to_string(link.kind));
  if (link.count > 1) words += fmt::format(" x{}", link.count);
  return words;
}

std::string gigabytes(double rate) {
  return rate > 0 ? rate_text(rate) + " GB/s" : std::string("not known");
}

Json json_of(const Graph& graph, const Path& path) {
  Json out{{"type", name_of(graph, path)},
           {"meaning", meaning_of(graph, path)},
           {"rate", gigabytes(path.gigabytes_per_second)},
           {"nodes", Json::array({graph[path.from].name})},
           {"links", Json::array()}};
  for (std::size_t i = 0; i < path.edges.size(); ++i) {
    const Adjacency::Edge& edge = path.edges[i];
    const auto& rate = bandwidth(graph, edge);
    out["nodes"].push_back(graph[edge.to].name);
    out["links"].push_back({{"text", link_words(graph.links[edge.link])},
                            {"rate", gigabytes(rate.value)},
                            {"origin", to_string(rate.origin)},
                            {"narrow", i == path.bottleneck}});
  }
  return out;
}

/// From each end to each other one: a link may be narrower one way than the other.
Json paths_of(const Graph& graph) {
  std::vector<NodeId> ends = endpoints(graph);
  if (ends.size() > kMostEnds) ends.resize(kMostEnds);
  const Adjacency adjacency(graph);
  auto all = Json::object();
  for (const NodeId from : ends) {
    for (const Path& path : topology::best_paths(graph, adjacency, from, ends)) {
      if (!path.edges.empty()) all[graph[from].name][graph[path.to].name] = json_of(graph, path);
    }
  }
  return all;
}

/// For a script element: no end of it can be inside.
std::string as_data(const Json& json) {
  std::string text = json.text({.ascii = true});
  for (std::size_t at = 0; (at = text.find('<', at)) != std::string::npos;)
    text.replace(at, 1, "\\u003c");
  return text;
}

std::string size_words(std::size_t bytes) {
  if (bytes >= 1 << 20) return fmt::format("{} MiB", bytes >> 20);
  return bytes >= 1024 ? fmt::format("{} KiB", bytes >> 10) : fmt::format("{} B", bytes);
}

std::string microseconds(double us) {
  return us >= 0.01 ? fmt::format("{:.4g}", us) : std::string("&lt; 0.01");
}

std::string facts_of(const Page& page) {
  std::string out = "<div class=\"facts\">";
  for (const auto& [name, value] : page.facts)
    out += fmt::format("<span><b>{}</b> {}</span>", escaped(name), escaped(value));
  return out + "</div>\n";
}

std::string findings_of(const Page& page, const Graph& graph) {
  if (page.findings.empty())
    return "<p>Nothing was found to be wrong with what is known of it.</p>\n";
  std::string out;
  for (const topology::Finding& finding : page.findings) {
    const bool node = graph.find(finding.where).exists();
    const std::string where =
        node ? fmt::format("<button data-node=\"{0}\">{0}</button>: ", escaped(finding.where))
        : finding.where.empty() ? ""
                                : escaped(finding.where) + ": ";
    const std::string loss =
        finding.loss > 0 ? fmt::format(" It costs {:.0f} % of its bandwidth.", finding.loss * 100)
                         : "";
    out += fmt::format(
        "<div class=\"finding {0}\"><p><span class=\"severity\">{0}</span> {1}{2}.{3}</p>",
        to_string(finding.severity), where, escaped(finding.what), loss);
    if (!finding.evidence.empty())
      out += fmt::format("<p class=\"soft\">{}</p>", escaped(finding.evidence));
    if (!finding.remedy.empty())
      out += fmt::format("<p>What to do: {}</p>", escaped(finding.remedy));
    out += "</div>\n";
  }
  return out;
}

std::string bounds_of(const Page& page) {
  if (!page.no_bounds.empty())
    return fmt::format("<p class=\"soft\">{}</p>\n", escaped(page.no_bounds));
  std::string out =
      "<table id=\"bounds\"><tr><th>collective</th><th class=\"number\">algbw, GB/s</th>"
      "<th class=\"number\">busbw, GB/s</th><th>what holds it up</th></tr>\n";
  for (const BoundRow& row : page.bounds)
    out += fmt::format(
        "<tr><td>{}</td><td class=\"number\">{:.1f}</td><td "
        "class=\"number\">{:.1f}</td><td>{}{}</td>"
        "</tr>\n",
        escaped(row.collective), row.algbw, row.busbw, escaped(row.cut),
        row.exact ? "; packed trees or paths reach it" : "");
  return out + "</table>\n";
}

std::string choices_of(const Page& page) {
  if (!page.no_choices.empty())
    return fmt::format("<p class=\"soft\">{}</p>\n", escaped(page.no_choices));
  std::string out =
      "<table id=\"choices\"><tr><th class=\"number\">size</th><th>chosen</th><th "
      "class=\"number\">us</th>"
      "<th class=\"number\">bound, us</th><th class=\"number\">% of bound</th></tr>\n";
  for (const Choice& choice : page.choices)
    out += fmt::format(
        "<tr><td class=\"number\">{}</td><td>{}</td><td class=\"number\">{}</td>"
        "<td class=\"number\">{}</td><td class=\"number\">{}</td></tr>\n",
        size_words(choice.bytes), escaped(choice.way), microseconds(choice.us),
        is_shown(choice.bound_us) ? microseconds(choice.bound_us) : "-",
        is_shown(choice.bound_us) && choice.us > 0
            ? fmt::format("{:.1f}", 100 * choice.bound_us / choice.us)
            : "-");
  return out + "</table>\n";
}

std::string sweeps_of(const Page& page) {
  if (page.sweeps.empty())
    return "<p class=\"soft\">No measurement was given: <code>all_reduce_perf --bound -J sweep.json"
           "</code> makes one, <code>tutti report --sweep sweep.json</code> shows it.</p>\n";
  std::string out;
  for (const Sweep& sweep : page.sweeps)
    out += fmt::format("<div class=\"chart\">{}</div><p class=\"soft\">{}: <code>{}</code></p>\n",
                       sweep.chart, escaped(sweep.file), escaped(sweep.command));
  return out;
}

}  // namespace

std::string to_html(const Page& page, const Graph& graph) {
  const auto hosts = static_cast<int>(graph.all(topology::NodeKind::kHost).size());
  const Json data{{"hosts", hosts}, {"paths", paths_of(graph)}};
  std::string out = fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      // Nothing is loaded from anywhere but its server, and the browser sees to that.
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src "
      "'unsafe-inline'; script-src 'unsafe-inline'{2}\">\n"
      "<meta name=\"viewport\" content=\"width=device-width\">\n<title>{0}</title>\n"
      "<style>\n{1}</style>\n</head>\n<body>\n<h1>{0}</h1>\n",
      escaped(page.title), kPageStyle, page.live ? "; connect-src 'self'" : "");
  out += facts_of(page);
  out += page.live ? "<nav><a href=\"#running\">Running</a>" : "<nav>";
  out +=
      "<a href=\"#machine\">Machine</a><a href=\"#findings\">Findings</a>"
      "<a href=\"#bounds-of\">Bounds</a><a href=\"#choices-of\">Choices</a>"
      "<a href=\"#measured\">Measured</a><a href=\"#about\">Versions and settings</a></nav>\n";
  if (page.live) {
    out += "<h2 id=\"running\">What runs now</h2>\n<p id=\"seen\" class=\"soft\"></p>\n";
    out += "<div id=\"live\"></div>\n";
  }
  out += "<h2 id=\"machine\">The machine</h2>\n<div class=\"machine\"><div class=\"picture\">" +
         page.picture + "</div><div id=\"panel\" aria-live=\"polite\"></div></div>\n";
  for (const std::string& note : graph.notes)
    out += fmt::format("<p class=\"soft\">{}</p>\n", escaped(note));
  out += "<h2 id=\"findings\">What is wrong</h2>\n" + findings_of(page, graph);
  out += "<h2 id=\"bounds-of\">What no algorithm can beat</h2>\n" + bounds_of(page);
  out += "<h2 id=\"choices-of\">What an all-reduce of float32 chooses</h2>\n" + choices_of(page);
  if (!page.timeline.empty()) out += "<div class=\"chart\">" + page.timeline + "</div>\n";
  out += "<h2 id=\"measured\">What was measured</h2>\n" + sweeps_of(page);
  out += fmt::format(
      "<h2 id=\"about\">Versions and settings</h2>\n<details><summary>tutti info"
      "</summary><pre>{}</pre></details>\n",
      escaped(page.about));
  out += "<script type=\"application/json\" id=\"data\">" + as_data(data) +
         "</script>\n<script>\n" + std::string(kPageScript) + (page.live ? kPageLive : "") +
         "</script>\n</body>\n</html>\n";
  return out;
}

}  // namespace tutti::tools
