// The collectives of a TorchBackend: what they check, and the requests that each is made of.
#include <algorithm>
#include <numeric>

#include <ATen/Functions.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/distributed/c10d/Utils.hpp>

#include "allocator.h"
#include "backend.h"
#include "errors.h"
#include "operations.h"

namespace tutti::python {
namespace {

std::size_t bytes_of(const at::Tensor& tensor) { return tensor.nbytes(); }

/// Where block `rank` of a buffer with `ranks` blocks begins.
const std::byte* block_of(const at::Tensor& tensor, int ranks, int rank) {
  return static_cast<const std::byte*>(tensor.const_data_ptr()) +
         bytes_of(tensor) / static_cast<std::size_t>(ranks) * static_cast<std::size_t>(rank);
}

}  // namespace

/// The tensor itself if its elements lie in a row, else a copy that lives as long as the job.
at::Tensor TorchBackend::input_of(Job& job, const at::Tensor& tensor) {
  check_tensor(tensor, job.operation.name);
  job.inputs.push_back(tensor);
  if (lies_in_a_row(tensor)) return tensor;
  const c10::NoGradGuard no_grad;
  job.keeps.push_back(tensor.contiguous().resolve_conj().resolve_neg());
  return job.keeps.back();
}

/// The tensor itself if its elements lie in a row, else memory that is copied to it at the end.
at::Tensor TorchBackend::output_of(Job& job, const at::Tensor& tensor) {
  check_tensor(tensor, job.operation.name);
  job.outputs.push_back(tensor);
  if (lies_in_a_row(tensor)) return tensor;
  const at::Tensor copy = make_beside(tensor, tensor.sizes(), tensor.scalar_type());
  job.copies.emplace_back(tensor, copy);
  return copy;
}

/// At the end, copies the parts of a buffer to a list of outputs.
void TorchBackend::copy_parts(Job& job, const at::Tensor& flat, const Tensors& list) {
  std::int64_t at = 0;
  for (const at::Tensor& tensor : list) {
    job.copies.emplace_back(tensor, flat.narrow(0, at, tensor.numel()).view(tensor.sizes()));
    job.outputs.push_back(tensor);
    at += tensor.numel();
  }
}

/// One buffer for a list of outputs, to which its parts are copied at the end.
at::Tensor TorchBackend::flat_output(Job& job, const Tensors& list) {
  std::int64_t elements = 0;
  for (const at::Tensor& tensor : list) elements += tensor.numel();
  at::Tensor flat = make_beside(list.front(), {elements}, list.front().scalar_type());
  copy_parts(job, flat, list);
  job.keeps.push_back(flat);
  return flat;
}

/// A list of inputs, one behind the other.
at::Tensor TorchBackend::flat_input(Job& job, const Tensors& list) {
  const c10::NoGradGuard no_grad;
  std::int64_t elements = 0;
  for (const at::Tensor& tensor : list) elements += tensor.numel();
  at::Tensor flat = make_beside(list.front(), {elements}, list.front().scalar_type());
  std::int64_t at = 0;
  for (const at::Tensor& tensor : list) {
    flat.narrow(0, at, tensor.numel()).view(tensor.sizes()).copy_(tensor);
    job.inputs.push_back(tensor);
    at += tensor.numel();
  }
  job.keeps.push_back(flat);
  return flat;
}

/// A list of one tensor for each rank: this rank's is like `own`, and those of others too, unless
/// they `may_differ` in size.
void TorchBackend::check_list(const Tensors& list, const at::Tensor& own, const char* operation,
                              const char* which, bool may_differ) const {
  TORCH_CHECK(static_cast<int>(list.size()) == size_, "tutti: ", operation, ": Incorrect ", which,
              " list size: ", list.size(), " tensors for ", size_, " ranks");
  check_type(list, own.scalar_type(), operation);
  for (int rank = 0; rank < size_; ++rank) {
    const at::Tensor& tensor = list[static_cast<std::size_t>(rank)];
    TORCH_CHECK((may_differ && rank != rank_) || tensor.numel() == own.numel(),
                "tutti: ", operation, ": invalid tensor size: that of rank ", rank, " is ",
                tensor.sizes(), ", this rank's is ", own.sizes());
  }
}

Rank TorchBackend::root_of(std::int64_t root, const char* operation) const {
  TORCH_CHECK(root >= 0 && root < size_, "tutti: ", operation, ": invalid root rank ", root,
              ", there are ", size_, " ranks");
  return Rank{static_cast<int>(root)};
}

void TorchBackend::add_all_reduce(Job& job, const at::Tensor& tensor, const c10d::ReduceOp& op,
                                  bool in_place) const {
  check_tensor(tensor, job.operation.name);
  const Reduced reduced = reduced_as(tensor.scalar_type(), op, job.operation.name);
  job.inputs.push_back(tensor);
  job.outputs.push_back(tensor);
  at::Tensor flat = tensor;
  if (!in_place || reduced.widened || !lies_in_a_row(tensor)) {
    const c10::NoGradGuard no_grad;
    flat = make_beside(tensor, tensor.sizes(), reduced.widened.value_or(tensor.scalar_type()));
    flat.copy_(tensor);
    job.copies.emplace_back(tensor, flat);
  }
  job.requests.push_back({.collective = Collective::kAllReduce,
                          .input = flat.const_data_ptr(),
                          .output = flat.data_ptr(),
                          .count = count_of(flat, reduced.elements),
                          .type = reduced.elements.type,
                          .reduction = reduced.reduction});
}

TorchBackend::WorkPtr TorchBackend::all_reduce_on_wire(const at::Tensor& tensor,
                                                       const std::string& wire) {
  const auto known = parse_wire(wire);
  TORCH_CHECK(known, "tutti: all_reduce: there is no wire '", wire,
              "'; there are float16, bfloat16, int8 and float8, with :nearest or :stochastic");
  const auto job = make_job(kAllReduce, c10d::kUnsetTimeout);
  add_all_reduce(*job, tensor, c10d::ReduceOp::AVG);
  job->requests.back().wire = *known;
  return issue(job, true);
}

/// The tensors of a list are reduced on this rank first, then over the ranks, and all of them get
/// the result.
TorchBackend::WorkPtr TorchBackend::allreduce(Tensors& tensors,
                                              const c10d::AllreduceOptions& options) {
  if (!tensors.empty() && tensors.front().is_sparse()) return allreduce_sparse(tensors, options);
  TORCH_CHECK(!tensors.empty(), "tutti: all_reduce: requires non-empty tensor list");
  const auto job = make_job(kAllReduce, options.timeout);
  if (tensors.size() == 1) {
    add_all_reduce(*job, tensors.front(), options.reduceOp);
    return issue(job, options.asyncOp);
  }
  check_alike(tensors, "all_reduce");
  const at::Tensor& first = tensors.front();
  const at::Tensor sum = make_beside(first, first.sizes(), first.scalar_type());
  copy_over(sum, first);
  for (std::size_t i = 1; i < tensors.size(); ++i)
    combine(sum, tensors[i], options.reduceOp, "all_reduce");
  add_all_reduce(*job, sum, options.reduceOp);
  for (const at::Tensor& tensor : tensors) job->copies.emplace_back(tensor, sum);
  job->inputs = job->outputs = tensors;
  return issue(job, options.asyncOp);
}

/// Reduces each tensor by itself. If tensors overlap, reads all before it writes the first, and
/// writes in the order of the list, as if all had been gathered into one buffer and reduced there.
TorchBackend::WorkPtr TorchBackend::allreduce_coalesced(
    Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) {
  TORCH_CHECK(!tensors.empty(), "tutti: all_reduce_coalesced: requires non-empty tensor list");
  for (const at::Tensor& tensor : tensors) check_tensor(tensor, "all_reduce_coalesced");
  const auto job = make_job(kAllReduceCoalesced, options.timeout);
  const bool in_place = !any_overlap(tensors);
  for (const at::Tensor& tensor : tensors) add_all_reduce(*job, tensor, options.reduceOp, in_place);
  return issue(job, options.asyncOp);
}

/// The root's tensor number `rootTensor` goes to all tensors in the lists of all ranks.
TorchBackend::WorkPtr TorchBackend::broadcast(Tensors& tensors,
                                              const c10d::BroadcastOptions& options) {
  const Rank root = root_of(options.rootRank, "broadcast");
  TORCH_CHECK(
      options.rootTensor >= 0 && options.rootTensor < static_cast<std::int64_t>(tensors.size()),
      "tutti: broadcast: invalid root tensor ", options.rootTensor, " in a list of ",
      tensors.size());
  check_alike(tensors, "broadcast");
  const at::Tensor tensor = tensors[static_cast<std::size_t>(options.rootTensor)];
  const auto job = make_job(kBroadcast, options.timeout);
  const bool gives = root.value == rank_;
  const at::Tensor flat = gives ? input_of(*job, tensor) : output_of(*job, tensor);
  for (const at::Tensor& other : tensors) {
    if (!other.is_same(tensor)) job->copies.emplace_back(other, flat);
  }
  job->outputs = tensors;
  const Elements elements = copied_as(tensor.scalar_type());
  job->requests.push_back({.collective = Collective::kBroadcast,
                           .input = gives ? flat.const_data_ptr() : nullptr,
                           .output = flat.data_ptr(),
                           .count = count_of(flat, elements),
                           .type = elements.type,
                           .root = root});
  return issue(job, options.asyncOp);
}

TorchBackend::WorkPtr TorchBackend::reduce(Tensors& tensors, const c10d::ReduceOptions& options) {
  const at::Tensor tensor = only(tensors, "reduce");
  const Rank root = root_of(options.rootRank, "reduce");
  const auto job = make_job(kReduce, options.timeout);
  add_all_reduce(*job, tensor, options.reduceOp);
  Request& request = job->requests.front();
  request.collective = Collective::kReduce;
  request.root = root;
  if (root.value != rank_) {
    request.output = nullptr;
    for (const auto& [to, from] : job->copies) job->keeps.push_back(from);
    job->copies.clear();  // Only the root's tensor changes.
  }
  return issue(job, options.asyncOp);
}

void TorchBackend::add_all_gather(Job& job, const at::Tensor& output, const at::Tensor& input,
                                  const Tensors& parts) const {
  TORCH_CHECK(output.scalar_type() == input.scalar_type(), "tutti: ", job.operation.name,
              ": output tensor must have the same type as input tensor");
  TORCH_CHECK(!parts.empty() || output.numel() == input.numel() * size_,
              "tutti: ", job.operation.name,
              ": output tensor size must be equal to world_size times input tensor size; ",
              output.numel(), " elements are not ", size_, " times ", input.numel());
  const Elements elements = copied_as(input.scalar_type());
  const at::Tensor to = output_of(job, output);
  at::Tensor from = input_of(job, input);
  const auto* own = block_of(to, size_, rank_);
  if (from.const_data_ptr() != own &&
      overlap(from.const_data_ptr(), bytes_of(from), to.const_data_ptr(), bytes_of(to))) {
    from = from.clone();
    job.keeps.push_back(from);
  }
  Request request{.collective = Collective::kAllGather,
                  .input = from.const_data_ptr(),
                  .output = to.data_ptr(),
                  .count = count_of(from, elements),
                  .type = elements.type};
  if (auto counts = vector_counts(parts, elements); !counts.empty()) {
    request.vector_variant = true;
    request.output_blocks = {job.lists.emplace_back(std::move(counts)), {}};
  }
  job.requests.push_back(request);
}

TorchBackend::WorkPtr TorchBackend::_allgather_base(at::Tensor& output, at::Tensor& input,
                                                    const c10d::AllgatherOptions& options) {
  const auto job = make_job(kAllGatherBase, options.timeout);
  add_all_gather(*job, output, input);
  return issue(job, options.asyncOp);
}

TorchBackend::WorkPtr TorchBackend::allgather_into_tensor_coalesced(
    Tensors& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) {
  TORCH_CHECK(outputs.size() == inputs.size(), "tutti: all_gather_into_tensor: ", outputs.size(),
              " outputs, but ", inputs.size(), " inputs");
  const auto job = make_job(kAllGatherBase, options.timeout);
  for (std::size_t i = 0; i < inputs.size(); ++i) add_all_gather(*job, outputs[i], inputs[i]);
  return issue(job, options.asyncOp);
}

TorchBackend::WorkPtr TorchBackend::allgather(std::vector<Tensors>& outputs, Tensors& inputs,
                                              const c10d::AllgatherOptions& options) {
  TORCH_CHECK(!inputs.empty(), "tutti: all_gather: requires non-empty input tensor list");
  TORCH_CHECK(outputs.size() == inputs.size(),
              "tutti: all_gather: requires input/output tensor lists to have the same length, not ",
              inputs.size(), " and ", outputs.size());
  const auto job = make_job(kAllGather, options.timeout);
  for (const Tensors& list : outputs) {
    TORCH_CHECK(list.size() == inputs.size() * static_cast<std::size_t>(size_),
                "tutti: all_gather: invalid output tensor list: ", list.size(), " tensors for ",
                inputs.size(), " inputs of ", size_, " ranks");
  }
  if (inputs.size() > 1) return all_gather_lists(job, outputs, inputs, options.asyncOp);
  const at::Tensor input = only(inputs, "all_gather");
  check_list(outputs.front(), input, "all_gather", "output", true);
  const at::Tensor flat = flat_output(*job, outputs.front());
  const Tensors results = job->outputs;
  add_all_gather(*job, flat, input, outputs.front());
  job->outputs = results;
  return issue(job, options.asyncOp);
}

/// Each list of outputs gets all inputs of rank 0, then those of rank 1, and so on.
TorchBackend::WorkPtr TorchBackend::all_gather_lists(const JobPtr& job,
                                                     std::vector<Tensors>& outputs, Tensors& inputs,
                                                     bool async) {
  for (const Tensors& list : outputs) {
    Tensors all = inputs;
    all.insert(all.end(), list.begin(), list.end());
    check_alike(all, "all_gather");
  }
  const at::Tensor flat = flat_output(*job, outputs.front());
  for (std::size_t i = 1; i < outputs.size(); ++i) copy_parts(*job, flat, outputs[i]);
  const Tensors results = job->outputs;
  const at::Tensor input = flat_input(*job, inputs);
  add_all_gather(*job, flat, input);
  job->inputs = inputs;
  job->outputs = results;
  return issue(job, async);
}

TorchBackend::WorkPtr TorchBackend::allgather_coalesced(std::vector<Tensors>& outputs,
                                                        Tensors& inputs,
                                                        const c10d::AllgatherOptions& options) {
  const auto job = make_job(kAllGatherCoalesced, options.timeout);
  TORCH_CHECK(static_cast<int>(outputs.size()) == size_,
              "tutti: all_gather_coalesced: output lists should be equal to world size");
  Tensors results;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    Tensors list;
    for (const Tensors& of_rank : outputs) {
      TORCH_CHECK(of_rank.size() == inputs.size(),
                  "tutti: all_gather_coalesced: invalid "
                  "output size: ",
                  of_rank.size(), " tensors for ", inputs.size(), " inputs");
      list.push_back(of_rank[i]);
    }
    check_list(list, inputs[i], "all_gather_coalesced", "output", true);
    const at::Tensor flat = flat_output(*job, list);
    add_all_gather(*job, flat, inputs[i], list);
    results.insert(results.end(), list.begin(), list.end());
  }
  job->outputs = results;
  return issue(job, options.asyncOp);
}

void TorchBackend::add_reduce_scatter(Job& job, const at::Tensor& output, const at::Tensor& input,
                                      const c10d::ReduceOp& op, const Tensors& parts) const {
  TORCH_CHECK(output.scalar_type() == input.scalar_type(), "tutti: ", job.operation.name,
              ": input tensor must be the same type as the output tensor.");
  TORCH_CHECK(!parts.empty() || output.numel() * size_ == input.numel(),
              "tutti: ", job.operation.name,
              ": input tensor must be the same size as output size times world size; ",
              input.numel(), " elements are not ", size_, " times ", output.numel());
  const Reduced reduced = reduced_as(input.scalar_type(), op, job.operation.name);
  at::Tensor from = input_of(job, input), to;
  if (reduced.widened) {
    from = from.to(*reduced.widened);
    job.keeps.push_back(from);
    to = make_beside(output, output.sizes(), *reduced.widened);
    check_tensor(output, job.operation.name);
    job.outputs.push_back(output);
    job.copies.emplace_back(output, to);
  } else {
    to = output_of(job, output);
  }
  if (block_of(from, size_, rank_) != to.const_data_ptr() &&
      overlap(from.const_data_ptr(), bytes_of(from), to.const_data_ptr(), bytes_of(to))) {
    from = from.clone();
    job.keeps.push_back(from);
  }
  Request request{.collective = Collective::kReduceScatter,
                  .input = from.const_data_ptr(),
                  .output = to.data_ptr(),
                  .count = count_of(to, reduced.elements),
                  .type = reduced.elements.type,
                  .reduction = reduced.reduction};
  if (auto counts = vector_counts(parts, reduced.elements); !counts.empty()) {
    request.vector_variant = true;
    request.input_blocks = {job.lists.emplace_back(std::move(counts)), {}};
  }
  job.requests.push_back(request);
}

TorchBackend::WorkPtr TorchBackend::_reduce_scatter_base(
    at::Tensor& output, at::Tensor& input, const c10d::ReduceScatterOptions& options) {
  const auto job = make_job(kReduceScatterBase, options.timeout);
  add_reduce_scatter(*job, output, input, options.reduceOp);
  return issue(job, options.asyncOp);
}

TorchBackend::WorkPtr TorchBackend::reduce_scatter_tensor_coalesced(
    Tensors& outputs, Tensors& inputs, const c10d::ReduceScatterOptions& options) {
  TORCH_CHECK(outputs.size() == inputs.size(), "tutti: reduce_scatter_tensor: ", outputs.size(),
              " outputs, but ", inputs.size(), " inputs");
  const auto job = make_job(kReduceScatterBase, options.timeout);
  for (std::size_t i = 0; i < inputs.size(); ++i)
    add_reduce_scatter(*job, outputs[i], inputs[i], options.reduceOp);
  return issue(job, options.asyncOp);
}

TorchBackend::WorkPtr TorchBackend::reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                                                   const c10d::ReduceScatterOptions& options) {
  const at::Tensor output = only(outputs, "reduce_scatter", "output ");
  TORCH_CHECK(inputs.size() == 1,
              "tutti: reduce_scatter: requires a single-element input list, this one has ",
              inputs.size());
  const auto job = make_job(kReduceScatter, options.timeout);
  check_list(inputs.front(), output, "reduce_scatter", "input", true);
  const at::Tensor flat = flat_input(*job, inputs.front());
  add_reduce_scatter(*job, output, flat, options.reduceOp, inputs.front());
  return issue(job, options.asyncOp);
}

}  // namespace tutti::python
