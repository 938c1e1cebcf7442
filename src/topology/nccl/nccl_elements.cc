#include "topology/nccl/nccl_elements.h"

namespace tutti::topology {

bool is_gpu_class(std::string_view type) {
  return type.starts_with("0x03") || type.starts_with("0x12");
}

NodeKind kind_of(pugi::xml_node pci, std::string_view type) {
  if (pci.child("gpu")) return NodeKind::kGpu;
  const pugi::xml_node nic = pci.child("nic");
  const pugi::xml_node net = nic ? nic.child("net") : pci.child("net");
  if (net) return net.next_sibling("net") ? NodeKind::kCard : NodeKind::kNic;
  if (type.starts_with("0x0604") || pci.child("pci")) return NodeKind::kPcieSwitch;
  const std::string_view vendor = pci.attribute("vendor").value();
  const bool console = vendor == "0x1a03" || vendor == "0x102b";  // A board's own VGA chip.
  if (is_gpu_class(type) && !console) return NodeKind::kGpu;
  if (type.starts_with("0x02")) return NodeKind::kNic;
  return NodeKind::kPciePort;
}

int whole_number(std::string_view text, int otherwise) {
  return parse_number<int>(text).value_or(otherwise);
}

double positive_number(std::string_view text) {
  const double value = parse_number<double>(text).value_or(0);
  return value > 0 && value < 1e12 ? value : 0;
}

bool nccl_knows_version(std::string_view text) { return text == "1" || text == "2"; }

}  // namespace tutti::topology
