// File: topology/readers/matrix_text.cc: tables that people copy out of terminals: columns cut off,
// bars of Markdown, other text around. A row that has no classes is skipped, one cut short is kept.
#include "topology/readers/matrix_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>

#include "topology/graph/words.h"

namespace tutti::topology {
namespace {

constexpr std::size_t kMostDevices = 256;
constexpr std::size_t kMostBytes = std::size_t{1} << 20;

int number(std::string_view text) {
  int value = -1;  // What comes behind it does not matter: "0]".
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value < 65536 ? std::max(value, -1) : -1;
}

bool is_nvlink(std::string_view word) {
  const int count = word.starts_with("NV") ? number(word.substr(2)) : -1;
  return count > 0 && count <= 1024;
}

bool is_class(std::string_view word) {
  constexpr std::array<std::string_view, 10> kWords{"X",   "PIX", "PXB", "PHB",  "NODE",
                                                    "SYS", "SOC", "PIB", "XGMI", "PCIE"};
  return is_nvlink(word) || std::find(kWords.begin(), kWords.end(), word) != kWords.end();
}

bool is_device(std::string_view word) {
  const bool counted = word.starts_with("GPU") || word.starts_with("NIC");
  if (counted) return word.size() > 3 && word.find_first_not_of("0123456789", 3) == word.npos;
  for (const std::string_view prefix :
       {"mlx", "bnxt", "irdma", "rdma", "efa", "hfi", "ib", "cxi"}) {
    if (word.starts_with(prefix) && word.size() < 64 && word.back() >= '0' && word.back() <= '9') {
      return true;
    }
  }
  return false;
}

class MatrixParser {
 public:
  explicit MatrixParser(std::string_view source) : source_(source) {}

  Result<Matrix> parse(std::string_view text) {
    line_ = 1;
    if (text.size() > kMostBytes) return error("longer than 1 MiB");
    if (text.ends_with('\n')) text.remove_suffix(1);
    for (std::string_view one : split(text, '\n')) {
      while (!one.empty() && (one.back() == '\r' || one.back() == ' ')) one.remove_suffix(1);
      TUTTI_RETURN_IF_ERROR(line(one));
      ++line_;
    }
    if (!header_seen_) return error("no table with columns GPU0, GPU1, ...");
    if (p2p_seen_ && !classes_seen_) {
      return error(
          "this is `nvidia-smi topo -p2p`, which says what is allowed, not what is joined; "
          "use `nvidia-smi topo -m`");
    }
    if (!classes_seen_ && made_.devices.size() > 1) {
      return error("no rows with classes (NV#, PIX, PXB, PHB, NODE, SYS, XGMI, PCIE)");
    }
    return std::move(made_);
  }

 private:
  enum class Table : std::uint8_t { kNone, kClasses, kHops, kOther };
  Error error(std::string_view what) const {
    return {Code::kInvalidArgument, fmt::format("{}:{}: {}", source_, line_, what)};
  }

  Status line(std::string_view text) {
    if (section(text)) return ok();
    auto row_words = words(text, " \t\r|");
    // A header may follow other text, as in the source of a program.
    const auto header_start = std::find(row_words.begin(), row_words.end(), "GPU0");
    if (row_words.end() - header_start >= 2 && is_device(header_start[1])) {
      row_words.erase(row_words.begin(), header_start);
    }
    if (row_words.empty() || text.starts_with("#")) return ok();
    const std::string_view first = row_words[0];
    if (is_device(first) &&
        (row_words.size() == 1 || is_device(row_words[1]) || row_words[1] == "CPU")) {
      return header(row_words);
    }
    if (is_device(first)) return row(row_words);
    // "NIC0: mlx5_0" of the legend; "GPU[0] : (Topology) Numa Node: 1" of rocm-smi.
    if (first.ends_with(':') && row_words.size() == 2 &&
        is_device(first.substr(0, first.size() - 1))) {
      for (MatrixDevice& known : made_.devices) {
        if (known.name == first.substr(0, first.size() - 1) && row_words[1].size() <= 64) {
          known.real = row_words[1];
        }
      }
    }
    if (first.starts_with("GPU[") && text.find("Numa Node:") != std::string_view::npos) {
      const int gpu = number(first.substr(4));
      for (MatrixDevice& known : made_.devices) {
        if (known.name == fmt::format("GPU{}", gpu)) known.numa = number(row_words.back());
      }
    }
    return ok();
  }

  Status header(const std::vector<std::string_view>& row) {
    if (!named_) {
      // A second table of nvidia-smi (-p2p, say) is not ours to mix with the first.
      table_ = classes_seen_ ? Table::kOther : Table::kClasses;
    }
    header_seen_ = true;
    columns_.clear();
    std::size_t at = 0;
    for (; at < row.size() && is_device(row[at]); ++at) {
      TUTTI_TRY(const std::size_t index, device(row[at]));
      columns_.push_back(index);
    }
    const auto numa = std::find(row.begin() + static_cast<std::ptrdiff_t>(at), row.end(), "NUMA");
    numa_column_ = numa != row.end();
    return ok();
  }

  Status row(const std::vector<std::string_view>& row) {
    if (table_ == Table::kNone || table_ == Table::kOther || columns_.empty()) return ok();
    std::size_t at = 1;
    if (table_ == Table::kHops) {
      TUTTI_TRY(const std::size_t own, device(row[0]));
      for (; at < row.size() && at <= columns_.size(); ++at) {
        made_.hops[own][columns_[at - 1]] = std::max(number(row[at]), 0);
      }
      return ok();
    }
    const bool self = row.size() > 1 && row[1] == "0";
    if (row.size() < 2 || !(is_class(row[1]) || self)) {
      p2p_seen_ = p2p_seen_ || (row.size() > 1 && row[1] == "OK");
      return ok();
    }
    TUTTI_TRY(const std::size_t own, device(row[0]));
    for (; at < row.size() && at <= columns_.size(); ++at) {
      const std::string_view word = row[at];
      p2p_seen_ = p2p_seen_ || word == "OK";
      if (!is_class(word) && word != "0") break;
      if (word == "X" || word == "0") continue;
      made_.classes[own][columns_[at - 1]] = word;
      classes_seen_ = true;
    }
    if (at <= columns_.size() || made_.amd) return ok();
    if (at < row.size()) made_.devices[own].affinity = row[at];
    if (numa_column_ && at + 1 < row.size()) made_.devices[own].numa = number(row[at + 1]);
    return ok();
  }

  Result<std::size_t> device(std::string_view name) {
    for (std::size_t i = 0; i < made_.devices.size(); ++i) {
      if (made_.devices[i].name == name) return i;
    }
    if (made_.devices.size() == kMostDevices) return error("more than 256 devices");
    made_.devices.push_back(
        {std::string(name), std::string(name), name.starts_with("GPU"), -1, ""});
    for (auto& row : made_.classes) row.emplace_back();
    for (auto& row : made_.hops) row.push_back(0);
    made_.classes.emplace_back(made_.devices.size());
    made_.hops.emplace_back(made_.devices.size());
    return made_.devices.size() - 1;
  }

  /// rocm-smi's headings: "==== Link Type between two GPUs ====".
  bool section(std::string_view text) {
    if (text.find("between two GPUs") == std::string_view::npos &&
        !(text.starts_with("==") && text.ends_with("=="))) {
      return false;
    }
    made_.amd = made_.amd || text.find("GPUs") != std::string_view::npos;
    named_ = true;
    table_ = text.find("Link Type") != std::string_view::npos ? Table::kClasses
             : text.find("Hops") != std::string_view::npos    ? Table::kHops
                                                              : Table::kOther;
    return true;
  }

  std::string_view source_;
  std::size_t line_ = 0;
  Matrix made_;
  Table table_ = Table::kNone;
  bool named_ = false;  // rocm-smi names its tables; nvidia-smi does not.
  bool classes_seen_ = false, p2p_seen_ = false, header_seen_ = false;
  bool numa_column_ = false;
  std::vector<std::size_t> columns_;
};

}  // namespace

Result<Matrix> parse_matrix(std::string_view text, std::string_view source) {
  return MatrixParser(source).parse(text);
}

}  // namespace tutti::topology
