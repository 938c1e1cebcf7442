#include "tensors.h"

#include <algorithm>
#include <iterator>

#include <ATen/Functions.h>
#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>

namespace tutti::python {
namespace {

/// PyTorch's name of a type.
struct TorchType {
  DataType own;
  at::ScalarType type;
};
constexpr TorchType kTypes[] = {{DataType::kInt8, at::kChar},
                                {DataType::kUint8, at::kByte},
                                {DataType::kInt16, at::kShort},
                                {DataType::kUint16, at::kUInt16},
                                {DataType::kInt32, at::kInt},
                                {DataType::kUint32, at::kUInt32},
                                {DataType::kInt64, at::kLong},
                                {DataType::kUint64, at::kUInt64},
                                {DataType::kFloat16, at::kHalf},
                                {DataType::kFloat32, at::kFloat},
                                {DataType::kFloat64, at::kDouble},
                                {DataType::kBfloat16, at::kBFloat16},
                                {DataType::kFloat8E4M3, at::kFloat8_e4m3fn},
                                {DataType::kFloat8E5M2, at::kFloat8_e5m2}};
#define TUTTI_DATA_TYPE(...) +1
static_assert(std::size(kTypes) == 0
#include "tutti/data_types.def"
);
#undef TUTTI_DATA_TYPE

std::optional<DataType> own_type(at::ScalarType type) {
  const auto found = std::ranges::find(kTypes, type, &TorchType::type);
  return found != std::end(kTypes) ? std::optional(found->own) : std::nullopt;
}

struct TorchOp {
  c10d::ReduceOp::RedOpType op;
  const char* name;
  ReduceOp own;
};
constexpr TorchOp kOps[] = {{c10d::ReduceOp::SUM, "SUM", ReduceOp::kSum},
                            {c10d::ReduceOp::AVG, "AVG", ReduceOp::kAvg},
                            {c10d::ReduceOp::PRODUCT, "PRODUCT", ReduceOp::kProd},
                            {c10d::ReduceOp::MIN, "MIN", ReduceOp::kMin},
                            {c10d::ReduceOp::MAX, "MAX", ReduceOp::kMax},
                            {c10d::ReduceOp::BAND, "BAND", ReduceOp::kAnd},
                            {c10d::ReduceOp::BOR, "BOR", ReduceOp::kOr},
                            {c10d::ReduceOp::BXOR, "BXOR", ReduceOp::kXor},
                            {c10d::ReduceOp::PREMUL_SUM, "PREMUL_SUM", ReduceOp::kPreMulSum}};

/// Null: an unknown operation.
const TorchOp* find(c10d::ReduceOp::RedOpType op) {
  const auto found = std::ranges::find(kOps, op, &TorchOp::op);
  return found != std::end(kOps) ? found : nullptr;
}

const char* name_of(c10d::ReduceOp::RedOpType op) {
  const TorchOp* const found = find(op);
  return found != nullptr ? found->name : "an unknown operation";
}

double scale_of(const c10d::ReduceOp& op) {
  const auto* supplement = dynamic_cast<const c10d::NCCLPreMulSumSupplement*>(op.supplement_.get());
  TORCH_CHECK(supplement != nullptr,
              "tutti: PREMUL_SUM without a factor; make it with "
              "torch.distributed._make_nccl_premul_sum");
  return supplement->tensor_factor.defined() ? supplement->tensor_factor.item<double>()
                                             : supplement->double_factor;
}

Reduction reduction_of(const c10d::ReduceOp& op) {
  const TorchOp* const found = find(op.op_);
  TORCH_CHECK(found != nullptr, "tutti: unknown reduction ", static_cast<int>(op.op_));
  if (found->own == ReduceOp::kPreMulSum) return Reduction::pre_mul_sum(scale_of(op));
  return found->own;
}

/// The reduction of bytes that are 0 or 1, and stay so.
Reduction boolean(const Reduction& reduction) {
  switch (reduction.op) {
    case ReduceOp::kSum: return ReduceOp::kMax;
    case ReduceOp::kProd: return ReduceOp::kMin;
    default: return reduction;
  }
}

}  // namespace

Elements copied_as(at::ScalarType type) {
  if (const auto own = own_type(type)) return {*own, 1};
  return {DataType::kUint8, c10::elementSize(type)};
}

Reduced reduced_as(at::ScalarType type, const c10d::ReduceOp& op, const char* operation) {
  const Reduction reduction = reduction_of(op);
  const auto refuse = [&](const char* why) {
    TORCH_CHECK(false, "tutti: ", operation, ": Cannot use ReduceOp.", name_of(op.op_), " with ",
                type, ": ", why);
  };
  const bool averages = reduction.op == ReduceOp::kAvg || reduction.op == ReduceOp::kPreMulSum;
  if (type == at::kBool) {
    if (averages) refuse("truth values have no average; convert the tensor first");
    return {{DataType::kUint8, 1}, boolean(reduction), std::nullopt};
  }
  if (reduction.op == ReduceOp::kPreMulSum && c10::isIntegralType(type, false))
    refuse("a factor is a fraction; convert the tensor first");
  if (averages && (type == at::kShort || type == at::kUInt16))  // Sums may not fit.
    return {{DataType::kInt32, 1}, reduction, at::kInt};
  if (c10::isComplexType(type)) {
    if (reduction.op != ReduceOp::kSum && !averages)
      refuse("of complex numbers only sums and averages are defined");
    const auto real = own_type(c10::toRealValueType(type));
    return {{*real, 2}, reduction, std::nullopt};
  }
  const auto own = own_type(type);
  if (!own) refuse("this type can be sent, but not reduced; convert the tensor first");
  if (!is_supported(*own, reduction.op)) refuse("bitwise operations take integers");
  return {{*own, 1}, reduction, std::nullopt};
}

bool lies_in_a_row(const at::Tensor& tensor) {
  return tensor.is_contiguous() && !tensor.is_conj() && !tensor.is_neg();
}

void check_tensor(const at::Tensor& tensor, const char* operation) {
  TORCH_CHECK(tensor.defined(), "tutti: ", operation, ": a tensor is not defined");
  TORCH_CHECK(tensor.device().is_cpu() || tensor.device().is_cuda(), "tutti: ", operation,
              ": this backend takes tensors of CPUs and CUDA devices, not of ", tensor.device());
  TORCH_CHECK(tensor.layout() == at::kStrided, "tutti: ", operation, ": takes dense tensors, not ",
              tensor.layout(), "; all_reduce takes sparse ones");
}

const at::Tensor& only(const std::vector<at::Tensor>& tensors, const char* operation,
                       const char* which) {
  TORCH_CHECK(tensors.size() == 1, "tutti: ", operation, ": requires a single-element ", which,
              "tensor list, this one has ", tensors.size());
  check_tensor(tensors.front(), operation);
  return tensors.front();
}

void check_type(const std::vector<at::Tensor>& tensors, at::ScalarType type,
                const char* operation) {
  for (const at::Tensor& tensor : tensors) {
    check_tensor(tensor, operation);
    TORCH_CHECK(tensor.scalar_type() == type, "tutti: ", operation,
                ": invalid tensor type: one is of ", tensor.scalar_type(), ", another of ", type);
  }
}

std::size_t count_of(const at::Tensor& tensor, const Elements& elements) {
  return static_cast<std::size_t>(tensor.numel()) * elements.each;
}

std::vector<std::size_t> counts_of(const std::vector<at::Tensor>& list, const Elements& elements) {
  std::vector<std::size_t> counts;
  for (const at::Tensor& tensor : list) counts.push_back(count_of(tensor, elements));
  return counts;
}

std::vector<std::size_t> vector_counts(const std::vector<at::Tensor>& list,
                                       const Elements& elements) {
  std::vector<std::size_t> counts = counts_of(list, elements);
  const auto differs = [&](std::size_t count) { return count != counts.front(); };
  if (std::none_of(counts.begin(), counts.end(), differs)) counts.clear();
  return counts;
}

void copy_over(const at::Tensor& to, const at::Tensor& from) {
  const c10::NoGradGuard no_grad;
  const c10::InferenceMode mode(to.is_inference());
  to.copy_(from);
}

bool overlap(const void* a, std::size_t a_bytes, const void* b, std::size_t b_bytes) {
  const auto* first = static_cast<const std::byte*>(a);
  const auto* second = static_cast<const std::byte*>(b);
  if (a_bytes == 0 || b_bytes == 0 || (first == second && a_bytes == b_bytes)) return false;
  const std::less<> before;
  return before(first, second + b_bytes) && before(second, first + a_bytes);
}

bool any_overlap(const std::vector<at::Tensor>& tensors) {
  std::vector<std::pair<std::uintptr_t, std::uintptr_t>> ranges;  // First byte and end.
  for (const at::Tensor& tensor : tensors) {
    if (tensor.numel() == 0) continue;
    std::int64_t last = 0;  // The element that is furthest from the first.
    for (std::int64_t axis = 0; axis < tensor.dim(); ++axis)
      last += (tensor.size(axis) - 1) * tensor.stride(axis);
    const auto begin = reinterpret_cast<std::uintptr_t>(tensor.const_data_ptr());
    ranges.emplace_back(begin, begin + (static_cast<std::size_t>(last) + 1) * tensor.itemsize());
  }
  std::sort(ranges.begin(), ranges.end());
  const auto overlaps = [](const auto& one, const auto& next) { return next.first < one.second; };
  return std::adjacent_find(ranges.begin(), ranges.end(), overlaps) != ranges.end();
}

void check_alike(const std::vector<at::Tensor>& tensors, const char* operation) {
  const at::Tensor& first = tensors.front();
  check_type(tensors, first.scalar_type(), operation);
  for (const at::Tensor& tensor : tensors) {
    TORCH_CHECK(tensor.sizes() == first.sizes(), "tutti: ", operation,
                ": invalid tensor size: one is ", first.sizes(), ", another ", tensor.sizes());
  }
}

void combine(const at::Tensor& into, const at::Tensor& tensor, const c10d::ReduceOp& op,
             const char* operation) {
  const c10::NoGradGuard no_grad;
  switch (op.op_) {
    case c10d::ReduceOp::SUM: into.add_(tensor); return;
    case c10d::ReduceOp::PRODUCT: into.mul_(tensor); return;
    case c10d::ReduceOp::MIN: into.copy_(at::minimum(into, tensor)); return;
    case c10d::ReduceOp::MAX: into.copy_(at::maximum(into, tensor)); return;
    case c10d::ReduceOp::BAND: into.bitwise_and_(tensor); return;
    case c10d::ReduceOp::BOR: into.bitwise_or_(tensor); return;
    case c10d::ReduceOp::BXOR: into.bitwise_xor_(tensor); return;
    default:
      TORCH_CHECK(false, "tutti: ", operation, ": a list of several tensors can't be reduced with ",
                  name_of(op.op_), "; give one tensor a call");
  }
}

}  // namespace tutti::python
