// File: topology/readers/matrix_text.h: the tables that `nvidia-smi topo -m` and `rocm-smi
// --showtopo` print, as values; matrix_reader.cc makes graphs of them.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "tutti/result.h"

namespace tutti::topology {

struct MatrixDevice {
  std::string name;  // "GPU0", "NIC1", "mlx5_0": as in the table.
  std::string real;  // "mlx5_0": from the legend, or the name.
  bool gpu = false;
  int numa = -1;  // From the column "NUMA Affinity", or rocm-smi's "Numa Node"; -1: not said.
  std::string affinity;  // From the column "CPU Affinity"; "" if not said.
};

struct Matrix {
  bool amd = false;
  std::vector<MatrixDevice> devices;
  /// Class of row and column: "NV12", "PIX", "XGMI", ...; "" where the text has none.
  std::vector<std::vector<std::string>> classes;
  /// rocm-smi's hops, by row and column; 0 where there is none.
  std::vector<std::vector<int>> hops;
};

/// The first table of classes in the text, which may have other lines before and after. At most 256
/// devices. An Error says what is missing.
Result<Matrix> parse_matrix(std::string_view text, std::string_view source);

}  // namespace tutti::topology
