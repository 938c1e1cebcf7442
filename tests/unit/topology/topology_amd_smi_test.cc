// The tables of `amd-smi topology`: which pairs have links of their own and how many, NUMA nodes by
// hops, and what people's copies of the tables lack.
#include <fmt/format.h>

#include "support/catch.h"
#include "support/topology/topology_files.h"
#include "support/topology/topology_texts.h"

using namespace tutti;
using namespace tutti::topology;
using test::find;
using test::read;
using test::refusal;

namespace {

// A table for two GPUs: `word` in the cells off the diagonal.
std::string table(std::string_view title, std::string_view own, std::string_view word) {
  constexpr std::string_view kA = "0000:03:00.0", kB = "0000:0c:00.0";
  return fmt::format("{0} TABLE:\n {1} {2}\n{1} {3} {4}\n{2} {4} {3}\n", title, kA, kB, own, word);
}

// "gpu0-gpu1 x4 200": links between GPUs, and GB/s.
std::vector<std::string> links_of(const Graph& graph) {
  std::vector<std::string> found;
  for (const Link& link : graph.links) {
    if (link.kind != LinkKind::kXgmi) continue;
    CHECK(link.forward == link.backward);
    found.push_back(fmt::format("{}-{} x{} {}", graph[link.a].name.substr(6),
                                graph[link.b].name.substr(6), link.count, link.forward.value));
  }
  return found;
}

}  // namespace

TEST_CASE("GPUs that xGMI joins through others have no link of their own") {
  const std::string text = test::machine_text("four_gpus.amd_smi.txt");
  const Imported imported = read(text);
  const std::vector<std::string> links = {"gpu0-gpu1 x4 200", "gpu0-gpu2 x2 100", "gpu1-gpu3 x1 50",
                                          "gpu2-gpu3 x4 200"};
  CHECK(links_of(imported.graph) == links);
  for (const Link& link : imported.graph.links) {
    if (link.kind == LinkKind::kXgmi) CHECK(link.forward.origin == Origin::kReportedMaximum);
  }
  CHECK(imported.graph[imported.graph.find("host0/gpu2")].bus == "0000:c9:00.0");
  CHECK(imported.graph.all(NodeKind::kNuma).size() == 1);
  CHECK(find(imported.findings, "numa-assumed") != nullptr);
  // Without rates the weights say which; the rates are assumed.
  const std::size_t rates = text.find("NUMA BW"), end = text.find("DMA TABLE");
  const Imported older = read(std::string(text).erase(rates, end - rates));
  const std::vector<std::string> assumed = {"gpu0-gpu1 x1 24", "gpu0-gpu2 x1 24", "gpu1-gpu3 x1 24",
                                            "gpu2-gpu3 x1 24"};
  CHECK(links_of(older.graph) == assumed);
}

TEST_CASE("two hops of PCI Express stay in a NUMA node, three leave it") {
  const std::string pcie = table("LINK TYPE", "SELF", "PCIE");
  const auto with = [&](int hops) {
    return read(table("HOPS", "0", std::to_string(hops)) + pcie + table("NUMA BW", "N/A", "N/A"));
  };
  CHECK(with(2).graph.all(NodeKind::kNuma).size() == 1);
  CHECK(with(3).graph.all(NodeKind::kNuma).size() == 2);
  CHECK(links_of(with(2).graph).empty());
  CHECK(find(with(3).findings, "numa-assumed") == nullptr);
  // Without hops nothing says so.
  const Imported assumed = read(pcie);
  CHECK(assumed.graph.all(NodeKind::kNuma).size() == 1);
  CHECK(find(assumed.findings, "numa-assumed") != nullptr);
}

TEST_CASE("what a copy of amd-smi's tables lacks is taken from the other row, or named") {
  const std::string whole = table("LINK TYPE", "SELF", "XGMI");
  const std::string row = "0000:03:00.0 SELF XGMI\n";
  const std::size_t at = whole.find(row);
  REQUIRE(at != std::string::npos);
  CHECK(links_of(read(std::string(whole).replace(at, row.size(), "")).graph).size() == 1);
  CHECK(refusal("LINK TYPE TABLE:\n 0000:03:00.0 0000:0c:00.0\n")
            .ends_with("no LINK TYPE TABLE says what joins 0000:03:00.0 and 0000:0c:00.0; copy the "
                       "whole table"));
  // Other text may begin with an address, too.
  const std::string pasted =
      "0000:03:00.0 Display controller\n" + whole + "\nlspci:\n0000:99:00.0 another\n";
  CHECK(read(pasted).graph.all(NodeKind::kGpu).size() == 2);
  CHECK(refusal("LINK TYPE TABLE:\n 0000:03:00.0 beside\n") ==
        "m:2: 'beside' is no PCI address of a column");
  CHECK(refusal("LINK TYPE TABLE:\n\n")
            .ends_with("no table with a column for each GPU's PCI "
                       "address"));
  CHECK(refusal(table("LINK TYPE", "SELF", "TWINE")) ==
        "m:3: row 0000:03:00.0 of LINK TYPE TABLE: 'TWINE' is not XGMI or PCIE");
  CHECK(refusal(whole + table("NUMA BW", "N/A", "9-1")) ==
        "m:7: row 0000:03:00.0 of NUMA BW TABLE: '9-1' is not two rates in MB/s");
  CHECK(refusal(whole + table("HOPS", "0", "-1")) ==
        "m:7: row 0000:03:00.0 of HOPS TABLE: '-1' is not a number");
}
