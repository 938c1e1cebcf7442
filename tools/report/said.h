// File: tools/report/said.h: what another subcommand of `tutti` says, by running it.
#pragma once
#include <string>
#include <vector>

#include "tutti/result.h"

namespace tutti::tools {

struct Said {
  int exit_code = 0;
  std::string output, errors;  // What it wrote to its two streams.
};
/// Runs this program with these arguments, and waits for its end. kSystem if it can't be started.
Result<Said> said_by(const std::vector<std::string>& arguments);

}  // namespace tutti::tools
