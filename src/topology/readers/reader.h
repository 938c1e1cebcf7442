// File: topology/readers/reader.h: files that others wrote about machines, as graphs.
//
// To add a format: `my_reader.cc` that defines `constinit const Reader my_reader{...}`, and one
// line in readers.def. The tests that run over the registry (truncated input, nesting, fuzzing)
// then cover it.
//
// What all readers, probes and models keep to, so that paths and checks need no special cases:
//   * Hosts are called host0, host1, ...; all else in a host "host0/<name>". Names: numa0,
//     package0, gpu0 (by the driver's index where there is one, else by bus address or,
//     where no GPU of the source has an index, in the order of bus addresses), nvswitch0, a
//     NIC by its device ("mlx5_0"), PCI bridges by address ("pci0000:16:00.0").
//   * NUMA nodes of a host are joined pairwise by socket links; or, where packages are known, by
//     internal links to their package, and packages pairwise by socket links.
//   * PCI: numa -internal- pcie_port (root) -pcie- pcie_switch -internal- pcie_port (downstream)
//     -pcie- gpu or nic. Readers whose source leaves ports out leave them out too.
//   * A PCI function that is one NIC port is that nic. With several ports it is a card, joined to
//     each nic by an internal link.
//   * NVLinks go to the peer GPU, or to the nvswitch; switches that the source does not tell apart
//     are one node nvswitch0, its fact "count" saying how many there are if that is known.
//   * A nic has a port link to a plane. Where the network is unknown, all share the plane
//     "network".
//   * A figure that had to be guessed has Origin::kAssumed or kTable and, if assumed, a finding.
#pragma once
#include <span>
#include <string_view>

#include "topology/graph/finding.h"
#include "topology/graph/validate.h"
#include "tutti/result.h"

namespace tutti::topology {

struct Reader {
  std::string_view name;         // "nccl_xml": what `tutti topo import --format` takes.
  std::string_view description;  // One line for people.
  /// Whether a text looks like this format. Cheap; looks at the beginning only.
  bool (*recognises)(std::string_view text);
  /// `source` is what messages call the text. Bounded in time and memory whatever the text is.
  Result<Imported> (*read)(std::string_view text, std::string_view source);
};

#define TUTTI_READER(name) extern const Reader name;
#include "topology/readers/readers.def"
#undef TUTTI_READER

std::span<const Reader* const> readers();
const Reader* find_reader(std::string_view name);

/// Reads a text with the first reader that recognises it, then validates the graph: impossible
/// graphs are errors, doubtful ones have findings.
Result<Imported> import(std::string_view text, std::string_view source);
/// The same with a file ("-": standard input), of at most 256 MiB.
Result<Imported> import_file(const std::string& path);

}  // namespace tutti::topology
