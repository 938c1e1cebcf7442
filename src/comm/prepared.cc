// Calls that are prepared once and made often.
#include <array>
#include <string>

#include "comm/state.h"

namespace tutti {

struct Prepared::Parts {
  std::shared_ptr<Communicator::State*> communicator;
  exec::Call call;
  std::uint64_t word;                                // exec::pack of it.
  bool has_buffers;                                  // So `word` says all that may differ.
  std::array<std::vector<std::size_t>, 4> blocks{};  // The call's block lists point to them.
};

namespace {

/// Copies a list that a call points to.
void keep(const std::size_t*& list, std::size_t ranks, std::vector<std::size_t>& copy) {
  if (list == nullptr) return;
  copy.assign(list, list + ranks);
  list = copy.data();
}

Error refused(const char* what) { return {Code::kInvalidArgument, what}; }

}  // namespace

Prepared::Prepared(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}
Prepared::Prepared(Prepared&&) noexcept = default;
Prepared& Prepared::operator=(Prepared&&) noexcept = default;
Prepared::~Prepared() = default;

Result<Prepared> Communicator::prepare(const Request& request) {
  TUTTI_RETURN_IF_ERROR(usable("prepare"));
  return walled("prepare", [&]() -> Result<Prepared> {
    TUTTI_TRY(const exec::Call call, state_->make_checked_call(request));
    const bool has_buffers = call.input != nullptr && call.output != nullptr;
    auto parts = std::make_unique<Prepared::Parts>(
        Prepared::Parts{state_->here, call, exec::pack(call), has_buffers});
    const auto ranks = static_cast<std::size_t>(state_->rank_count);
    exec::Call& mine = parts->call;
    keep(mine.input_blocks.counts, ranks, parts->blocks[0]);
    keep(mine.input_blocks.offsets, ranks, parts->blocks[1]);
    keep(mine.output_blocks.counts, ranks, parts->blocks[2]);
    keep(mine.output_blocks.offsets, ranks, parts->blocks[3]);
    return Prepared(std::move(parts));
  });
}

Status Prepared::run() {
  if (parts_ == nullptr) [[unlikely]]
    return refused("run: this prepared call was moved from; run the one it became");
  Communicator::State* const state = *parts_->communicator;
  if (state == nullptr) [[unlikely]]
    return refused("run: the communicator of this prepared call has gone");
  if (parts_->has_buffers) [[likely]]
    return state->run(parts_->call, parts_->word);
  return state->run(parts_->call);
}

Result<Work> Prepared::start() {
  if (parts_ == nullptr)
    return refused("start: this prepared call was moved from; start the one it became");
  Communicator::State* const state = *parts_->communicator;
  if (state == nullptr) return refused("start: the communicator of this prepared call has gone");
  return state->start(parts_->call);
}

}  // namespace tutti
