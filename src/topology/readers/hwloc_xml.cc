// libhwloc reads files in a child process (isolate.h), which hands back the graph in its text form.
#include <nlohmann/json.hpp>

#include "topology/graph/text.h"
#include "topology/readers/hwloc_reader.h"
#include "topology/readers/isolate.h"
#include "topology/readers/reader.h"
#include "topology/readers/xml.h"

namespace tutti::topology {
namespace {

using nlohmann::json;

std::string said(const Result<Imported>& made) {
  json text;
  if (!made) {
    text = {{"code", static_cast<int>(made.error().code)}, {"error", made.error().what}};
  } else {
    text = {{"graph", print(made->graph)}, {"findings", json::array()}};
    for (const Finding& f : made->findings)
      text["findings"].push_back(
          {static_cast<int>(f.severity), f.code, f.where, f.what, f.evidence, f.remedy, f.loss});
  }
  return text.dump(-1, ' ', false, json::error_handler_t::replace);
}

Result<Imported> understood(const std::string& text, std::string_view source) {
  const json made = json::parse(text, nullptr, false);
  const auto strange = [&] {
    return Error{Code::kInternal, std::string(source) + ": the child said something else", {}, {}};
  };
  if (!made.is_object()) return strange();
  if (made.contains("error"))
    return Error{static_cast<Code>(made.value("code", 0)), made.value("error", ""), {}, {}};
  if (!made.contains("graph") || !made.contains("findings")) return strange();
  TUTTI_TRY(Graph graph, parse_graph(made.value("graph", ""), source));
  Imported imported{std::move(graph), {}};
  for (const json& f : made["findings"]) {
    imported.findings.push_back(
        {static_cast<Severity>(f[0].get<int>()), f[1], f[2], f[3], f[4], f[5], f[6].get<double>()});
  }
  return imported;
}

Result<Imported> read_hwloc(std::string_view text, std::string_view source) {
  TUTTI_TRY(const std::string made, in_child([&] { return said(read_hwloc_here(text, source)); },
                                             std::string(source) + ": libhwloc can't read it"));
  return understood(made, source);
}

bool is_hwloc(std::string_view text) { return first_element(text) == "topology"; }

}  // namespace

constinit const Reader hwloc_xml_reader{"hwloc_xml", "hwloc's XML, as lstopo writes it", is_hwloc,
                                        read_hwloc};

}  // namespace tutti::topology
