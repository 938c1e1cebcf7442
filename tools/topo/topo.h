// File: tools/topo/topo.h: what the subcommands of `tutti topo` share. Each is a file and a line in
// topo.def.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "perf/command_line/command_line.h"
#include "tools/command.h"
#include "topology/graph/finding.h"
#include "tutti/result.h"

namespace tutti::tools {

/// Where a graph comes from: a file, a model, or this machine.
struct GraphSource {
  std::string from, model;
  std::string pretended;  // A file or a model that programs are to take for this machine, or "".
};

/// Adds, unseen, the machine that programs on simulated GPUs see (docs/simulated-gpus.md).
void add_pretended_option(const perf::Command& app, GraphSource& source);
/// Adds --from and --model, and that one.
void add_source_options(const perf::Command& app, GraphSource& source);
/// The graph, or what is wrong with the file or name.
Result<topology::Imported> load(const GraphSource& source);
/// The exit code of a subcommand; of an Error, which is one line on stderr.
int exit_code_of(const Result<int>& done, std::string_view command = "topo");

/// GPUs, then NICs, in the order of the graph; without GPUs the NUMA nodes come first.
std::vector<topology::NodeId> endpoints(const topology::Graph& graph);
/// The node that people call so: by its whole name, or without "host0/"; or which there are.
Result<topology::NodeId> find_node(const topology::Graph& graph, const std::string& name);
/// Those that people call so, or the default endpoints.
Result<std::vector<topology::NodeId>> find_ranks(const topology::Graph& graph,
                                                 const std::vector<std::string>& names);
/// A node's name, without the host where there is only one.
std::string short_name(const topology::Graph& graph, topology::NodeId node);

/// "1 error", "2 errors".
std::string counted(int count, std::string_view word);

/// "370.8", "0.31", "?": GB/s in at most 6 characters.
std::string rate_text(double gigabytes_per_second);

/// "8,64K,1G": sizes of messages, 4 bytes to 1024 GiB.
Result<std::vector<std::size_t>> sizes_named(const std::string& text);

/// The text in lines of at most 100 columns, all but the first indented; breaks at blanks.
std::string wrapped(const std::string& text, std::size_t indent);

#define TUTTI_TOPO_COMMAND(name) void define_topo_##name(const perf::Command& app, int& exit_code);
#include "tools/topo/topo.def"
#undef TUTTI_TOPO_COMMAND

}  // namespace tutti::tools
