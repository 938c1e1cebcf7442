// File: fuzz/topology_readers.h: the fuzz target of one reader of topologies.
//
// What is checked of any text: no crash; an error is one line; a graph that is valid has a text
// form that is the same graph, and what NCCL's writer makes of it can be read.
#pragma once
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "topology/graph/text.h"
#include "topology/nccl/nccl_xml.h"
#include "topology/readers/reader.h"

namespace tutti::topology {

inline void fuzz_reader(std::string_view name, std::string_view text) {
  const auto require = [](bool condition) {
    if (!condition) std::abort();
  };
  const Reader* reader = find_reader(name);
  require(reader != nullptr);
  reader->recognises(text);
  const auto imported = reader->read(text, "fuzz");
  if (!imported) {
    require(imported.error().what.find('\n') == std::string::npos);
    return;
  }
  if (!validate(imported->graph, "fuzz")) return;
  const auto again = parse_graph(print(imported->graph), "again");
  require(again && *again == imported->graph);
  const auto written = write_nccl_xml(imported->graph);
  if (written) require(find_reader("nccl_xml")->recognises(*written));
}

}  // namespace tutti::topology

// The one reader that this program is about.
#define TUTTI_FUZZ_READER(name)                                                       \
  extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) { \
    tutti::topology::fuzz_reader(name, {reinterpret_cast<const char*>(data), size});  \
    return 0;                                                                         \
  }
