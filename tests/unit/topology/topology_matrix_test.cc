// Tables of `nvidia-smi topo -m` as people paste them: what the graph keeps of their classes, and
// what they do to the reader with a sick GPU, cells and rows that are gone, several tables.
#include <fmt/format.h>

#include <map>
#include <random>
#include <vector>

#include "support/catch.h"
#include "support/topology/topology_texts.h"
#include "topology/graph/paths.h"
#include "topology/graph/words.h"
#include "topology/readers/reader.h"

using namespace tutti;
using namespace tutti::topology;
using test::find;
using test::read;
using test::refusal;

namespace {

using Rows = std::vector<std::vector<std::string>>;

// As many GPUs, all joined alike.
Rows alike(std::size_t count, const std::string& word) {
  Rows rows(count, std::vector<std::string>(count, word));
  for (std::size_t i = 0; i < count; ++i) rows[i][i] = "X";
  return rows;
}

void set(Rows& rows, std::size_t i, const std::string& word) {
  for (std::size_t j = 0; j < rows.size(); ++j) {
    if (i != j) rows[i][j] = rows[j][i] = word;
  }
}

// The first `gpus` are GPUs, the others NICs; half of all on each NUMA node.
std::string table(const Rows& rows, std::size_t gpus) {
  const auto name = [&](std::size_t i) {
    return i < gpus ? fmt::format("GPU{}", i) : fmt::format("NIC{}", i - gpus);
  };
  std::string text;
  for (std::size_t i = 0; i < rows.size(); ++i) text += "\t" + name(i);
  text += "\tCPU Affinity\tNUMA Affinity\n";
  for (std::size_t i = 0; i < rows.size(); ++i) {
    text += name(i);
    for (const std::string& word : rows[i]) text += "\t" + word;
    text += i < gpus ? fmt::format("\t{0}-{0}\t{0}\n", i < gpus / 2 ? 0 : 1) : "\n";
  }
  return text;
}
std::string table(const Rows& rows) { return table(rows, rows.size()); }

// NVLinks of each GPU.
std::vector<int> links_of(const Graph& graph) {
  std::vector<int> links;
  for (const NodeId gpu : graph.all(NodeKind::kGpu)) {
    links.push_back(0);
    for (const Link& link : graph.links) {
      const bool own = link.a == gpu || link.b == gpu;
      if (own && link.kind == LinkKind::kNvlink) links.back() += link.count;
    }
  }
  return links;
}

std::string without(std::string text, const std::string& what, const std::string& instead) {
  const std::size_t at = text.find(what);
  REQUIRE(at != std::string::npos);
  return text.replace(at, what.size(), instead);
}

}  // namespace

TEST_CASE("the paths of a graph have the classes of its table, whatever tree they are of") {
  std::mt19937 random(5);
  for (int round = 0; round < 40; ++round) {
    // Each device has a NUMA node, a box of switches and a switch in it; a box has a host bridge.
    std::array<int, 4> bridge{};
    for (int& one : bridge) one = static_cast<int>(random() % 2);
    const std::size_t gpus = 2 + random() % 6, count = gpus + random() % 5;
    std::vector<std::array<int, 3>> place(count);
    for (std::size_t i = 0; i < count; ++i) {
      place[i][0] = i < gpus ? (i < gpus / 2 ? 0 : 1) : static_cast<int>(random() % 2);
      place[i][1] = place[i][0] * 2 + static_cast<int>(random() % 2);
      place[i][2] = place[i][1] * 2 + static_cast<int>(random() % 2);
    }
    Rows rows = alike(count, "SYS");
    for (std::size_t i = 0; i < count; ++i) {
      for (std::size_t j = 0; j < count; ++j) {
        if (i == j || place[i][0] != place[j][0]) continue;
        const auto bridge_of = [&](std::size_t at) {
          return bridge[static_cast<std::size_t>(place[at][1])];
        };
        rows[i][j] = place[i][2] == place[j][2]     ? "PIX"
                     : place[i][1] == place[j][1]   ? "PXB"
                     : bridge_of(i) == bridge_of(j) ? "PHB"
                                                    : "NODE";
      }
    }
    const std::string text = table(rows, gpus);
    const Graph graph = read(text).graph;
    const Adjacency adjacency(graph);
    std::vector<NodeId> nodes = graph.all(NodeKind::kGpu);
    for (const NodeId nic : graph.all(NodeKind::kNic)) nodes.push_back(nic);
    REQUIRE(nodes.size() == count);
    for (std::size_t i = 0; i < count; ++i) {
      for (std::size_t j = 0; j < count; ++j) {
        if (i == j) continue;
        INFO(text << graph[nodes[i]].name << " to " << graph[nodes[j]].name);
        CHECK(name_of(graph, best_path(graph, adjacency, nodes[i], nodes[j])) == rows[i][j]);
      }
    }
  }
}

TEST_CASE("NVLinks of more peers than a chip has are to switches, of those that have any") {
  for (const auto& [word, links] : {std::pair{"NV18", 18}, {"NV12", 12}, {"NV8", 8}}) {
    Rows rows = alike(8, word);
    CHECK(links_of(read(table(rows)).graph) == std::vector<int>(8, links));
    // One GPU off NVLink is what is to be found, not a reason to refuse the table.
    set(rows, 3, "SYS");
    const Imported sick = read(table(rows));
    std::vector<int> expected(8, links);
    expected[3] = 0;
    CHECK(links_of(sick.graph) == expected);
    REQUIRE(find(sick.findings, "gpu-without-links") != nullptr);
    CHECK(find(sick.findings, "gpu-without-links")->where == "host0/gpu3");
    CHECK(find(sick.findings, "gpu-without-links")->severity == Severity::kError);
    // One with a link less than the others.
    set(rows, 3, fmt::format("NV{}", links - 1));
    expected[3] = links - 1;
    CHECK(links_of(read(table(rows)).graph) == expected);
  }
  // Two halves that do not reach each other have switches of their own.
  Rows halves = alike(8, "SYS");
  for (std::size_t i = 0; i < 8; ++i) {
    for (std::size_t j = 0; j < 8; ++j) {
      if (i != j && i / 4 == j / 4) halves[i][j] = "NV18";
    }
  }
  const Graph graph = read(table(halves)).graph;
  CHECK(graph.all(NodeKind::kNvSwitch).size() == 2);
  CHECK(links_of(graph) == std::vector<int>(8, 18));
  // A mesh of direct links stays one.
  CHECK(read(table(alike(4, "NV4"))).graph.all(NodeKind::kNvSwitch).empty());
}

TEST_CASE("a row that says otherwise than the others is named") {
  Rows rows = alike(8, "NV18");
  rows[2][5] = "NV12";
  const Imported imported = read(table(rows));
  const Finding* odd = find(imported.findings, "classes-contradict");
  REQUIRE(odd != nullptr);
  CHECK(odd->where == "m:4");
  CHECK(odd->evidence == "row GPU2 has NV12, row GPU5 has NV18");
  CHECK(links_of(imported.graph) == std::vector<int>(8, 18));
}

TEST_CASE("a job that may not run on a GPU's CPUs sees a blank column of them") {
  // As Slurm's jobs print it: some rows lack the CPUs, and classes know of no second NUMA node.
  const auto column = [](int gpu, const char* affinity) {
    return fmt::format("\t{}\t\t{}\t\tN/A\n", affinity, gpu / 2);
  };
  const std::string text =
      "\tGPU0\tGPU1\tGPU2\tGPU3\tNIC0\tNIC1\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\n"
      "GPU0\t X \tNV18\tNV18\tNV18\tPIX\tNODE" +
      column(0, "") + "GPU1\tNV18\t X \tNV18\tNV18\tNODE\tNODE" + column(1, "") +
      "GPU2\tNV18\tNV18\t X \tNV18\tNODE\tNODE" + column(2, "56") +
      "GPU3\tNV18\tNV18\tNV18\t X \tNODE\tPIX" + column(3, "56") +
      "NIC0\tPIX\tNODE\tNODE\tNODE\t X \tNODE\n"
      "NIC1\tNODE\tNODE\tNODE\tPIX\tNODE\t X \n";
  const Imported imported = read(text);
  const auto numa_of = [&](std::string_view name) {
    const auto node = imported.graph.find(fmt::format("host0/{}", name));
    INFO(name);
    REQUIRE(node.exists());
    return imported.graph[numa_above(imported.graph, node, false)].index;
  };
  for (const char* name : {"gpu0", "gpu1", "NIC0"}) CHECK(numa_of(name) == 0);
  for (const char* name : {"gpu2", "gpu3", "NIC1"}) CHECK(numa_of(name) == 1);
  const Finding* contradiction = find(imported.findings, "classes-contradict");
  REQUIRE(contradiction != nullptr);
  CHECK(contradiction->evidence == "5 pairs");
}

TEST_CASE("what rows lack is read from the others, and said; else the row is named") {
  const std::string whole = table(alike(4, "NV18"));
  const std::string row = "GPU2\tNV18\tNV18\tX\tNV18\t1-1\t1\n";
  const Imported one = read(without(whole, row, "GPU2\tNV18\n"));
  CHECK(links_of(one.graph) == std::vector<int>(4, 18));
  REQUIRE(find(one.findings, "rows-cut") != nullptr);
  CHECK(find(one.findings, "rows-cut")->where == "m:4");
  CHECK(find(one.findings, "rows-cut")->what.ends_with(": GPU2"));
  CHECK(find(read(without(whole, row, "")).findings, "rows-cut") != nullptr);
  CHECK(find(read(whole).findings, "rows-cut") == nullptr);

  CHECK(refusal(whole.substr(0, whole.find("GPU2\tNV"))) ==
        "m:1: there is no row of GPU2, so nothing says what joins GPU2 and GPU3; copy the whole "
        "table");
  const std::string short_rows = without(without(whole, "GPU3\tNV18\tNV18\tNV18\tX", "GPU3\tNV18"),
                                         row, "GPU2\tNV18\tNV18\tX\n");
  CHECK(refusal(short_rows) ==
        "m:5: the row is cut short of GPU2, so nothing says what joins GPU2 and GPU3; copy the "
        "whole table");
}

TEST_CASE("cells that no table has are refused by row") {
  const std::string whole = table(alike(4, "NV18"));
  CHECK(refusal(without(whole, "GPU1\tNV18", "GPU1\tQQQ")) ==
        "m:3: row GPU1: 'QQQ' is no class (NV#, PIX, PXB, PHB, NODE, SYS, XGMI, PCIE)");
  CHECK(refusal(without(whole, "GPU1\tNV18", "GPU1\tNV36")) ==
        "m:3: row GPU1: NV36, and no chip has more than 18 NVLinks");
  CHECK(refusal(without(whole, "GPU2\tNV18\t", "GPU2\t")) ==
        "m:4: row GPU2 has its X in the column of GPU1: the table lacks a cell");
  CHECK(refusal(without(whole, "\tGPU3", "")) ==
        "m:2: row GPU0 has more classes than the header has columns, 3");
}

TEST_CASE("columns that ran together, and a terminal's escapes, are a header all the same") {
  Rows rows = alike(4, "SYS");
  rows[0][2] = rows[2][0] = rows[1][3] = rows[3][1] = "PIX";
  const std::string whole = table(rows, 2);
  const Graph graph = read(whole).graph;
  const std::string glued = without(whole, "NIC0\tNIC1\tCPU Affinity", "NIC0NIC1CPU Affinity");
  CHECK(read(glued).graph == graph);
  CHECK(read(without(without(whole, "\tGPU0", "\x1b[4m\tGPU0"), "NUMA Affinity",
                     "NUMA Affinity\x1b[0m"))
            .graph == graph);
  CHECK(read(without(without(whole, "\tGPU0", "\t[4mGPU0"), "NUMA Affinity", "NUMA Affinity[0m"))
            .graph == graph);
}

TEST_CASE("of several tables the first is read, and that is said") {
  const std::string one = table(alike(2, "NV2")), two = table(alike(8, "NV18"));
  const Imported imported = read(one + "\nanother machine:\n" + two);
  CHECK(imported.graph.nodes.size() == read(one).graph.nodes.size());
  CHECK(imported.graph.links == read(one).graph.links);
  REQUIRE(find(imported.findings, "tables-left-out") != nullptr);
  CHECK(find(imported.findings, "tables-left-out")->what.find("2 tables") != std::string::npos);
  // What -p2p prints is no other machine.
  const Imported both = read(two + "  GPU0 GPU1\nGPU0 X OK\nGPU1 OK X\n");
  CHECK(find(both.findings, "tables-left-out") == nullptr);
}

TEST_CASE("a line of a document under its heading is no heading of a table") {
  CHECK(refusal("Machines\n========\n  GPU0 GPU1\nGPU0 X OK\nGPU1 OK X\n").find("topo -p2p") !=
        std::string::npos);
}
