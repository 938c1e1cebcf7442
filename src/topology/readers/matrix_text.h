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
  std::size_t line = 0;  // Where its row of classes is; 0: it has none.
  bool cut = false;      // The row ends before the columns do.
};

struct Matrix {
  bool amd = false;
  std::vector<MatrixDevice> devices;
  /// Class of row and column: "NV12", "PIX", "XGMI", ...; "" where the text has none. What a row
  /// leaves out is as the other device's row says.
  std::vector<std::vector<std::string>> classes;
  /// rocm-smi's hops, by row and column; 0 where there is none.
  std::vector<std::vector<int>> hops;
  /// Tables of classes that follow the first, of which nothing is in the above.
  int more_tables = 0;
};

/// The first table of classes in the text, which may have other lines before and after. At most 256
/// devices. An Error says what is missing or wrong, and in which row: of two GPUs, one row at least
/// says what joins them.
Result<Matrix> parse_matrix(std::string_view text, std::string_view source);

}  // namespace tutti::topology
