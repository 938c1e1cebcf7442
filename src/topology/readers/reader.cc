// File: topology/readers/reader.cc: the registry of readers, and the ways in: a text, a file.
#include "topology/readers/reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/input.h"
#include "topology/graph/text.h"
#include "topology/graph/validate.h"
#include "topology/graph/words.h"
#include "topology/nccl/nccl_xml.h"
#include "topology/nccl/xml.h"

namespace tutti::topology {
namespace {

constexpr std::array<const Reader*, 0
#define TUTTI_READER(name) +1
#include "topology/readers/readers.def"
#undef TUTTI_READER
                     >
    kReaders{
#define TUTTI_READER(name) &name,
#include "topology/readers/readers.def"
#undef TUTTI_READER
    };

bool is_text(std::string_view text) { return text.starts_with("tutti topology "); }

Result<Imported> read_text(std::string_view text, std::string_view source) {
  TUTTI_TRY(Graph graph, parse_graph(text, source));
  return Imported{std::move(graph), {}};
}

Result<std::string> contents(const std::string& path) {
  if (path != "-") return read_whole(path);
  static const Result<std::string> input = read_whole(path);  // It can't be read a second time.
  return input;
}

/// What people take for a topology and is none; "" for all else.
std::string_view mistaken_for_one(std::string_view text) {
  if (first_element(text) == "graphs") {
    return "NCCL's graph file (NCCL_GRAPH_DUMP_FILE) has the rings and trees that NCCL chose, and "
           "not the machine; dump that with NCCL_TOPO_DUMP_FILE=topo.xml";
  }
  if (text.substr(0, 65536).find(" NCCL INFO ") != std::string_view::npos) {
    return "NCCL's log (NCCL_DEBUG=INFO) has what NCCL chose, and not all links of the machine; "
           "run "
           "the program again with NCCL_TOPO_DUMP_FILE=topo.xml and read that";
  }
  return {};
}

}  // namespace

constinit const Reader text_reader{"tutti", "Tutti's own text form of a topology", is_text,
                                   read_text};

constinit const Reader nccl_xml_reader{"nccl_xml", "NCCL's or RCCL's topology file", is_nccl_xml,
                                       read_nccl_xml};

std::span<const Reader* const> readers() { return kReaders; }

const Reader* find_reader(std::string_view name) {
  const auto found = std::find_if(kReaders.begin(), kReaders.end(),
                                  [&](const Reader* reader) { return reader->name == name; });
  return found == kReaders.end() ? nullptr : *found;
}

Result<Imported> import(std::string_view text, std::string_view source) {
  const auto found = std::find_if(kReaders.begin(), kReaders.end(),
                                  [&](const Reader* reader) { return reader->recognises(text); });
  if (found == kReaders.end()) {
    if (const auto what = mistaken_for_one(text); !what.empty())
      return invalid("{}: {}", source, what);
    return invalid("{}: no known form of a topology; known: {}", source,
                   list_of(kReaders, [](const Reader* one) { return one->name; }));
  }
  TUTTI_TRY(Imported imported, (*found)->read(text, source));
  TUTTI_TRY(Findings more, validate(imported.graph, source));
  imported.findings.insert(imported.findings.end(), std::make_move_iterator(more.begin()),
                           std::make_move_iterator(more.end()));
  return imported;
}

Result<Imported> import_file(const std::string& path) {
  TUTTI_TRY(const std::string text, contents(path));
  return import(text, path == "-" ? "standard input" : path);
}

}  // namespace tutti::topology
