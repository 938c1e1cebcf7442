// File: python/csrc/tensors.h: torch's tensors and operations in Tutti's terms.
//
// What is only copied goes in the type itself or, where Tutti has none such, as bytes. What is
// reduced goes in the type itself; complex numbers as pairs of reals; bool as bytes that are 0 or 1
// (a sum is an "or", a product an "and"); 16-bit integers, of which Tutti has none, widened to 32
// bits, which gives the same bits.
#pragma once
#include <optional>

#include <ATen/core/Tensor.h>
#include <torch/csrc/distributed/c10d/Types.hpp>

#include "tutti/communicator.h"

namespace tutti::python {

/// An element of torch's is `each` elements of `type`.
struct Elements {
  DataType type = DataType::kUint8;
  std::size_t each = 1;
};
Elements copied_as(at::ScalarType type);

struct Reduced {
  Elements elements;
  Reduction reduction;
  std::optional<at::ScalarType> widened;  // Reduce a copy of this type instead.
};
/// Throws a RuntimeError for operations that are not defined for the type.
Reduced reduced_as(at::ScalarType type, const c10d::ReduceOp& op, const char* operation);

/// Whether the memory holds the elements as they count, one behind the other.
bool lies_in_a_row(const at::Tensor& tensor);
/// Throws unless it is a dense tensor on the CPU or a CUDA device.
void check_tensor(const at::Tensor& tensor, const char* operation);
/// Throws unless there is exactly one, and returns it. `which`: "input " or "output ", for errors.
const at::Tensor& only(const std::vector<at::Tensor>& tensors, const char* operation,
                       const char* which = "");
/// Throws unless all have that type.
void check_type(const std::vector<at::Tensor>& tensors, at::ScalarType type, const char* operation);

std::size_t count_of(const at::Tensor& tensor, const Elements& elements);
/// The same of each.
std::vector<std::size_t> counts_of(const std::vector<at::Tensor>& list, const Elements& elements);
/// The same if they differ; empty if all are of one size.
std::vector<std::size_t> vector_counts(const std::vector<at::Tensor>& list,
                                       const Elements& elements);
/// On any thread, whatever modes it and the tensors were made in; autograd sees nothing.
void copy_over(const at::Tensor& to, const at::Tensor& from);
/// Whether the bytes of the two overlap, but are not the same range.
bool overlap(const void* a, std::size_t a_bytes, const void* b, std::size_t b_bytes);
/// Whether any two of the tensors overlap in memory. A view with holes counts as if it had none.
bool any_overlap(const std::vector<at::Tensor>& tensors);
/// Throws unless all have the type and the size of the first.
void check_alike(const std::vector<at::Tensor>& tensors, const char* operation);
/// into = into op tensor, element by element. Throws for averages.
void combine(const at::Tensor& into, const at::Tensor& tensor, const c10d::ReduceOp& op,
             const char* operation);

}  // namespace tutti::python
