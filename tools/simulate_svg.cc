#include "simulate.h"

namespace tutti::tools {

std::string to_svg(const SimulatedCurve&) { return "<svg xmlns='http://www.w3.org/2000/svg'/>\n"; }

}  // namespace tutti::tools
