// File: topology/checks/chips.cc: the table of chips.def, and what generations of chips have.
#include "topology/checks/chips.h"

#include <array>
#include <initializer_list>
#include <string_view>

#include "topology/graph/nccl_figures.h"
#include "topology/graph/words.h"

namespace tutti::topology {
namespace {

constexpr Chip kChips[] = {
#define TUTTI_CHIP(device, name, sm, nvlinks) {device, name, sm, nvlinks},
#include "topology/checks/chips.def"
#undef TUTTI_CHIP
};

// First compute capability of those that are made for a generation, in ascending order.
struct Made {
  int sm;
  double gigatransfers;
};
constexpr std::array kMade{Made{60, 8}, Made{80, 16}, Made{90, 32}};

}  // namespace

const Chip* chip_of(const Node& gpu) {
  if (fact(gpu, "vendor") != "0x10de") return nullptr;
  std::string_view text = fact(gpu, "device");
  if (text.starts_with("0x")) text.remove_prefix(2);
  const auto device = parse_number<long long>(text, 16);
  for (const Chip& chip : kChips) {
    if (device == chip.device) return &chip;
  }
  return nullptr;
}

const Chip* cut_down(int sm, int nvlinks) {
  for (const Chip& chip : kChips) {
    if (chip.sm == sm && chip.nvlinks == nvlinks && nvlinks > 0 && nvlinks < most_nvlinks(sm)) {
      return &chip;
    }
  }
  return nullptr;
}

double pcie_generation(const Node& gpu) {
  // RCCL's files give AMD's GPUs an sm too, which is none.
  std::string_view gcn = fact(gpu, "gfx").empty() ? fact(gpu, "gcn") : fact(gpu, "gfx");
  if (gcn.starts_with("gfx")) gcn.remove_prefix(3);
  if (gcn.starts_with("94") || gcn.starts_with("95")) return 32;
  if (gcn == "906" || gcn == "908" || gcn == "910" || gcn == "90a") return 16;
  const auto sm = number_fact(gpu, "sm");
  if (!gcn.empty() || !sm) return 0;
  // Jetson, Thor, GB10: beside a processor's cores, no card.
  if (*sm == 62 || *sm == 72 || *sm == 87 || *sm == 110 || *sm == 121) return 0;
  double rate = 0;
  for (const Made& made : kMade) rate = *sm >= made.sm ? made.gigatransfers : rate;
  return rate;
}

std::string chip_key(const Node& gpu) {
  const auto key_of = [&](std::initializer_list<const char*> names) {
    std::string key;
    for (const char* name : names) append(key, fact(gpu, name), " ");
    return key;
  };
  const std::string sold = key_of({"vendor", "device", "model"});
  return sold.find_first_not_of(' ') != std::string::npos ? sold : key_of({"sm", "gfx", "gcn"});
}

}  // namespace tutti::topology
