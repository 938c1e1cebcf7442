// tutti topo models: the systems that --model takes.
#include <fmt/format.h>

#include "tools/topo/topo.h"
#include "topology/models/model.h"

namespace tutti::tools {

void define_topo_models(const perf::Command& app, int& exit_code) {
  const auto command = app.add_subcommand("models", "The systems that --model takes");
  command.footer(
      "Every command that takes --model takes NAME:HOSTS, too, and a network after a slash\n"
      "(hgx-h100:4/fat-tree).\nExamples:\n  tutti topo models\n  tutti topo show --model hgx-h100");
  command.callback([&exit_code] {
    for (const topology::Model* model : topology::models())
      say("{}", wrapped(fmt::format("{:<14} {}", model->name, model->description), 15));
    exit_code = 0;
  });
}

}  // namespace tutti::tools
