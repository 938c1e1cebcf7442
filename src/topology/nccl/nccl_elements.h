// File: topology/nccl/nccl_elements.h: what an element of NCCL's XML says by itself, without the
// rest of the file.
#pragma once
#include <string_view>

#include "topology/graph/graph.h"
#include "topology/nccl/xml.h"

namespace tutti::topology {

/// PCI classes of displays and of accelerators.
bool is_gpu_class(std::string_view type);
/// What a <pci> of this class is, with what is in it.
NodeKind kind_of(pugi::xml_node pci, std::string_view type);

/// A whole number, or `otherwise` where the text is none.
int whole_number(std::string_view text, int otherwise);
/// A number above 0, or 0 where the text is none.
double positive_number(std::string_view text);

/// Whether NCCL or RCCL reads a file whose <system> has this version.
bool nccl_knows_version(std::string_view text);

}  // namespace tutti::topology
