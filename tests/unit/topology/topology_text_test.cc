// The text form: random graphs come back exactly; texts of strangers are errors with line and
// column.
#include <fmt/format.h>

#include <random>

#include "support/catch.h"
#include "topology/graph/text.h"

using namespace tutti::topology;

namespace {

class RandomGraphs {
 public:
  explicit RandomGraphs(unsigned seed) : random_(seed) {}

  Graph next() {
    Graph graph;
    const int nodes = 1 + below(12);
    for (int i = 0; i < nodes; ++i) {
      Node node{static_cast<NodeKind>(below(11)),
                fmt::format("{}#{}", word(), i),
                {},
                below(9) - 1,
                below(2) == 0 ? "" : fmt::format("0000:{:02x}:00.0", i),
                {}};
      if (below(3) != 0) node.host = {static_cast<std::uint32_t>(below(nodes))};
      for (int k = below(4); k > 0; --k) node.facts[fmt::format("key_{}", k)] = text();
      graph.add(std::move(node));
    }
    for (int i = below(20); i > 0; --i) {
      Link link{static_cast<LinkKind>(below(8)),
                {static_cast<std::uint32_t>(below(nodes))},
                {static_cast<std::uint32_t>(below(nodes))},
                1 + below(18),
                quantity(),
                quantity(),
                quantity(),
                {}};
      if (below(2) == 0) link.pcie = Pcie{rate(), rate()};
      graph.add(std::move(link));
    }
    for (int i = below(3); i > 0; --i) graph.notes.push_back(text());
    return graph;
  }
  int below(int bound) { return static_cast<int>(random_() % static_cast<unsigned>(bound)); }

 private:
  double number() {
    const double value = std::uniform_real_distribution<>(0, 1)(random_);
    return below(2) == 0 ? value * 1e-7 : value * 1e13;
  }
  Quantity quantity() {
    const auto origin = static_cast<Origin>(below(6));
    return origin == Origin::kUnknown ? Quantity{} : Quantity{number(), origin};
  }
  PcieRate rate() { return below(3) == 0 ? PcieRate{} : PcieRate{number() + 1, below(17)}; }
  std::string word() {
    std::string made;
    for (int i = below(6); i >= 0; --i) made += static_cast<char>('!' + below(94));
    return made;
  }
  std::string text() {
    std::string made;
    for (int i = below(12); i > 0; --i) made += static_cast<char>(below(256));
    return made;
  }
  std::mt19937 random_;
};

std::string refusal(std::string_view text) {
  const auto graph = parse_graph(text, "x.topo");
  return graph ? "accepted" : graph.error().what;
}

}  // namespace

TEST_CASE("any graph comes back from its text exactly") {
  RandomGraphs graphs(7);
  for (int i = 0; i < 2000; ++i) {
    const Graph graph = graphs.next();
    const std::string text = print(graph);
    INFO(text);
    const auto again = parse_graph(text, "x.topo");
    INFO((again ? "" : again.error().what));
    REQUIRE(again);
    REQUIRE(*again == graph);
    REQUIRE(print(*again) == text);
  }
}

TEST_CASE("a text that was cut or changed is a graph or an error, and what it is prints again") {
  RandomGraphs graphs(8);
  int accepted = 0, refused = 0;
  for (int i = 0; i < 3000; ++i) {
    std::string text = print(graphs.next());
    if (i % 2 == 0) {
      text.resize(static_cast<std::size_t>(graphs.below(static_cast<int>(text.size()))));
    } else {
      for (int k = 0; k < 3; ++k) {
        text[static_cast<std::size_t>(graphs.below(static_cast<int>(text.size())))] =
            static_cast<char>(graphs.below(256));
      }
    }
    const auto graph = parse_graph(text, "x.topo");
    (graph ? accepted : refused) += 1;
    if (!graph) {
      REQUIRE(graph.error().what.starts_with("x.topo:"));
      continue;
    }
    const auto again = parse_graph(print(*graph), "again");
    REQUIRE(again);
    REQUIRE(*again == *graph);
  }
  CHECK(accepted > 100);
  CHECK(refused > 100);
}

TEST_CASE("people's text: comments, blank lines, hosts after what is in them") {
  const auto graph = parse_graph(
      "tutti topology 1\r\n\n# two GPUs\nnote \"by hand\"\n"
      "gpu host0/gpu0 host=host0 index=0 bus=0000:07:00.0 .sm=90 .text=\"a b\\x0a\\\"\"  # one\n"
      "gpu host0/gpu1 host=host0\nhost host0\n"
      "nvlink host0/gpu0 host0/gpu1 count=18 forward=370.8:table backward=? current=16x8\n",
      "x");
  REQUIRE(graph);
  CHECK(graph->notes == std::vector<std::string>{"by hand"});
  CHECK((*graph)[graph->nodes[0].host].name == "host0");
  CHECK(graph->nodes[0].facts.at("text") == "a b\n\"");
  const Link& link = graph->links.at(0);
  CHECK(link.count == 18);
  CHECK(link.forward == Quantity{370.8, Origin::kTable});
  CHECK_FALSE(link.backward.known());
  CHECK(link.pcie == Pcie{{16, 8}, {}});
}

TEST_CASE("errors say line, column and what") {
  const std::string head = "tutti topology 1\nhost h\n";
  CHECK(refusal("") == "x.topo:1:1: the first line must be 'tutti topology 1'");
  CHECK(refusal("tutti topology 2\n") == "x.topo:1:1: the first line must be 'tutti topology 1'");
  CHECK(refusal(head + "gpu") == "x.topo:3:1: a name is missing: KIND NAME key=value ...");
  CHECK(refusal(head + "host h") == "x.topo:3:6: there is a node 'h' already");
  CHECK(refusal(head + "gpu g host=x") == "x.topo:3:7: no node 'x'");
  CHECK(refusal(head + "gpu g index=1 index=2") == "x.topo:3:15: index is said twice");
  CHECK(refusal(head + "gpu g index=1x") ==
        "x.topo:3:7: index must be a whole number from 0 on, not '1x'");
  CHECK(refusal(head + "pcie h g") == "x.topo:3:8: no node 'g' before this line");
  CHECK(refusal(head + "tpu g") == "x.topo:3:1: 'tpu' is no kind of node or link, and not note");
  CHECK(refusal(head + "pcie h h forward=-1:table").starts_with("x.topo:3:10: forward must be"));
  CHECK(refusal(head + "pcie h h forward=1").starts_with("x.topo:3:10: forward must be"));
  CHECK(refusal(head + "pcie h h forward=nan:table").starts_with("x.topo:3:10: forward must be"));
  CHECK(refusal(head + "pcie h h maximum=16").starts_with("x.topo:3:10: maximum must be"));
  CHECK(refusal(head + "note \"open") == "x.topo:3:6: this quote is not closed on its line");
  CHECK(refusal(head + "note \"\\q\"") == "x.topo:3:7: an escape is one of \\\" \\\\ \\xNN");
  CHECK(refusal(head + "gpu g .Sm=1").starts_with("x.topo:3:7: a node has host, index, bus"));
}
