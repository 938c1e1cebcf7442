#include "comm/window_service.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "kernels/host/accumulate.h"
#include "tutti/window.h"

namespace tutti {
namespace {

using Kind = WindowRequest::Kind;

// Answers to one rank that are not sent yet. A rank asks again only once it has its answer, so that
// there is one, and perhaps one before it that has been sent and not been looked at since.
constexpr int kMostUnanswered = 16;

exec::Message message_of(bool sends, int peer, std::span<const std::byte> data) {
  exec::Message message;
  message.sends = sends;
  message.peer = peer;
  // The engine does not write to what it sends.
  message.data =
      const_cast<std::byte*>(data.data());  // NOLINT(cppcoreguidelines-pro-type-const-cast)
  message.count = data.size();
  return message;
}

std::span<const std::byte> bytes_of(const WindowRequest& request) {
  return std::as_bytes(std::span(&request, 1));
}

/// The messages of a request: its data go into it, or behind it.
std::vector<exec::Message> messages_of(int to, WindowRequest& request,
                                       std::span<const std::byte> data) {
  request.bytes = data.empty() ? request.bytes : data.size();
  const bool behind = request.has_data_behind();
  if (!behind && !data.empty()) std::memcpy(request.small.data(), data.data(), data.size());
  std::vector<exec::Message> messages{message_of(true, to, bytes_of(request))};
  if (behind) messages.push_back(message_of(true, to, data));
  return messages;
}

/// The error of a message, which the user did not send.
Error of_window(const Error& error) {
  Error copy = copy_of(error);
  if (!copy.what.starts_with("window: ")) copy.what = "window: " + copy.what;
  return copy;
}

}  // namespace

std::int64_t exchange(Kind kind, const Operands& operands, std::byte* number) {
  const std::atomic_ref place(*reinterpret_cast<std::int64_t*>(number));
  // acq_rel: what this rank has put before is there for ranks that find the new number, and it sees
  // what was put before the number that it finds. An exchange that fails sees that, too.
  if (kind == Kind::kFetchAdd) return place.fetch_add(operands.value, std::memory_order_acq_rel);
  std::int64_t found = operands.expected;
  place.compare_exchange_strong(found, operands.value, std::memory_order_acq_rel,
                                std::memory_order_acquire);
  return found;
}

WindowService::WindowService(Communicator::State& state, std::vector<bool> far, WindowMemory memory)
    : state_(state),
      far_(std::move(far)),
      far_count_(static_cast<int>(std::ranges::count(far_, true))),
      needed_(std::make_unique<std::atomic<bool>[]>(far_.size())),
      memory_(std::move(memory)),
      ends_(far_.size(), End::kNone),
      unanswered_(far_.size()) {
  // relaxed: nobody reads them before the first receive is submitted.
  for (std::size_t rank = 0; rank < far_.size(); ++rank)
    needed_[rank].store(static_cast<int>(rank) != state_.me.value, std::memory_order_relaxed);
}

Status WindowService::begin() {
  const Lock lock(mutex_);
  return listen(lock);
}

Status WindowService::start(std::vector<exec::Message> messages, std::shared_ptr<void> keeps,
                            Then then) {
  auto started = std::make_unique<StartedMessages>();
  started->messages = std::move(messages);
  // Before it is submitted: behind that, the work may be done, and would call this thread, which
  // has the mutex.
  started->work->callbacks.emplace_back([self = shared_from_this(), keeps = std::move(keeps),
                                         then = std::move(then)](const Status& outcome) {
    const Lock lock(self->mutex_);
    if (self->over_) return;
    try {
      if (!outcome)
        self->fail(lock, of_window(outcome.error()));
      else
        then(lock);
    } catch (const std::exception& thrown) {
      self->fail(lock, self->state_.ended_by("window", thrown));
    }
  });
  TUTTI_TRY([[maybe_unused]] const auto work,
            Progress::instance().submit(*state_.queue, std::move(started)));
  return ok();
}

Status WindowService::listen(const Lock&) {
  auto incoming = std::make_shared<Incoming>();
  exec::Message message = message_of(false, exec::Message::kAnyPeer, bytes_of(incoming->request));
  message.source = &incoming->from;
  message.needed = needed_.get();
  message.patient = true;
  return start({message}, incoming, [this, incoming](const Lock& lock) {
    Status served = serve(lock, incoming);
    if (served && count(End::kOver) == far_count_) {
      over_ = true;
      changed_.notify_all();
      return;
    }
    // Behind `serve`: what comes next from that rank may be the data of this request, whose receive
    // has to be there first.
    if (served) served = listen(lock);
    if (served) return;
    state_.executor->abort(served.error());
    fail(lock, std::move(served.error()));
  });
}

Error WindowService::refused(const Incoming& incoming, const std::string& what) const {
  return {
      Code::kMismatch,
      fmt::format("window: rank {} sent a request that can't be: {}", incoming.from.value, what),
      state_.me, incoming.from};
}

/// Carries out a request that has come, or starts to.
Status WindowService::serve(const Lock& lock, const std::shared_ptr<Incoming>& incoming) {
  const WindowRequest& request = incoming->request;
  const int from = incoming->from.value;
  const std::size_t all = memory_.data.size();
  if (!far_[static_cast<std::size_t>(from)]) return refused(*incoming, "from this host");
  const bool touches = request.kind == Kind::kPut || request.kind == Kind::kGet ||
                       request.kind == Kind::kAccumulate || request.exchanges();
  if (touches && (request.offset > all || request.bytes > all - request.offset))
    return refused(*incoming, fmt::format("{} bytes at {} of a window of {} bytes", request.bytes,
                                          request.offset, all));
  const auto part =
      touches ? memory_.data.subspan(request.offset, request.bytes) : std::span<std::byte>();
  switch (request.kind) {
    case Kind::kPut: return take_data(lock, incoming, part, [](const Lock&) {});
    case Kind::kGet: return answer(*incoming, part);
    case Kind::kFlush: return answer(*incoming, {});
    case Kind::kAccumulate: return accumulate(lock, incoming);
    case Kind::kFetchAdd:
    case Kind::kCompareSwap: return exchange_here(*incoming, part);
    case Kind::kData: return take_answer(lock, incoming);
    case Kind::kBye:
    case Kind::kOver: return take_end(*incoming);
    case Kind::kSignal:
      if (request.number >= Window::kSignals)
        return refused(*incoming, fmt::format("signal {}", request.number));
      memory_.signalled(from, request.number);
      return ok();
  }
  return refused(*incoming, fmt::format("kind {}", static_cast<std::uint32_t>(request.kind)));
}

/// A rank says so once, in this order, and the second after it has heard the first of all others.
Status WindowService::take_end(const Incoming& incoming) {
  End& end = ends_[static_cast<std::size_t>(incoming.from.value)];
  const bool over = incoming.request.kind == Kind::kOver;
  if (over ? end != End::kBye || !has_ended_ : end != End::kNone)
    return refused(incoming, "an end out of turn");
  end = over ? End::kOver : End::kBye;
  changed_.notify_all();
  return ok();
}

/// Puts a request's data to `to`, then calls `then`.
Status WindowService::take_data(const Lock& lock, const std::shared_ptr<Incoming>& incoming,
                                std::span<std::byte> to, Then then) {
  const WindowRequest& request = incoming->request;
  if (request.has_data_behind())
    return start({message_of(false, incoming->from.value, to)}, incoming, std::move(then));
  if (!to.empty()) std::memcpy(to.data(), request.small.data(), to.size());
  then(lock);
  return ok();
}

Status WindowService::accumulate(const Lock& lock, const std::shared_ptr<Incoming>& incoming) {
  const WindowRequest& request = incoming->request;
  const auto type = static_cast<DataType>(request.type);
  const auto op = static_cast<ReduceOp>(request.op);
  const std::size_t element = size_of(type);
  if (!kernels::may_accumulate(type, op) || request.offset % element != 0 ||
      request.bytes % element != 0)
    return refused(*incoming, "accumulate");
  // At most a window's size, and one at a time from each rank: the next message of that rank is
  // taken for its data. Not cleared, so it takes no memory before they come.
  auto staged = std::make_shared_for_overwrite<std::byte[]>(request.bytes);
  return take_data(lock, incoming, {staged.get(), request.bytes},
                   [this, incoming, staged, type, op](const Lock&) {
                     const WindowRequest& done = incoming->request;
                     kernels::accumulate(type, op, staged.get(), memory_.data.data() + done.offset,
                                         done.bytes / size_of(type));
                   });
}

Status WindowService::exchange_here(const Incoming& incoming, std::span<std::byte> number) {
  const WindowRequest& request = incoming.request;
  if (number.size() != sizeof(std::int64_t) || request.offset % sizeof(std::int64_t) != 0)
    return refused(incoming, "exchange");
  Operands operands;
  std::memcpy(&operands, request.small.data(), sizeof(operands));
  const std::int64_t before = exchange(request.kind, operands, number.data());
  return answer(incoming, std::as_bytes(std::span(&before, 1)));
}

Status WindowService::answer(const Incoming& incoming, std::span<const std::byte> data) {
  const int to = incoming.from.value;
  int& unanswered = unanswered_[static_cast<std::size_t>(to)];
  if (unanswered == kMostUnanswered)
    return refused(incoming, fmt::format("it takes none of {} answers", kMostUnanswered));
  ++unanswered;
  auto sent = std::make_shared<WindowRequest>(incoming.request);
  sent->kind = Kind::kData;
  sent->bytes = data.size();
  return start(messages_of(to, *sent, data), sent, [&unanswered](const Lock&) { --unanswered; });
}

Status WindowService::take_answer(const Lock& lock, const std::shared_ptr<Incoming>& incoming) {
  const WindowRequest& request = incoming->request;
  const auto found = questions_.find(request.ticket);
  // Not a second time: the rank that asked frees the memory for it once it has the first.
  if (found == questions_.end() || found->second->begun ||
      found->second->to != incoming->from.value || found->second->answer.size() != request.bytes)
    return refused(*incoming, "an answer that nobody waits for");
  Question* const question = found->second;
  question->begun = true;
  changed_.notify_all();
  return take_data(lock, incoming, question->answer, [this, question](const Lock&) {
    question->answered = true;
    changed_.notify_all();
  });
}

Status WindowService::send(int to, WindowRequest request, std::span<const std::byte> data) {
  if (const Error* const failed = error()) return copy_of(*failed);
  // Also without memory: the other ranks may wait for what this one did not send.
  Status sent = state_.guarded("window", [&]() -> Status {
    auto started = std::make_unique<StartedMessages>();
    started->messages = messages_of(to, request, data);
    TUTTI_TRY(auto work, Progress::instance().submit(*state_.queue, std::move(started)));
    return Work(std::move(work)).wait();
  });
  if (sent) return sent;
  state_.executor->abort(sent.error());  // Unless it is over by that.
  Lock lock(mutex_);
  fail(lock, of_window(sent.error()));
  return copy_of(error_ ? *error_ : sent.error());  // None: it was the last word of its end.
}

Status WindowService::ask(int to, WindowRequest request, std::span<std::byte> answer) {
  Question question{to, answer};
  Status asked = state_.guarded("window", [&]() -> Status {
    {
      const Lock lock(mutex_);
      request.ticket = next_ticket_++;
      questions_.emplace(request.ticket, &question);
    }
    TUTTI_RETURN_IF_ERROR(send(to, request, {}));
    return await(question);
  });
  forget(request.ticket);
  // The answer must not come to memory that the caller has freed by then.
  if (!asked) Progress::instance().drain(*state_.queue);
  return asked;
}

void WindowService::forget(std::uint64_t ticket) {
  const Lock lock(mutex_);
  questions_.erase(ticket);
}

/// Waits for an answer. One that has begun to come has the deadlines of messages.
Status WindowService::await(const Question& question) {
  Lock lock(mutex_);
  const auto done = [&] { return question.answered || over_; };
  const auto begun = [&] { return question.begun || done(); };
  if (changed_.wait_for(lock, state_.settings.timeout, begun)) {
    changed_.wait(lock, done);
    return question.answered ? ok() : Status(copy_of(*error_));
  }
  const Error late{Code::kTimeout,
                   fmt::format("window: rank {} has not answered within {} ms; TUTTI_TIMEOUT_MS "
                               "sets the limit",
                               question.to, state_.settings.timeout.count()),
                   state_.me, Rank{question.to}};
  state_.executor->abort(late);
  fail(lock, late);
  return late;
}

Status WindowService::tell_all(Kind kind) {
  for (std::size_t rank = 0; rank < far_.size(); ++rank) {
    if (far_[rank]) TUTTI_RETURN_IF_ERROR(send(static_cast<int>(rank), {.kind = kind}, {}));
  }
  return ok();
}

Status WindowService::end() {
  {
    const Lock lock(mutex_);
    has_ended_ = true;
  }
  TUTTI_RETURN_IF_ERROR(tell_all(Kind::kBye));
  const auto wait = [this](auto&& done) -> Status {
    Lock lock(mutex_);
    if (changed_.wait_for(lock, state_.settings.timeout, [&] { return over_ || done(); }))
      return error_ ? Status(copy_of(*error_)) : ok();
    return Error{
        Code::kTimeout,
        fmt::format("close: of {} ranks of other hosts, {} have closed their windows within "
                    "{} ms; TUTTI_TIMEOUT_MS sets the limit",
                    far_count_, closed(), state_.settings.timeout.count()),
        state_.me, Rank{}};
  };
  TUTTI_RETURN_IF_ERROR(wait([this] { return closed() == far_count_; }));
  // A rank that hears this knows that its own bye has come, so that it need not listen any more.
  TUTTI_RETURN_IF_ERROR(tell_all(Kind::kOver));
  return wait([] { return false; });
}

void WindowService::abandon(const Error& why) {
  Lock lock(mutex_);
  if (over_) return;
  state_.executor->abort(why);
  if (!Progress::may_wait("window")) return fail(lock, copy_of(why));
  changed_.wait(lock, [this] { return over_; });  // The receive that is always there fails soon.
}

/// The first error counts.
void WindowService::fail(const Lock&, Error error) {
  if (over_) return;
  over_ = true;
  error_ = std::move(error);
  has_failed_.store(true, std::memory_order_release);  // release: see `error`.
  changed_.notify_all();
  memory_.failed();
}

}  // namespace tutti
