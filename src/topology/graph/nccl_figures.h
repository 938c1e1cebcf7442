// File: topology/graph/nccl_figures.h: what NCCL's and RCCL's models say a link of a part carries.
//
// Payload in GB/s, one direction, as in NCCL 2.30 and RCCL 2.21: about 80% of what is signalled.
// The readers of formats that name parts and not figures use them too, as Origin::kTable.
#pragma once
#include <optional>
#include <string>
#include <string_view>

#include "topology/graph/graph.h"

namespace tutti::topology {

/// One NVLink of a chip of compute capability sm (90: 9.0), GB/s. Unknown chips have NCCL's 20,
/// which is a guess.
Quantity nvlink_bandwidth(int sm);
/// The most NVLinks that a chip has; 18, the most of any, for a chip that is not known.
int most_nvlinks(int sm);
/// One xGMI link of an AMD GPU; gcn as RCCL writes it, "908" or "gfx942". Guessed where not known.
Quantity xgmi_bandwidth(std::string_view gcn);
/// Between two NUMA nodes of processors that CPUID or hwloc call so; `model` is CPUID's, with
/// its extension. Unknown if the vendor is.
Quantity socket_bandwidth(std::string_view arch, std::string_view vendor, int model);
/// "16 GT/s", "16.0 GT/s PCIe": gigatransfers. None if there is no number before "GT/s".
std::optional<double> link_speed(std::string_view text);
/// Whether NCCL knows this text of a link speed; it takes 8 GT/s for others.
bool nccl_knows_speed(std::string_view text);
/// Whether NCCL or RCCL gives an attribute of <system>, <cpu>, <pci>, <gpu> or <net> a meaning.
bool nccl_knows_attribute(std::string_view element, std::string_view name);
/// "00000000:07:00.0" as "0000:07:00.0", lower case; empty if it is no PCI address.
std::string pci_address(std::string_view text);

}  // namespace tutti::topology
