// Messages and groups, as their users see them.
#include <algorithm>
#include <climits>
#include <cstring>

#include <fmt/format.h>

#include "comm/state.h"

namespace tutti {
namespace {

/// The messages of a group on one communicator.
struct GroupMessages {
  Communicator::State* state;
  std::unique_ptr<StartedMessages> started;
};

struct OpenGroup {
  std::vector<Work> works;
  std::vector<GroupMessages> messages;
  std::unique_ptr<GroupPart> part;
};
thread_local OpenGroup current_group;
// Whether it is open. Every call asks, so nothing is looked up: neither whether the group was made,
// nor where this thread's is (a byte is to be had also for a library that is loaded late).
#if !defined(TUTTI_STATIC_CUDART)  // Its 8 KiB would be static too, and the library could not be
                                   // loaded late.
[[gnu::tls_model("initial-exec")]]
#endif
thread_local constinit bool group_open = false;

exec::Message message_of(bool sends, const void* data, std::size_t count, DataType type, Rank peer,
                         Tag tag) {
  exec::Message message;
  message.sends = sends;
  message.peer = peer.value;
  message.type = type;
  // The engine does not write to what it sends.
  message.data = const_cast<std::byte*>(static_cast<const std::byte*>(data));
  message.count = count;
  message.tag = tag.value;
  return message;
}

/// Copies what a rank sends itself, each message to the first receive with its tag, and takes these
/// messages out. An error if one has no other half.
Status match_own(std::vector<exec::Message>& messages, Rank me) {
  std::vector<exec::Message> sends, receives;
  for (const exec::Message& message : messages) {
    if (message.peer == me.value) (message.sends ? sends : receives).push_back(message);
  }
  const auto lone = [me](const exec::Message& message) {
    return Error{
        Code::kInvalidArgument,
        exec::describe(message) + ": a message to oneself needs its other half in the same group",
        me};
  };
  for (const exec::Message& send : sends) {
    const auto to = std::ranges::find(receives, send.tag, &exec::Message::tag);
    if (to == receives.end()) return lone(send);
    if (send.count != to->count || send.type != to->type) {
      return Error{Code::kMismatch,
                   exec::describe(*to) + ": what comes is the " + exec::describe(send), me};
    }
    const std::size_t bytes = send.count * size_of(send.type);
    if (bytes != 0) std::memmove(to->data, send.data, bytes);
    receives.erase(to);
  }
  if (!receives.empty()) return lone(receives.front());
  std::erase_if(messages, [me](const exec::Message& message) { return message.peer == me.value; });
  return ok();
}

/// Starts what a group has gathered on one communicator. If that is `all` of it, it is carried out
/// here: to the progress thread and back takes longer than a small message. True: it is over.
Result<bool> start_all(GroupMessages& of_group, bool all) {
  StartedMessages& started = *of_group.started;
  // relaxed: this thread asks; for other threads the group's end is as good a moment as any.
  started.work->begun.store(true, std::memory_order_relaxed);
  TUTTI_RETURN_IF_ERROR(match_own(started.messages, of_group.state->me));
  if (started.messages.empty()) return true;
  // acquire: as in State::run.
  if (all && of_group.state->queue->pending.load(std::memory_order_acquire) == 0) {
    started.batch.messages = started.messages;
    TUTTI_RETURN_IF_ERROR(of_group.state->executor->run(started.batch));
    return true;
  }
  TUTTI_RETURN_IF_ERROR(Progress::may_wait("group"));
  TUTTI_TRY([[maybe_unused]] const auto work,
            Progress::instance().submit(*of_group.state->queue, std::move(of_group.started)));
  return false;
}

/// The same; also reports a message that fails or ends at once.
void submit(GroupMessages& of_group, bool all) {
  const std::shared_ptr<Work::State> work = of_group.started->work;
  auto over = of_group.state->guarded("group", [&] { return start_all(of_group, all); });
  if (!over)
    work->complete(std::move(over.error()));
  else if (*over)
    work->complete(ok());
}

/// Ends the calling thread's group. Waits for all that is in it; the first error of any.
Status end_group() {
  OpenGroup group = std::move(current_group);
  current_group = {};
  group_open = false;
  const bool one = group.works.size() == 1 && group.part == nullptr;
  for (GroupMessages& messages : group.messages) submit(messages, one);
  Status first = group.part != nullptr ? group.part->end() : ok();
  for (Work& work : group.works) {
    Status status = work.wait();
    if (!status && first) first = std::move(status);
  }
  return first;
}

}  // namespace

Status Communicator::State::check(const exec::Message& message) const {
  const auto bad = [&](const std::string& what) {
    return Error{Code::kInvalidArgument,
                 fmt::format("{}: {}", message.sends ? "send" : "recv", what), me};
  };
  const std::size_t element = size_of(message.type);
  if (element == 0)
    return bad(fmt::format("there is no data type {}", static_cast<int>(message.type)));
  const bool any = !message.sends && message.peer == exec::Message::kAnyPeer;
  if (any && rank_count == 1) return bad("there is no other rank that could send");
  if (!any && (message.peer < 0 || message.peer >= rank_count))
    return bad(fmt::format("rank {} is not one of the {} ranks", message.peer, rank_count));
  if (message.tag < 0)
    return bad(fmt::format("the tag {} is negative; tags are 0 to {}", message.tag, INT32_MAX));
  if (message.count > static_cast<std::size_t>(PTRDIFF_MAX) / element)
    return bad(fmt::format("{} elements are more than memory can hold", message.count));
  if (message.count != 0 && message.data == nullptr)
    return bad(fmt::format("the buffer is null, but the count is {}", message.count));
  if (message.peer == me.value && !in_group())
    return bad("a message to oneself needs its other half in the same group");
  return ok();
}

Status Communicator::State::run(exec::Message message) {
  return guarded(message.sends ? "send" : "recv", [&]() -> Status {
    TUTTI_RETURN_IF_ERROR(check(message));
    if (in_group()) {
      (void)add_to_group(*this, message);
      return ok();
    }
    // acquire: pairs with the progress thread's release when it left the executor.
    if (queue->pending.load(std::memory_order_acquire) != 0) {
      TUTTI_RETURN_IF_ERROR(Progress::may_wait(message.sends ? "send" : "recv"));
      TUTTI_TRY(Work work, start(message));
      return work.wait();
    }
    exec::MessageBatch batch{.messages = std::span(&message, 1), .open = 0, .start = {}};
    return executor->run(batch);
  });
}

Result<Work> Communicator::State::start(const exec::Message& message) {
  return guarded(message.sends ? "send" : "recv", [&]() -> Result<Work> {
    TUTTI_RETURN_IF_ERROR(check(message));
    if (in_group()) return add_to_group(*this, message);
    auto started = std::make_unique<StartedMessages>();
    started->messages.push_back(message);
    TUTTI_TRY(auto work, Progress::instance().submit(*queue, std::move(started)));
    return Work(std::move(work));
  });
}

Status Communicator::send(const void* data, std::size_t count, DataType type, Rank to, Tag tag) {
  TUTTI_RETURN_IF_ERROR(usable("send"));
  return state_->run(message_of(true, data, count, type, to, tag));
}

Status Communicator::recv(void* data, std::size_t count, DataType type, Rank from, Tag tag) {
  TUTTI_RETURN_IF_ERROR(usable("recv"));
  return state_->run(message_of(false, data, count, type, from, tag));
}

Result<Work> Communicator::start_send(const void* data, std::size_t count, DataType type, Rank to,
                                      Tag tag) {
  TUTTI_RETURN_IF_ERROR(usable("send"));
  return state_->start(message_of(true, data, count, type, to, tag));
}

Result<Work> Communicator::start_recv(void* data, std::size_t count, DataType type, Rank from,
                                      Tag tag) {
  TUTTI_RETURN_IF_ERROR(usable("recv"));
  return state_->start(message_of(false, data, count, type, from, tag));
}

Result<Work> Communicator::start_recv_any(void* data, std::size_t count, DataType type, Rank& from,
                                          Tag tag, const std::atomic<bool>* needed) {
  TUTTI_RETURN_IF_ERROR(usable("recv"));
  exec::Message message = message_of(false, data, count, type, Rank{exec::Message::kAnyPeer}, tag);
  message.source = &from;
  message.needed = needed;
  return state_->start(message);
}

bool in_group() { return group_open; }
void add_to_group(Work work) { current_group.works.push_back(std::move(work)); }
std::unique_ptr<GroupPart>& group_part() { return current_group.part; }

Work add_to_group(Communicator::State& state, const exec::Message& message) {
  auto& all = current_group.messages;
  auto found = std::find_if(all.begin(), all.end(),
                            [&](const GroupMessages& one) { return one.state == &state; });
  if (found == all.end()) {
    all.push_back({&state, std::make_unique<StartedMessages>()});
    found = all.end() - 1;
    found->started->work->begun.store(false, std::memory_order_relaxed);  // relaxed: see submit.
    current_group.works.emplace_back(found->started->work);
  }
  found->started->messages.push_back(message);
  return Work(found->started->work);
}

Group::Group() {
  open_ = !group_open;  // Nested: the outer one keeps the calls, this one is empty.
  group_open = true;
}

Group::~Group() {
  if (open_) (void)end();
}

Status Group::end() {
  if (!open_)
    return Error{Code::kInvalidArgument, "group: already ended, or opened within another"};
  open_ = false;
  return walled("group", end_group);
}

}  // namespace tutti
