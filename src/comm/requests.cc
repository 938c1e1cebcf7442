// Requests: any collective in one form, also with blocks of different sizes.
#include <algorithm>
#include <climits>
#include <cstddef>

#include <fmt/format.h>

#include "comm/state.h"

namespace tutti {

std::size_t Communicator::State::own_count(const Blocks& blocks) const {
  const auto mine = static_cast<std::size_t>(me.value);
  return mine < blocks.counts.size() ? blocks.counts[mine] : 0;  // Else check_blocks complains.
}

/// Checks the sizes and places that the user gave for blocks of different sizes.
Status Communicator::State::check_blocks(const Request& request) const {
  const CollectiveTraits traits = traits_of(request.collective);
  const auto bad = [&](const std::string& what) {
    return Error{Code::kInvalidArgument,
                 fmt::format("{}_v: {}", to_string(request.collective), what), me};
  };
  if (!traits.input_each && !traits.output_each)
    return bad("no buffer of this collective has a block for each rank");
  const bool at_root = request.root == me;
  const std::size_t element = std::max<std::size_t>(1, size_of(request.type));
  const std::size_t most = static_cast<std::size_t>(PTRDIFF_MAX) / element;
  const auto check = [&](const char* name, const Blocks& blocks, bool each, bool there,
                         const void* buffer) -> Status {
    if (!there) return ok();
    std::size_t end = request.count;
    if (each) {
      const auto ranks = static_cast<std::size_t>(rank_count);
      if (blocks.counts.size() != ranks ||
          (!blocks.offsets.empty() && blocks.offsets.size() != ranks)) {
        return bad(fmt::format("the {} has {} counts and {} offsets, there are {} ranks", name,
                               blocks.counts.size(), blocks.offsets.size(), rank_count));
      }
      end = 0;
      for (std::size_t rank = 0, next = 0; rank < ranks; ++rank, next = end) {
        const std::size_t start = blocks.offsets.empty() ? next : blocks.offsets[rank];
        if (start > most || blocks.counts[rank] > most - start)
          return bad(fmt::format("the {} block of rank {} ends beyond all memory", name, rank));
        end = start + blocks.counts[rank];
      }
      const bool one_count = traits.input_each != traits.output_each;
      if (one_count && blocks.counts[static_cast<std::size_t>(me.value)] != request.count)
        return bad(
            fmt::format("this rank's own block has {} elements in the {}, but the count is {}",
                        blocks.counts[static_cast<std::size_t>(me.value)], name, request.count));
    }
    const auto has_elements = [&] {
      if (!each) return request.count != 0;
      return std::any_of(blocks.counts.begin(), blocks.counts.end(),
                         [](std::size_t count) { return count != 0; });
    };
    if (end > most) return bad(fmt::format("{} elements are more than memory can hold", end));
    if (buffer == nullptr && has_elements())
      return bad(fmt::format("the {} buffer is null, but not empty", name));
    return ok();
  };
  TUTTI_RETURN_IF_ERROR(check("input", request.input_blocks, traits.input_each,
                              !traits.root_input || at_root, request.input));
  TUTTI_RETURN_IF_ERROR(check("output", request.output_blocks, traits.output_each,
                              !traits.root_output || at_root, request.output));
  if (traits.input_each && traits.output_each && request.input == request.output &&
      request.input != nullptr)
    return bad("input and output are the same; blocks that differ in size can't change places");
  return ok();
}

Status Communicator::State::take_override(exec::Call& call,
                                          std::string_view algorithm_override) const {
  const exec::Call& last = last_override.call;
  if (last_override.text != algorithm_override || last.collective != call.collective ||
      last.root != call.root || last.vector_variant != call.vector_variant ||
      last.wire != call.wire) {
    last_override.text.clear();
    TUTTI_RETURN_IF_ERROR(selector->take_override(call, algorithm_override));
    last_override = {std::string(algorithm_override), call};
  }
  call.algorithm_override = last.algorithm_override;
  call.eager_use = last.eager_use;
  return ok();
}

Result<exec::Call> Communicator::State::make_call(const Request& request) const {
  exec::Call call = make_call(request.collective, request.input, request.output, request.count,
                              request.type, request.reduction, request.root.value);
  call.vector_variant = request.vector_variant;
  if (!request.wire.is_plain()) call.set(request.wire);
  if (!request.algorithm.empty() || !request.wire.is_plain())
    TUTTI_RETURN_IF_ERROR(take_override(call, request.algorithm));
  if (!request.vector_variant) return call;
  TUTTI_RETURN_IF_ERROR(check_blocks(request));
  const auto list = [](const Blocks& blocks) {
    return exec::BlockList{blocks.counts.data(),
                           blocks.offsets.empty() ? nullptr : blocks.offsets.data()};
  };
  call.input_blocks = list(request.input_blocks);
  call.output_blocks = list(request.output_blocks);
  return call;
}

namespace {

Status check_for_host(const Request& request) {
  if (request.device_scale == nullptr) return ok();
  return Error{Code::kInvalidArgument,
               "device_scale is for communicators of devices; set reduction.scale"};
}

}  // namespace

Result<exec::Call> Communicator::State::make_checked_call(const Request& request) const {
  TUTTI_RETURN_IF_ERROR(check_for_host(request));
  TUTTI_TRY(const exec::Call call, make_call(request));
  TUTTI_RETURN_IF_ERROR(check(call));
  return call;
}

Status Communicator::call(const Request& request) {
  if (state_ == nullptr) [[unlikely]]
    return usable(to_string(request.collective));
  // The usual call is made where it is used: a Result of one would be copied twice.
  if (!request.vector_variant && request.algorithm.empty() && request.device_scale == nullptr &&
      request.wire.is_plain()) [[likely]] {
    return state_->run(request.collective, request.input, request.output, request.count,
                       request.type, request.reduction, request.root.value);
  }
  return state_->guarded(to_string(request.collective), [&]() -> Status {
    TUTTI_RETURN_IF_ERROR(check_for_host(request));
    TUTTI_TRY(const exec::Call call, state_->make_call(request));
    return state_->run(call);
  });
}

Result<Work> Communicator::start(const Request& request) {
  TUTTI_RETURN_IF_ERROR(usable(to_string(request.collective)));
  return state_->guarded(to_string(request.collective), [&]() -> Result<Work> {
    TUTTI_RETURN_IF_ERROR(check_for_host(request));
    TUTTI_TRY(const exec::Call call, state_->make_call(request));
    return state_->start(call);
  });
}

Status Communicator::all_gather_v(const void* input, void* output, const Blocks& blocks,
                                  DataType type) {
  TUTTI_RETURN_IF_ERROR(usable("all_gather_v"));
  return call({.collective = Collective::kAllGather,
               .input = input,
               .output = output,
               .count = state_->own_count(blocks),
               .type = type,
               .vector_variant = true,
               .output_blocks = blocks});
}

Status Communicator::reduce_scatter_v(const void* input, const Blocks& blocks, void* output,
                                      DataType type, Reduction reduction) {
  TUTTI_RETURN_IF_ERROR(usable("reduce_scatter_v"));
  return call({.collective = Collective::kReduceScatter,
               .input = input,
               .output = output,
               .count = state_->own_count(blocks),
               .type = type,
               .reduction = reduction,
               .vector_variant = true,
               .input_blocks = blocks});
}

Status Communicator::all_to_all_v(const void* input, const Blocks& input_blocks, void* output,
                                  const Blocks& output_blocks, DataType type) {
  return call({.collective = Collective::kAllToAll,
               .input = input,
               .output = output,
               .type = type,
               .vector_variant = true,
               .input_blocks = input_blocks,
               .output_blocks = output_blocks});
}

Status Communicator::gather_v(const void* input, std::size_t count, void* output,
                              const Blocks& blocks, DataType type, Rank root) {
  return call({.collective = Collective::kGather,
               .input = input,
               .output = output,
               .count = count,
               .type = type,
               .root = root,
               .vector_variant = true,
               .output_blocks = blocks});
}

Status Communicator::scatter_v(const void* input, const Blocks& blocks, void* output,
                               std::size_t count, DataType type, Rank root) {
  return call({.collective = Collective::kScatter,
               .input = input,
               .output = output,
               .count = count,
               .type = type,
               .root = root,
               .vector_variant = true,
               .input_blocks = blocks});
}

}  // namespace tutti
