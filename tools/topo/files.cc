// tutti topo capture, replay, import, export: machines as files.
#include <fmt/format.h>

#include <functional>
#include <map>

#include "perf/command_line/command_line.h"
#include "tools/topo/topo.h"
#include "topology/capture/machines.h"
#include "topology/graph/text.h"
#include "topology/graph/words.h"
#include "topology/nccl/nccl_xml.h"
#include "topology/probe/probe.h"
#include "topology/readers/reader.h"
#include "topology/render/render.h"

namespace tutti::tools {
namespace {

using topology::Graph;

/// The formats that a graph can be written in.
const std::map<std::string, std::function<Result<std::string>(const Graph&)>>& writers() {
  static const std::map<std::string, std::function<Result<std::string>(const Graph&)>> kWriters{
      {"text", [](const Graph& graph) -> Result<std::string> { return topology::print(graph); }},
      {"nccl_xml", topology::write_nccl_xml},
      {"json", [](const Graph& graph) -> Result<std::string> { return topology::to_json(graph); }},
      {"dot", [](const Graph& graph) -> Result<std::string> { return topology::to_dot(graph); }},
      {"svg", [](const Graph& graph) -> Result<std::string> { return topology::to_svg(graph); }},
  };
  return kWriters;
}

std::string writer_names() {
  return topology::list_of(writers(), [](const auto& writer) { return writer.first; });
}

struct Files {
  GraphSource source;
  std::string path, output, format = "text";
};

/// Writes the machine that `read` returns. As `read` may take long, mistakes in the options are
/// reported first.
Result<int> write(const Files& options, const std::function<Result<topology::Imported>()>& read) {
  const auto writer = writers().find(options.format);
  if (writer == writers().end()) {
    return topology::invalid("--format: '{}' is not one of {}", options.format, writer_names());
  }
  TUTTI_RETURN_IF_ERROR(check_outputs({{"--output", options.output}}));
  TUTTI_TRY(const auto machine, read());
  TUTTI_TRY(const auto text, writer->second(machine.graph));
  for (const topology::Finding& finding : machine.findings)
    say_error("tutti topo: {}{}{}\n", finding.where, finding.where.empty() ? "" : ": ",
              finding.what);
  TUTTI_RETURN_IF_ERROR(write_text(options.output, text));
  return 0;
}

Result<int> capture(const Files& options) {
  TUTTI_RETURN_IF_ERROR(check_outputs({{"FILE", options.path}}));
  TUTTI_RETURN_IF_ERROR(topology::capture({}, options.path));
  return 0;
}

void add_output_options(const perf::Command& command, Files& options) {
  command.add_option("-o,--output", options.output, "File to write; default: stdout")
      .type_name("FILE");
  std::vector<std::string> formats;
  for (const auto& writer : writers()) formats.push_back(writer.first);
  perf::offer(perf::add_shown(command, "--format", options.format, "Format: " + writer_names()),
              formats);
}

}  // namespace

void define_topo_capture(const perf::Command& app, int& exit_code) {
  auto options = std::make_shared<Files>();
  const auto command = app.add_subcommand(
      "capture", "Save what is read of this machine, so that it can be looked at elsewhere");
  command.add_option("FILE", options->path, "A tar file: .tar, .tar.gz or .tar.bz2").required();
  command.footer(
      "It holds names of devices, serial numbers and the host's name, no user data.\n"
      "Examples:\n  tutti topo capture sick.tar.gz\n  tutti topo show --from sick.tar.gz");
  command.callback([options, &exit_code] { exit_code = exit_code_of(capture(*options)); });
}

void define_topo_replay(const perf::Command& app, int& exit_code) {
  auto options = std::make_shared<Files>();
  const auto command =
      app.add_subcommand("replay", "The graph of a captured machine, as its probe makes it");
  command.add_option("FILE", options->path, "What `tutti topo capture` wrote").required();
  add_output_options(command, *options);
  command.footer("Examples:\n  tutti topo replay sick.tar.gz -o sick.topo");
  command.callback([options, &exit_code] {
    exit_code =
        exit_code_of(write(*options, [&] { return topology::probe_archive(options->path); }));
  });
}

void define_topo_import(const perf::Command& app, int& exit_code) {
  auto options = std::make_shared<Files>();
  const auto command = app.add_subcommand("import", "Read a file of another program");
  command
      .add_option("FILE", options->path, "NCCL or hwloc XML, nvidia-smi topo -m, amd-smi, rocm-smi")
      .required();
  add_output_options(command, *options);
  std::string formats = "Formats:\n";
  for (const topology::Reader* reader : topology::readers())
    formats += fmt::format("  {:<12} {}\n", reader->name, reader->description);
  command.footer(formats + "Examples:\n  nvidia-smi topo -m > m; tutti topo import m -o m.topo");
  command.callback([options, &exit_code] {
    exit_code =
        exit_code_of(write(*options, [&] { return topology::load_machine_file(options->path); }));
  });
}

void define_topo_export(const perf::Command& app, int& exit_code) {
  auto options = std::make_shared<Files>();
  const auto command = app.add_subcommand("export", "Write this machine, a file or a model");
  add_source_options(command, options->source);
  add_output_options(command, *options);
  command.footer(
      "Examples:\n  tutti topo export --format nccl_xml -o topo.xml\n"
      "  tutti topo export --model dgx-a100:2 -o two.topo");
  command.callback([options, &exit_code] {
    exit_code = exit_code_of(write(*options, [&] { return load(options->source); }));
  });
}

}  // namespace tutti::tools
