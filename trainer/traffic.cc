#include "trainer/traffic.h"

#include <algorithm>

namespace tutti::trainer {
namespace {

double seconds(std::chrono::steady_clock::duration time) {
  return std::chrono::duration<double>(time).count();
}

}  // namespace

double Traffic::bytes_of(const Request& request, std::size_t ranks) {
  const auto n = static_cast<double>(ranks);
  const CollectiveTraits traits = traits_of(request.collective);
  double block = static_cast<double>(request.count * size_of(request.type));
  if (request.vector_variant) {
    const Blocks& blocks =
        request.input_blocks.counts.empty() ? request.output_blocks : request.input_blocks;
    block = 0;
    for (const std::size_t count : blocks.counts)
      block += static_cast<double>(count * size_of(request.type)) / n;
  }
  const double whole = traits.input_each || traits.output_each ? block * n : block;
  return (request.collective == Collective::kAllReduce ? 2 : 1) * (n - 1) / n * whole;
}

template <class Call>
Status Traffic::timed(std::string_view name, double bytes, Call call) {
  const auto span = spans_.begin("call", name);
  const auto began = Clock::now();
  Status status = call();
  if (!paused_) add(bytes, seconds(Clock::now() - began));
  return status;
}

Status Traffic::call(const Request& request) {
  return timed(to_string(request.collective), bytes_of(request, ranks()),
               [&] { return comm_.call(request); });
}

Status Traffic::all_reduce(void* data, std::size_t count, DataType type, ReduceOp op) {
  return call({.collective = Collective::kAllReduce,
               .input = data,
               .output = data,
               .count = count,
               .type = type,
               .reduction = op});
}

Status Traffic::send(const void* data, std::size_t count, std::size_t to) {
  return timed("send", static_cast<double>(count * sizeof(float)), [&] {
    return comm_.send(data, count, DataType::kFloat32, Rank{static_cast<int>(to)});
  });
}

Status Traffic::recv(void* data, std::size_t count, std::size_t from) {
  return timed("recv", 0, [&] {
    return comm_.recv(data, count, DataType::kFloat32, Rank{static_cast<int>(from)});
  });
}

Status Traffic::exchange(std::span<const Message> out, std::span<const Message> in) {
  double bytes = 0;
  for (const Message& message : out) bytes += static_cast<double>(message.count * sizeof(float));
  return timed("exchange", bytes, [&]() -> Status {
    Group group;
    Status first;
    const auto note = [&](const Result<Work>& work) {
      if (!work && first) first = Error(work.error());
    };
    for (const Message& message : in) {
      note(comm_.start_recv(message.data, message.count, DataType::kFloat32,
                            Rank{static_cast<int>(message.peer)}));
    }
    for (const Message& message : out) {
      note(comm_.start_send(message.data, message.count, DataType::kFloat32,
                            Rank{static_cast<int>(message.peer)}));
    }
    Status ended = group.end();
    return first ? std::move(ended) : std::move(first);
  });
}

Result<Pending> Traffic::start(const Request& request) {
  Pending pending;
  pending.collective_ = request.collective;
  pending.began_ = Clock::now();
  pending.ended_ = std::make_shared<std::atomic<Clock::rep>>(0);
  TUTTI_TRY(pending.work_, comm_.start(request));
  pending.work_.then([ended = pending.ended_](const Status&) {
    // relaxed: a figure for people; the work itself orders the data.
    ended->store(Clock::now().time_since_epoch().count(), std::memory_order_relaxed);
  });
  if (!paused_) bytes_ += bytes_of(request, ranks());
  return pending;
}

Status Traffic::wait(Pending& pending) {
  const auto span = spans_.begin("wait for", to_string(pending.collective_));
  const auto began = Clock::now();
  TUTTI_RETURN_IF_ERROR(pending.work_.wait());
  const auto now = Clock::now();
  const auto rep = pending.ended_->load(std::memory_order_relaxed);  // As above.
  const auto ended = rep == 0 ? now : Clock::time_point(Clock::duration(rep));
  // Calls follow each other; their spans are not counted twice.
  const auto from = std::max(pending.began_, busy_until_);
  if (!paused_) {
    busy_s_ += ended > from ? seconds(ended - from) : 0;
    exposed_s_ += seconds(now - began);
  }
  busy_until_ = std::max(busy_until_, ended);
  pending = {};
  return ok();
}

}  // namespace tutti::trainer
