// File: tools/topo/kernel_shape_text.h: the shape of kernels (planner/kernel_shape.h) in words,
// with the evidence for each figure.
#pragma once

namespace tutti::tools {

/// Prints a row for each figure.
void print_kernel_shape(bool json);

}  // namespace tutti::tools
