// The collectives of a TorchBackend with a root, with blocks for each pair of ranks, without data,
// and of sparse tensors.
#include <algorithm>
#include <numeric>

#include <ATen/Functions.h>
#include <c10/core/GradMode.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/csrc/distributed/c10d/Utils.hpp>

#include "allocator.h"
#include "backend.h"
#include "errors.h"
#include "operations.h"

namespace tutti::python {
namespace {

/// Elements that each rank gives or gets: of a tensor that is split along its first dimension, as
/// torch says it, or evenly.
std::vector<std::size_t> split_counts(const at::Tensor& tensor, const std::vector<int64_t>& splits,
                                      int ranks, std::size_t each) {
  c10d::checkSplitSizes(splits, tensor, ranks);
  const auto all = static_cast<std::size_t>(ranks);
  const auto elements = static_cast<std::size_t>(tensor.numel()) * each;
  if (splits.empty()) return std::vector<std::size_t>(all, elements / all);
  const auto rows = tensor.dim() == 0 ? 1 : static_cast<std::size_t>(tensor.size(0));
  const std::size_t row = rows == 0 ? 0 : elements / rows;
  std::vector<std::size_t> counts;
  for (const int64_t split : splits) counts.push_back(static_cast<std::size_t>(split) * row);
  return counts;
}

}  // namespace

TorchBackend::WorkPtr TorchBackend::gather(std::vector<Tensors>& outputs, Tensors& inputs,
                                           const c10d::GatherOptions& options) {
  const at::Tensor input = only(inputs, "gather", "input ");
  const Rank root = root_of(options.rootRank, "gather");
  const auto job = make_job(kGather, options.timeout);
  at::Tensor to;
  if (root.value == rank_) {
    TORCH_CHECK(outputs.size() == 1, "tutti: gather: requires a single-element output list");
    check_list(outputs.front(), input, "gather", "output");
    to = flat_output(*job, outputs.front());
  } else {
    TORCH_CHECK(outputs.empty(), "tutti: gather: requires empty output on non-root");
  }
  const at::Tensor from = input_of(*job, input);
  const Elements elements = copied_as(input.scalar_type());
  job->requests.push_back({.collective = Collective::kGather,
                           .input = from.const_data_ptr(),
                           .output = to.defined() ? to.data_ptr() : nullptr,
                           .count = count_of(from, elements),
                           .type = elements.type,
                           .root = root});
  return issue(job, options.asyncOp);
}

TorchBackend::WorkPtr TorchBackend::scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                                            const c10d::ScatterOptions& options) {
  const at::Tensor output = only(outputs, "scatter", "output ");
  const Rank root = root_of(options.rootRank, "scatter");
  const auto job = make_job(kScatter, options.timeout);
  at::Tensor from;
  if (root.value == rank_) {
    TORCH_CHECK(inputs.size() == 1, "tutti: scatter: requires a single-element input list");
    check_list(inputs.front(), output, "scatter", "input");
    from = flat_input(*job, inputs.front());
  } else {
    TORCH_CHECK(inputs.empty(), "tutti: scatter: requires empty input on non-root");
  }
  const at::Tensor to = output_of(*job, output);
  const Elements elements = copied_as(output.scalar_type());
  job->requests.push_back({.collective = Collective::kScatter,
                           .input = from.defined() ? from.const_data_ptr() : nullptr,
                           .output = to.data_ptr(),
                           .count = count_of(to, elements),
                           .type = elements.type,
                           .root = root});
  return issue(job, options.asyncOp);
}

TorchBackend::WorkPtr TorchBackend::alltoall_base(at::Tensor& output, at::Tensor& input,
                                                  std::vector<int64_t>& output_splits,
                                                  std::vector<int64_t>& input_splits,
                                                  const c10d::AllToAllOptions& options) {
  check_type({input}, output.scalar_type(), "all_to_all_single");
  const auto job = make_job(kAllToAllBase, options.timeout);
  const Elements elements = copied_as(input.scalar_type());
  const at::Tensor to = output_of(*job, output);
  at::Tensor from = input_of(*job, input);
  const auto& gives =
      job->lists.emplace_back(split_counts(input, input_splits, size_, elements.each));
  const auto& gets =
      job->lists.emplace_back(split_counts(output, output_splits, size_, elements.each));
  const bool even = input_splits.empty() && output_splits.empty();
  TORCH_CHECK(!even || gives == gets, "tutti: all_to_all_single: the input has ", input.numel(),
              " elements, the output ", output.numel());
  const bool same = from.const_data_ptr() == to.const_data_ptr();
  if ((same && !even) ||
      overlap(from.const_data_ptr(), from.nbytes(), to.const_data_ptr(), to.nbytes())) {
    from = from.clone();
    job->keeps.push_back(from);
  }
  Request request{.collective = Collective::kAllToAll,
                  .input = from.const_data_ptr(),
                  .output = to.data_ptr(),
                  .count = even ? gives.front() : 0,
                  .type = elements.type,
                  .vector_variant = !even};
  if (!even) {
    request.input_blocks = {gives, {}};
    request.output_blocks = {gets, {}};
  }
  job->requests.push_back(request);
  return issue(job, options.asyncOp);
}

TorchBackend::WorkPtr TorchBackend::alltoall(Tensors& outputs, Tensors& inputs,
                                             const c10d::AllToAllOptions& options) {
  const auto job = make_job(kAllToAll, options.timeout);
  const auto ranks = static_cast<std::size_t>(size_);
  TORCH_CHECK(inputs.size() == ranks && outputs.size() == ranks,
              "tutti: all_to_all: ", inputs.size(), " inputs and ", outputs.size(),
              " outputs, there are ", size_, " ranks");
  check_type(inputs, inputs.front().scalar_type(), "all_to_all");
  check_type(outputs, inputs.front().scalar_type(), "all_to_all");
  const Elements elements = copied_as(inputs.front().scalar_type());
  const auto& gives = job->lists.emplace_back(counts_of(inputs, elements));
  const auto& gets = job->lists.emplace_back(counts_of(outputs, elements));
  const at::Tensor from = flat_input(*job, inputs), to = flat_output(*job, outputs);
  job->requests.push_back({.collective = Collective::kAllToAll,
                           .input = from.const_data_ptr(),
                           .output = to.data_ptr(),
                           .type = elements.type,
                           .vector_variant = true,
                           .input_blocks = {gives, {}},
                           .output_blocks = {gets, {}}});
  return issue(job, options.asyncOp);
}

/// An all-reduce of one byte: the same call for a barrier that blocks as for one that is started.
/// One of a device waits for its current stream first.
TorchBackend::WorkPtr TorchBackend::barrier(const c10d::BarrierOptions& options) {
  if (options.device && !options.device->is_cpu()) {
    const c10::impl::VirtualGuardImpl guard(options.device->type());
    guard.synchronizeStream(
        guard.getStream(options.device->has_index() ? *options.device : guard.getDevice()));
  }
  const auto job = make_job(kBarrier, options.timeout);
  const at::Tensor byte = at::zeros({1}, at::kByte);
  job->keeps.push_back(byte);
  job->requests.push_back({.collective = Collective::kAllReduce,
                           .input = byte.const_data_ptr(),
                           .output = byte.data_ptr(),
                           .count = 1,
                           .type = DataType::kUint8,
                           .reduction = ReduceOp::kMax});
  return issue(job, options.asyncOp);
}

/// Gathers all ranks' entries, which differ in number, and adds up those at the same place. On the
/// caller's thread, also if it may be asynchronous: there are three calls, each of which needs the
/// one before.
TorchBackend::WorkPtr TorchBackend::allreduce_sparse(Tensors& tensors,
                                                     const c10d::AllreduceOptions& options) {
  TORCH_CHECK(
      tensors.size() == 1 && tensors.front().is_sparse() && tensors.front().device().is_cpu(),
      "tutti: sparse all_reduce: takes one sparse tensor on the CPU");
  TORCH_CHECK(options.reduceOp.op_ == c10d::ReduceOp::SUM,
              "tutti: sparse all_reduce: only SUM is defined for sparse tensors");
  const c10::NoGradGuard no_grad;
  const std::weak_ptr<Communicator> ranks = communicator();  // The same for all three calls.
  const at::Tensor mine = tensors.front().coalesce();
  const at::Tensor indices = mine.indices().t().contiguous(), values = mine.values().contiguous();
  const auto one_call = [&](const Tensors& keeps, const Request& request,
                            const std::vector<std::size_t>& counts) {
    const auto job = make_job(kAllReduceSparse, options.timeout);
    job->communicator = ranks;
    job->keeps = keeps;
    job->requests.push_back(request);
    if (!counts.empty()) job->requests.back().output_blocks = {job->lists.emplace_back(counts), {}};
    if (const auto work = issue(job, false)) work->wait();
  };
  const at::Tensor own_count = at::full({1}, mine._nnz(), at::kLong);
  const at::Tensor counts = at::empty({size_}, at::kLong);
  one_call({own_count, counts},
           {.collective = Collective::kAllGather,
            .input = own_count.const_data_ptr(),
            .output = counts.data_ptr(),
            .count = 1,
            .type = DataType::kInt64},
           {});
  const auto* entries = counts.const_data_ptr<std::int64_t>();
  const std::int64_t all = std::accumulate(entries, entries + size_, std::int64_t{0});
  const auto gather_rows = [&](const at::Tensor& rows) {
    std::vector<std::int64_t> sizes = rows.sizes().vec();
    const auto row = static_cast<std::size_t>(
        std::accumulate(sizes.begin() + 1, sizes.end(), std::int64_t{1}, std::multiplies<>()));
    sizes.front() = all;
    const at::Tensor gathered = make_mappable(sizes, rows.scalar_type());
    const Elements elements = copied_as(rows.scalar_type());
    std::vector<std::size_t> blocks;
    for (int rank = 0; rank < size_; ++rank)
      blocks.push_back(static_cast<std::size_t>(entries[rank]) * row * elements.each);
    one_call({rows, gathered},
             {.collective = Collective::kAllGather,
              .input = rows.const_data_ptr(),
              .output = gathered.data_ptr(),
              .count = count_of(rows, elements),
              .type = elements.type,
              .vector_variant = true},
             blocks);
    return gathered;
  };
  const at::Tensor all_indices = gather_rows(indices), all_values = gather_rows(values);
  tensors.front().copy_(
      at::sparse_coo_tensor(all_indices.t(), all_values, mine.sizes()).coalesce());
  const auto work = make_work(kAllReduceSparse, {}, tensors, number_++);
  work->complete();
  join(work);
  return work;
}

}  // namespace tutti::python
