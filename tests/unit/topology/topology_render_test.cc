// Pictures and data of graphs: complete, well-formed, and no text over another.
#include "topology/render/render.h"

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <pugixml.hpp>
#include <set>
#include <vector>

#include "support/catch.h"
#include "topology/models/model.h"

using namespace tutti;
using namespace tutti::topology;

namespace {

struct Extent {
  double left, right, top, bottom;
  std::string words;
};

// Where the texts of a picture lie, by the font's widths: 0.602 of its size for each character.
std::vector<Extent> texts_of(const pugi::xml_document& document) {
  std::vector<Extent> out;
  for (const auto& found : document.select_nodes("//text")) {
    const pugi::xml_node text = found.node();
    const double size = text.attribute("font-size").as_double();
    const std::string words = text.child_value();
    const double width = 0.602 * size * static_cast<double>(words.size());
    const bool middle = std::string(text.attribute("text-anchor").value()) == "middle";
    const double left = text.attribute("x").as_double() - (middle ? width / 2 : 0);
    const double base = text.attribute("y").as_double();
    out.push_back({left, left + width, base - 0.76 * size, base + 0.2 * size, words});
  }
  return out;
}

void check_picture(const Graph& graph) {
  pugi::xml_document document;
  const std::string svg = to_svg(graph);
  REQUIRE(document.load_string(svg.c_str(), pugi::parse_full));
  const double width = document.child("svg").attribute("width").as_double();
  const std::vector<Extent> texts = texts_of(document);
  REQUIRE_FALSE(texts.empty());
  for (std::size_t i = 0; i < texts.size(); ++i) {
    const Extent& a = texts[i];
    INFO(a.words);
    REQUIRE(a.left >= 0);
    REQUIRE(a.right <= width);
    for (std::size_t j = 0; j < i; ++j) {
      const Extent& b = texts[j];
      const bool apart =
          a.right <= b.left || b.right <= a.left || a.bottom <= b.top || b.bottom <= a.top;
      if (!apart) FAIL_CHECK('"' << a.words << "\" lies over \"" << b.words << '"');
    }
  }
  if (graph.nodes.size() > 64) return;
  std::set<std::string> titles;
  for (const auto& found : document.select_nodes("//title")) {
    const std::string title = found.node().child_value();
    titles.insert(title.substr(0, title.find('\n')));
  }
  for (const Node& node : graph.nodes) {
    INFO(node.name);
    CHECK(titles.count(node.name) == 1);
  }
}

}  // namespace

TEST_CASE("every model has a picture without texts over one another") {
  for (const Model* known : models()) {
    for (const char* size : {"", ":1", ":2", ":4", ":20"}) {
      const std::string spec = std::string(known->name) + size;
      INFO(spec);
      const auto graph = model(spec);
      REQUIRE(graph);
      check_picture(*graph);
    }
  }
}

TEST_CASE("no line of a NIC passes behind an NVSwitch") {
  for (const char* name : {"hgx-h100", "dgx-a100", "p5", "hgx-b200"}) {
    INFO(name);
    const auto graph = model(name);
    REQUIRE(graph);
    pugi::xml_document document;
    REQUIRE(document.load_string(to_svg(*graph).c_str()));
    int lines = 0, switches = 0;
    for (const auto& box : document.select_nodes("//rect[title[contains(., 'NVSwitch')]]")) {
      const double left = box.node().attribute("x").as_double();
      const double right = left + box.node().attribute("width").as_double();
      ++switches;
      for (const auto& line : document.select_nodes("//path[title[contains(., 'NIC port')]]")) {
        const double x = std::strtod(line.node().attribute("d").value() + 1, nullptr);
        ++lines;
        CHECK((x < left || x > right));
      }
    }
    CHECK(switches > 0);
    CHECK(lines >= 8 * switches);
  }
}

TEST_CASE("a picture has a title, GPUs their model and links, and many NICs that are alike a box") {
  const auto graph = model("p5");
  REQUIRE(graph);
  pugi::xml_document document;
  REQUIRE(document.load_string(to_svg(*graph, "machine.xml").c_str()));
  std::multiset<std::string> texts;
  for (const Extent& text : texts_of(document)) texts.insert(text.words);
  CHECK(texts.count("machine.xml") == 1);
  CHECK(texts.count("H100-SXM5-80GB") == 8);
  CHECK(texts.count("NV18 371 GB/s") == 8);
  CHECK(texts.count("Gen5 x16") == 8);  // GPUs; what is above them is older.
  CHECK(texts.count("12.5 GB/s each") == 8);
  CHECK(texts.count("4 x efa_28") == 1);
  CHECK(texts.count("16 GB/s") == 1);  // Between the sockets.
  // Few are drawn one by one.
  const auto few = model("hgx-h100");
  REQUIRE(few);
  CHECK(to_svg(*few).find(" each<") == std::string::npos);
}

TEST_CASE("JSON has all nodes, links and figures") {
  for (const Model* known : models()) {
    INFO(known->name);
    const auto graph = model(std::string(known->name) + ":2");
    REQUIRE(graph);
    const auto json = nlohmann::json::parse(to_json(*graph));
    REQUIRE(json["nodes"].size() == graph->nodes.size());
    REQUIRE(json["links"].size() == graph->links.size());
    REQUIRE(json["notes"].size() == graph->notes.size());
    for (std::size_t i = 0; i < graph->links.size(); ++i) {
      const Link& link = graph->links[i];
      REQUIRE(json["links"][i]["a"] == (*graph)[link.a].name);
      REQUIRE(json["links"][i]["forward_gbs"]["value"] == link.forward.value);
      REQUIRE(json["links"][i]["forward_gbs"]["origin"] == to_string(link.forward.origin));
    }
  }
}

TEST_CASE("names that mean something to XML or Graphviz are escaped") {
  Graph graph;
  Node node;
  node.name = "<a>&\"b\"";
  const NodeId host = graph.add(node);
  node.kind = NodeKind::kGpu;
  node.host = host;
  node.name = "<a>&\"b\"/gpu\\<0>\xff";
  graph.add(node);
  node.name = "other";
  node.facts["note"] = "]]>\x01";
  const NodeId gpu = graph.add(node);
  Link link;
  link.a = gpu;
  link.b = NodeId{77};  // Leads to nowhere.
  graph.add(link);

  const std::string svg = to_svg(graph);
  pugi::xml_document document;
  REQUIRE(document.load_string(svg.c_str(), pugi::parse_full));
  CHECK(svg.find("&lt;a&gt;&amp;&quot;b&quot;") != std::string::npos);
  CHECK(svg.find("<a>") == std::string::npos);
  CHECK(svg.find('\x01') == std::string::npos);
  CHECK(nlohmann::json::parse(to_json(graph))["links"][0]["b"].is_null());
  const std::string dot = to_dot(graph);
  CHECK(dot.find("\"<a>&\\\"b\\\"/gpu\\\\<0>") != std::string::npos);
}

TEST_CASE("an empty graph has a picture too") {
  pugi::xml_document document;
  CHECK(document.load_string(to_svg(Graph{}).c_str()));
  CHECK(to_dot(Graph{}).find("graph topology") == 0);
}

TEST_CASE("a host's bundle to a bar is one line with all its connections") {
  const auto graph = model("gb200-nvl72");
  REQUIRE(graph);
  CHECK(to_svg(*graph).find("1224 x NVLink") != std::string::npos);  // 17 hosts of 4 GPUs of 18.
}
