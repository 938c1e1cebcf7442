// What a rank of another host asks of a window (comm/window_service.h), over a real connection:
// requests one after another, with their data behind them, and answers to what the window's own
// rank asks.
//
// The input: the size of what this rank asks first (one byte; 0: it asks nothing), then requests: a
// byte from which their data follow, and the 64 bytes of a WindowRequest. Checked against a model
// of the window: a request that can be is carried out, behind those before it, and answered; the
// first one that can't be ends the window, and changes no memory; an answer comes once.
#include <atomic>
#include <chrono>
#include <cstring>
#include <thread>

#include "comm/window_service.h"
#include "fuzz/frames.h"
#include "kernels/host/accumulate.h"
#include "tutti/window.h"

namespace {

using namespace tutti;
using fuzz::require;
using Kind = WindowRequest::Kind;
using Bytes = std::vector<std::byte>;

constexpr std::size_t kBytes = 40'000;  // More than a message has that is sent without asking.
constexpr std::uint64_t kLastTicket = 0x77;

Bytes data_of(std::uint8_t first, std::size_t bytes) {
  Bytes data(bytes);
  for (std::size_t i = 0; i < bytes; ++i) data[i] = static_cast<std::byte>((first + i * 7) & 0xff);
  return data;
}

/// A window's memory, and what it does.
struct Model {
  Bytes memory = Bytes(kBytes, std::byte{7});
  std::size_t asked = 0;     // The bytes that its rank waits for; 0: none.
  std::uint64_t ticket = 0;  // What its question has.
  Bytes got;                 // Its answer.
  bool bye = false;

  bool has_place(const WindowRequest& request) const {
    return request.offset <= kBytes && request.bytes <= kBytes - request.offset;
  }
  /// Carries out a request, whose data are these. What it is answered; null: it can't be.
  std::optional<Bytes> take(const WindowRequest& request, const Bytes& data) {
    const auto place = [&] { return memory.begin() + static_cast<std::ptrdiff_t>(request.offset); };
    const auto type = static_cast<DataType>(request.type);
    const auto op = static_cast<ReduceOp>(request.op);
    switch (request.kind) {
      case Kind::kPut:
        if (!has_place(request)) return std::nullopt;
        std::ranges::copy(data, place());
        return Bytes{};
      case Kind::kGet:
        if (!has_place(request)) return std::nullopt;
        return Bytes(place(), place() + static_cast<std::ptrdiff_t>(request.bytes));
      case Kind::kAccumulate:
        if (!has_place(request) || !kernels::may_accumulate(type, op) ||
            request.offset % size_of(type) != 0 || request.bytes % size_of(type) != 0)
          return std::nullopt;
        kernels::accumulate(type, op, data.data(), memory.data() + request.offset,
                            request.bytes / size_of(type));
        return Bytes{};
      case Kind::kFetchAdd:
      case Kind::kCompareSwap: return exchanged(request);
      case Kind::kSignal:
        return request.number < Window::kSignals ? std::optional(Bytes{}) : std::nullopt;
      case Kind::kFlush: return Bytes{};
      case Kind::kData:
        if (asked == 0 || !got.empty() || request.ticket != ticket || request.bytes != asked)
          return std::nullopt;
        got = data;
        return Bytes{};
      case Kind::kBye: return std::exchange(bye, true) ? std::nullopt : std::optional(Bytes{});
      case Kind::kOver: return std::nullopt;  // This rank has not ended.
    }
    return std::nullopt;
  }
  std::optional<Bytes> exchanged(const WindowRequest& request) {
    if (!has_place(request) || request.bytes != 8 || request.offset % 8 != 0) return std::nullopt;
    Bytes before(8);
    std::memcpy(before.data(), memory.data() + request.offset, 8);
    Operands operands;
    std::memcpy(&operands, request.small.data(), sizeof(operands));
    std::int64_t number = 0;
    std::memcpy(&number, before.data(), 8);
    // As unsigned numbers: a sum may go round.
    if (request.kind == Kind::kFetchAdd)
      number = static_cast<std::int64_t>(static_cast<std::uint64_t>(number) +
                                         static_cast<std::uint64_t>(operands.value));
    else if (number == operands.expected)
      number = operands.value;
    std::memcpy(memory.data() + request.offset, &number, 8);
    return before;
  }
};

bool is_answered(Kind kind) {
  return kind == Kind::kGet || kind == Kind::kFlush || kind == Kind::kFetchAdd ||
         kind == Kind::kCompareSwap;
}

/// Rank 1 of two, whose requests the window of rank 0 takes.
class Asker {
 public:
  explicit Asker(Communicator& comm) : comm_(comm) {}
  bool send(const void* data, std::size_t bytes) {
    return static_cast<bool>(comm_.send(data, bytes, DataType::kUint8, Rank{0}));
  }
  WindowRequest hear() {
    WindowRequest heard;
    recv(&heard, sizeof(heard));
    return heard;
  }
  void recv(void* data, std::size_t bytes) {
    const auto came = comm_.recv(data, bytes, DataType::kUint8, Rank{0});
    if (!came) std::fprintf(stderr, "%s\n", came.error().to_string().c_str());
    require(static_cast<bool>(came), "an answer does not come");
  }
  void expect(std::uint64_t ticket, const Bytes& answer) {
    const WindowRequest heard = hear();
    require(heard.kind == Kind::kData && heard.ticket == ticket && heard.bytes == answer.size(),
            "another answer");
    Bytes data(heard.small.begin(),
               heard.small.begin() + std::min(answer.size(), WindowRequest::kInline));
    if (heard.has_data_behind()) {
      data.resize(answer.size());
      recv(data.data(), data.size());
    }
    require(data == answer, "an answer with other bytes");
  }

 private:
  Communicator& comm_;
};

/// A window of two ranks on one machine, which takes them for ranks of two hosts.
struct Attack {
  explicit Attack(std::vector<Communicator>& comms)
      : service(std::make_shared<WindowService>(
            Insides::of(comms[0]), std::vector<bool>{false, true},
            WindowMemory{memory, nullptr, [](int, int) {}, [] {}})) {}

  /// The window's own rank asks.
  void ask() {
    asker = std::jthread([this] {
      const Status answered = service->ask(1, {.kind = Kind::kGet, .bytes = answer.size()}, answer);
      has_answer = static_cast<bool>(answered);
    });
  }
  bool ends() const {
    for (int looks = 0; looks < 10'000 && service->error() == nullptr; ++looks)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return service->error() != nullptr;
  }

  Bytes memory = Bytes(kBytes, std::byte{7});
  Bytes answer;
  bool has_answer = false;
  std::shared_ptr<WindowService> service;
  std::jthread asker;
};

/// Sends the requests of an input. False: one of them can't be.
bool send_all(Model& model, Asker& rank, std::span<const std::uint8_t> input) {
  for (; input.size() > sizeof(WindowRequest); input = input.subspan(1 + sizeof(WindowRequest))) {
    WindowRequest request;
    std::memcpy(&request, input.data() + 1, sizeof(request));
    // A test can't have what a rank may say of itself: data without an end.
    const bool behind = request.has_data_behind() && request.bytes <= kBytes;
    Bytes data;
    if (behind)
      data = data_of(input[0], request.bytes);
    else if (request.bytes <= WindowRequest::kInline)
      data.assign(request.small.begin(),
                  request.small.begin() + static_cast<std::ptrdiff_t>(request.bytes));
    const bool sent = rank.send(&request, sizeof(request));
    const auto answer = model.take(request, data);
    if (!answer) return false;
    require(sent, "a request can't be sent");
    if (behind) require(rank.send(data.data(), data.size()), "data can't be sent");
    if (is_answered(request.kind)) rank.expect(request.ticket, *answer);
  }
  return true;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  Settings settings;
  settings.transport = "tcp";
  settings.timeout = std::chrono::seconds(10);
  auto comms = Communicator::in_process(2, settings);
  require(static_cast<bool>(comms), "no ranks");
  Attack attack(*comms);
  Asker rank((*comms)[1]);
  Model model;
  require(static_cast<bool>(attack.service->begin()), "no window");
  model.asked = data[0];
  attack.answer.resize(model.asked);
  if (model.asked != 0) {
    attack.ask();
    model.ticket = rank.hear().ticket;
  }
  if (send_all(model, rank, std::span(data, size).subspan(1))) {
    const WindowRequest last{.kind = Kind::kFlush, .ticket = kLastTicket};
    require(rank.send(&last, sizeof(last)), "the last request can't be sent");
    rank.expect(kLastTicket, {});
    require(attack.service->error() == nullptr, "a window ends without a reason");
  } else {
    require(attack.ends(), "a request that can't be does not end the window");
  }
  attack.service->abandon({Code::kAborted, "the input is over"});
  if (attack.asker.joinable()) attack.asker.join();
  require(attack.memory == model.memory, "a window with other bytes");
  require(!attack.has_answer || attack.answer == model.got, "another answer than was sent");
  return 0;
}
