// File: topology/readers/json_reader.cc: a graph that `tutti topo show --json` or `export --format
// json` wrote (topology/render/json.cc), read back.
//
// What is missing has its default; what the text form could not say is refused, so that a graph
// from here is like any other.
#include <fmt/format.h>

#include <map>

#include "base/json.h"
#include "topology/graph/text.h"
#include "topology/graph/words.h"
#include "topology/readers/reader.h"

namespace tutti::topology {
namespace {

constexpr std::size_t kMostBytes = std::size_t{64} << 20;

/// An object's text, number, object or list; the default where there is none of that kind.
std::string text_of(const Json& from, const char* key) { return from.value(key, ""); }
double number_of(const Json& from, const char* key, double otherwise) {
  return from.value(key, otherwise);
}
int whole_of(const Json& from, const char* key, int otherwise) {
  const double value = number_of(from, key, otherwise);
  return value >= -1e9 && value <= 1e9 ? static_cast<int>(value) : otherwise;
}
const Json& part_of(const Json& from, const char* key) {
  static const Json kNothing = Json::object();
  const Json* at = from.find(key);
  return at != nullptr && (at->is_object() || at->is_array()) ? *at : kNothing;
}

Quantity quantity_of(const Json& from, const char* key) {
  const Json& part = part_of(from, key);
  if (!part.is_object()) return {};
  return {number_of(part, "value", 0),
          parse_origin(text_of(part, "origin")).value_or(Origin::kUnknown)};
}

PcieRate rate_of(const Json& from, const char* key) {
  const Json& part = part_of(from, key);
  if (!part.is_object()) return {};
  return {number_of(part, "gigatransfers", 0), whole_of(part, "width", 0)};
}

class JsonReader {
 public:
  explicit JsonReader(std::string_view source) : source_(source) {}

  Result<Graph> read(const Json& root) {
    for (const Json& node : part_of(root, "nodes")) TUTTI_RETURN_IF_ERROR(add_node(node));
    for (const auto& [id, host] : hosts_) {
      const auto at = ids_.find(host);
      if (at == ids_.end()) return wrong(graph_[id].name, "its host is no node");
      graph_[id].host = at->second;
    }
    for (const Json& link : part_of(root, "links")) TUTTI_RETURN_IF_ERROR(add_link(link));
    for (const Json& note : part_of(root, "notes")) {
      if (note.is_string()) graph_.notes.push_back(note.get<std::string>());
    }
    return std::move(graph_);
  }

 private:
  Error wrong(std::string_view where, std::string_view what) const {
    return invalid("{}: JSON: '{:.64}': {}", source_, where, what);
  }

  Status add_node(const Json& from) {
    Node node;
    node.name = from.is_object() ? text_of(from, "name") : "";
    if (node.name.empty()) return wrong("nodes", "a node without a name");
    const auto kind = parse_node_kind(text_of(from, "kind"));
    if (!kind) return wrong(node.name, "its kind is none of a node");
    node.kind = *kind;
    node.index = whole_of(from, "index", -1);
    node.bus = text_of(from, "bus");
    for (const auto& [key, value] : part_of(from, "facts").members()) {
      if (value.is_string()) node.facts[key] = value.get<std::string>();
    }
    const std::string name = node.name, host = text_of(from, "host");
    const NodeId id = graph_.add(std::move(node));
    if (!ids_.emplace(name, id).second) return wrong(name, "a second node of this name");
    if (!host.empty()) hosts_.emplace_back(id, host);
    return ok();
  }

  Status add_link(const Json& from) {
    if (!from.is_object()) return wrong("links", "a link that is no object");
    const std::string a = text_of(from, "a"), b = text_of(from, "b");
    const auto kind = parse_link_kind(text_of(from, "kind"));
    if (!kind) return wrong(a + " - " + b, "its kind is none of a link");
    const auto first = ids_.find(a), second = ids_.find(b);
    if (first == ids_.end() || second == ids_.end())
      return wrong(a + " - " + b, "a link to no node");
    Link link{*kind, first->second, second->second};
    link.count = whole_of(from, "count", 1);
    link.forward = quantity_of(from, "forward_gbs");
    link.backward = quantity_of(from, "backward_gbs");
    link.latency_us = quantity_of(from, "latency_us");
    if (const Json& pcie = part_of(from, "pcie"); !pcie.empty())
      link.pcie = Pcie{rate_of(pcie, "current"), rate_of(pcie, "maximum")};
    graph_.add(link);
    return ok();
  }

  std::string_view source_;
  Graph graph_;
  std::map<std::string, NodeId> ids_;
  std::vector<std::pair<NodeId, std::string>> hosts_;  // Names; a host may come after its parts.
};

bool is_json(std::string_view text) {
  text = text.substr(0, 4096);
  return trim(text).starts_with('{') && text.find("\"nodes\"") != std::string_view::npos;
}

Result<Imported> read_json(std::string_view text, std::string_view source) {
  if (text.size() > kMostBytes) return invalid("{}: JSON of more than 64 MiB", source);
  const Json root = Json::parse(text).value_or(nullptr);
  if (!root.is_object()) return invalid("{}: JSON that is cut or is no object", source);
  TUTTI_TRY(Graph graph, JsonReader(source).read(root));
  const auto again = parse_graph(print(graph), source);
  if (!again || *again != graph) {
    return invalid("{}: JSON of a graph that has no text form: {}", source,
                   again ? "names or numbers that it can't have" : again.error().what);
  }
  return Imported{std::move(graph), {}};
}

}  // namespace

constinit const Reader json_reader{"json", "a graph as tutti topo export --format json writes it",
                                   is_json, read_json};

}  // namespace tutti::topology
