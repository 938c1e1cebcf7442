// File: topology/readers/hwloc_text.h: texts and figures of hwloc in our terms.
#pragma once
#include <string>
#include <string_view>

#include "topology/readers/xml.h"

namespace tutti::topology {

/// The name of an info as a fact's: lower case, other characters as '_'.
std::string fact_key(std::string_view name);
/// The number at the end of "mlx5_0"; -1 where there is none.
int trailing_number(std::string_view name);
/// GB/s of payload of a PCI link that hwloc gives as GB/s after line coding.
double hwloc_payload(double link_speed);
/// A file of hwloc 3 as libhwloc 2 reads it.
std::string hwloc_version_2(const Xml& xml);

}  // namespace tutti::topology
