#include "tutti/communicator.h"

#include <climits>
#include <cstddef>

#include <fmt/format.h>

#include "comm/state.h"
#include "kernels/host/reduce.h"
#include "transport/local/segments.h"

namespace tutti {

Communicator::Communicator(std::unique_ptr<State> state) : state_(std::move(state)) {}
Communicator::Communicator(Communicator&&) noexcept = default;

Communicator& Communicator::operator=(Communicator&& other) noexcept {
  std::swap(state_, other.state_);
  return *this;
}

Communicator::~Communicator() {
  // What was started is carried to its end; its deadline bounds this.
  if (state_ == nullptr) return;
  *state_->here = nullptr;
  CallQueue& queue = *state_->queue;
  Progress::instance().end(
      queue, {state_.release(), [](void* state) { delete static_cast<State*>(state); }});
}

Error Communicator::State::ended_by(std::string_view function,
                                    const std::exception& thrown) const noexcept {
  Error error = thrown_error(function, thrown);
  error.rank = error.peer = me;
  executor->abort(error);
  return error;
}

Rank Communicator::rank() const { return state_ != nullptr ? state_->me : Rank{}; }
int Communicator::rank_count() const { return state_ != nullptr ? state_->rank_count : 0; }

Status Communicator::usable(std::string_view function) const {
  if (state_ != nullptr) return ok();
  return walled(function, [&]() -> Status {
    return Error{
        Code::kInvalidArgument,
        fmt::format("{}: this communicator was moved from; call the one it became", function)};
  });
}

Status Communicator::State::check(const exec::Call& call) const {
  const auto bad = [&](const std::string& what) {
    return Error{Code::kInvalidArgument, fmt::format("{}: {}", to_string(call.collective), what),
                 me};
  };
  const std::size_t element = size_of(call.type);
  if (element == 0)
    return bad(fmt::format("there is no data type {}", static_cast<int>(call.type)));
  if (static_cast<std::uint8_t>(call.op) > static_cast<std::uint8_t>(ReduceOp::kXor)) {
    return bad(fmt::format("there is no operation {}", static_cast<int>(call.op)));
  }
  if (reduces(call.collective) && !is_supported(call.type, call.op)) {
    return bad(
        fmt::format("'{}' takes integers, not {}", to_string(call.op), to_string(call.type)));
  }
  if (call.root < 0 || call.root >= rank_count) {
    return bad(fmt::format("root {} is not one of the {} ranks", call.root, rank_count));
  }
  if (!call.wire.is_plain()) TUTTI_RETURN_IF_ERROR(check_wire(call));
  if (call.vector_variant) return ok();  // check_blocks has seen to the rest.
  // Divisions would take a tenth of a call of 8 bytes.
  constexpr std::size_t kFewElements = std::size_t{1} << 31;
  const auto most = [&] {
    return static_cast<std::size_t>(PTRDIFF_MAX) / element / static_cast<std::size_t>(rank_count);
  };
  if (call.count > kFewElements && call.count > most()) [[unlikely]] {
    return bad(fmt::format("{} elements of {} on {} ranks are more than memory can hold",
                           call.count, to_string(call.type), rank_count));
  }
  const bool no_input = call.input == nullptr && exec::has_input(call, me.value);
  const bool no_output = call.output == nullptr && exec::has_output(call, me.value);
  if (call.count != 0 && (no_input || no_output)) {
    return bad(fmt::format("the {} buffer is null, but the count is {}",
                           no_output ? "output" : "input", call.count));
  }
  return ok();
}

Status Communicator::State::check_wire(const exec::Call& call) const {
  const auto bad = [&](const std::string& what) {
    return Error{
        Code::kInvalidArgument,
        fmt::format("{}: the wire {} {}", to_string(call.collective), to_string(call.wire), what),
        me};
  };
  if (static_cast<int>(call.wire.format) >= kWireFormats ||
      call.wire.rounding > Rounding::kStochastic)
    return bad("does not exist");
  if (call.type != DataType::kFloat32)
    return bad(fmt::format("is for float32, not {}", to_string(call.type)));
  if (call.vector_variant) return bad("is for blocks of one size");
  return ok();
}

Status Communicator::State::run(const exec::Call& call) {
  const bool has_buffers = (call.input != nullptr && call.output != nullptr) || call.barrier;
  if (has_buffers && repeats(exec::pack(call), call.count, call.eager_use))
    return executor->run_again(call.input, call.output);
  return guarded(to_string(call.collective), [&] { return run_checked(call); });
}

Status Communicator::State::run_checked(const exec::Call& call) {
  TUTTI_RETURN_IF_ERROR(check(call));
  if (call.count == 0 && !call.barrier && !call.vector_variant)
    return executor->look_at_abort(call);
  if (in_group()) {
    TUTTI_TRY(auto work, start(call));
    return ok();
  }
  if (!is_free()) {
    TUTTI_RETURN_IF_ERROR(Progress::may_wait(to_string(call.collective)));
    TUTTI_TRY(auto work, Progress::instance().submit(*queue, call));
    return Work(std::move(work)).wait();
  }
  return executor->run(call);
}

Result<Work> Communicator::State::start(const exec::Call& call) {
  return guarded(to_string(call.collective), [&]() -> Result<Work> {
    if (auto checked = check(call); !checked) return std::move(checked.error());
    std::shared_ptr<Work::State> state;
    if (call.count == 0 && !call.barrier && !call.vector_variant) {
      state = std::make_shared<Work::State>();
      state->done = true;
      if (auto alive = executor->look_at_abort(call); !alive) state->error = alive.error();
    } else {
      TUTTI_TRY(state, Progress::instance().submit(*queue, call));
    }
    Work work(std::move(state));
    if (in_group()) add_to_group(work);
    return work;
  });
}

Status Communicator::call(Collective collective, const void* input, void* output, std::size_t count,
                          DataType type, const Reduction& reduction, Rank root) {
  if (state_ == nullptr) [[unlikely]]
    return usable(to_string(collective));
  return state_->run(collective, input, output, count, type, reduction, root.value);
}

Result<Work> Communicator::start(Collective collective, const void* input, void* output,
                                 std::size_t count, DataType type, const Reduction& reduction,
                                 Rank root) {
  TUTTI_RETURN_IF_ERROR(usable(to_string(collective)));
  return state_->start(
      state_->make_call(collective, input, output, count, type, reduction, root.value));
}

Status Communicator::barrier() {
  TUTTI_RETURN_IF_ERROR(usable("barrier"));
  exec::Call call =
      state_->make_call(Collective::kAllReduce, nullptr, nullptr, 0, DataType::kUint8, {}, 0);
  call.barrier = true;
  return state_->run(call);
}

Status Communicator::register_memory(void* data, std::size_t bytes, int fd, std::size_t offset) {
  return walled("register_memory", [&] { return segments::add(data, bytes, fd, offset); });
}

Status Communicator::deregister_memory(void* data) {
  return walled("deregister_memory", [&] { return segments::remove(data); });
}

void Communicator::abort(std::string_view reason) {
  if (state_ == nullptr) return;
  Error error{Code::kAborted, "out of memory", state_->me, Rank{}};
  (void)walled("abort", [&] {
    error.what = reason;
    return ok();
  });
  state_->recovery.aborts.fetch_add(1, std::memory_order_relaxed);
  state_->end_all(error);
}

namespace {

std::string describe_state(const Communicator::State& state) {
  const exec::HostExecutor& executor = *state.executor;
  const RegionConfig& config = executor.endpoint().region().config();
  const WaitPolicy& wait = executor.wait();
  std::string text = fmt::format("communicator of {} ranks, this is rank {}; made in {:.1f} ms\n",
                                 state.rank_count, state.me.value, state.created_ms);
  text += fmt::format(
      "transport: {}; slots of {} KiB, {} a channel, {} to all; {} lane{}; packets up to {} KiB\n",
      state.transport, config.slot_bytes / 1024, config.slot_count, config.multicast_slots,
      config.lanes, config.lanes == 1 ? "" : "s",
      executor.adapting().eager_limits.plain(Collective::kAllReduce) / 1024);
  text += fmt::format("shared memory: {:.2f} MiB for all ranks together\n",
                      static_cast<double>(executor.endpoint().shared_bytes()) / (1 << 20));
  text +=
      fmt::format("plain buffers of peers: {}\n", executor.endpoint().reads_peers()
                                                      ? "read from some size on, see tutti explain"
                                                      : "not read, all goes by slots");
  text += fmt::format("waiting: {} ranks on {} usable CPUs: {} spins, {} yields, then sleep ({})\n",
                      state.node_ranks, state.cpus, wait.spins, wait.yields,
                      executor.team().fence ? "posters fence" : "sleepers fence by membarrier");
  text +=
      fmt::format("contract: {}; instruction set: {}\n",
                  state.settings.contract == Contract::kDeterministic ? "deterministic" : "relaxed",
                  kernels::instruction_set());
  text += to_lines(executor.endpoint().nics());
  text += state.selector->describe();
  text += executor.adapting().describe();
  const std::string plans = planner::describe_plans();
  return text + (plans.empty() ? "plans: none prepared yet\n"
                               : "plans prepared in this process:\n" + plans);
}

}  // namespace

std::string Communicator::describe() const {
  std::string text;
  (void)walled("describe", [&]() -> Status {
    TUTTI_RETURN_IF_ERROR(usable("describe"));
    text = describe_state(*state_);
    return ok();
  });
  return text;
}

Result<void*> mem_alloc(std::size_t bytes) {
  return walled("mem_alloc", [&] { return segments::allocate(bytes); });
}
Status mem_free(void* data) {
  return walled("mem_free", [&] { return segments::free(data); });
}

}  // namespace tutti
