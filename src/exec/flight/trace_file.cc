#include "exec/flight/trace_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <thread>

#include <fmt/format.h>

#include "base/fd.h"
#include "base/json.h"
#include "base/log.h"
#include "base/wall.h"
#include "exec/flight/trace.h"

namespace tutti::exec::flight {
namespace {

constexpr std::string_view kBegin = "[\n", kBetween = ",\n", kEnd = "\n]\n";
constexpr std::size_t kMostHeadBytes = 512;
constexpr std::uint64_t kMostFileBytes = std::uint64_t{1} << 30;
constexpr std::chrono::seconds kLongestLock{10};
// Times in the file are positive, also of processes that began so long before the first writer.
constexpr std::int64_t kLeadNs = 3'600'000'000'000;

/// By the clock that files have their times from.
std::int64_t file_clock_ns() {
  timespec now{};
  clock_gettime(CLOCK_REALTIME_COARSE, &now);
  return std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

/// When the library was loaded, which is before any rank of its process has joined.
std::int64_t began_ns = file_clock_ns();

class TraceFile {
 public:
  static Result<TraceFile> open(const std::string& path);
  /// Adds a line, and events that belong to it.
  Status add(Json head, const Events& events);
  /// The events of all ranks of a communicator; empty if any is missing.
  Result<Events> events_if_all(const std::string& communicator, int ranks);
  /// The moment from which its events count, of the clock on which hosts agree.
  std::int64_t base_ns() const { return base_ns_; }

 private:
  TraceFile(std::string path, Fd fd) : path_(std::move(path)), fd_(std::move(fd)) {}
  Status begin();
  Status lock();
  Error error(std::string_view what) const {
    return {Code::kSystem, fmt::format("TUTTI_TRACE={}: {}", path_, what)};
  }
  Error system_error() const { return error(std::strerror(errno)); }
  Status write(std::uint64_t at, std::string_view text);
  Result<std::string> read(std::uint64_t at, std::size_t most) const;
  Result<Json> head_at(std::uint64_t at, std::size_t& bytes) const;

  std::string path_;
  Fd fd_;
  std::uint64_t size_ = 0, first_ = 0;  // Bytes of the file, and where its first rank stands.
  std::int64_t base_ns_ = 0;
};

Result<TraceFile> TraceFile::open(const std::string& path) {
  Fd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0644));
  TraceFile file(path, std::move(fd));
  if (!file.fd_) return file.system_error();
  TUTTI_RETURN_IF_ERROR(file.lock());
  TUTTI_RETURN_IF_ERROR(file.begin());
  return file;
}

Status TraceFile::lock() {
  const auto last = std::chrono::steady_clock::now() + kLongestLock;
  while (flock(fd_.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK && errno != EINTR) return system_error();
    if (std::chrono::steady_clock::now() > last) return error("another process keeps it locked");
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return ok();
}

Status TraceFile::begin() {
  struct stat facts {};
  if (fstat(fd_.get(), &facts) != 0) return system_error();
  if (!S_ISREG(facts.st_mode)) return error("it is no regular file");
  const std::int64_t written_ns =
      std::int64_t{facts.st_mtim.tv_sec} * 1'000'000'000 + facts.st_mtim.tv_nsec;
  const bool earlier = written_ns < began_ns;
  if (earlier && ftruncate(fd_.get(), 0) != 0) return system_error();
  size_ = earlier ? 0 : static_cast<std::uint64_t>(facts.st_size);
  if (size_ == 0) {
    base_ns_ = began_ns - kLeadNs;
    const Json head{
        {"ph", "M"}, {"name", "tutti_trace"}, {"pid", 0}, {"args", {{"base_ns", base_ns_}}}};
    const std::string line = head.text();
    TUTTI_RETURN_IF_ERROR(write(0, std::string(kBegin) + line + std::string(kEnd)));
    first_ = kBegin.size() + line.size() + kBetween.size();
    return ok();
  }
  std::size_t bytes = 0;
  TUTTI_TRY(const auto end, read(size_ - std::min<std::uint64_t>(size_, kEnd.size()), kEnd.size()));
  auto head = head_at(kBegin.size(), bytes);
  if (!head || end != kEnd || head->value("name", "") != "tutti_trace")
    return error("it is newer than this process, and no trace");
  base_ns_ = (*head)["args"].value("base_ns", std::int64_t{0});
  first_ = kBegin.size() + bytes + kBetween.size();
  return ok();
}

Status TraceFile::write(std::uint64_t at, std::string_view text) {
  if (at + text.size() > kMostFileBytes) return error("it is full: a trace has at most 1 GiB");
  size_ = at + text.size();
  while (!text.empty()) {
    const ssize_t put = pwrite(fd_.get(), text.data(), text.size(), static_cast<off_t>(at));
    if (put <= 0) return system_error();
    at += static_cast<std::uint64_t>(put);
    text.remove_prefix(static_cast<std::size_t>(put));
  }
  return ok();
}

Result<std::string> TraceFile::read(std::uint64_t at, std::size_t most) const {
  std::string text(most, '\0');
  std::size_t has = 0;
  while (has < most) {
    const ssize_t got =
        pread(fd_.get(), text.data() + has, most - has, static_cast<off_t>(at + has));
    if (got < 0) return system_error();
    if (got == 0) break;
    has += static_cast<std::size_t>(got);
  }
  text.resize(has);
  return text;
}

/// A line that says what follows; `bytes`: its own, without what separates it from the next.
Result<Json> TraceFile::head_at(std::uint64_t at, std::size_t& bytes) const {
  TUTTI_TRY(std::string text, read(at, kMostHeadBytes));
  bytes = text.find('\n');
  if (bytes == std::string::npos) return error("a line is missing");
  if (bytes > 0 && text[bytes - 1] == ',') --bytes;
  auto head = Json::parse(std::string_view(text).substr(0, bytes));
  if (!head || !head->contains("args")) return error("a line is not as it was written");
  return *std::move(head);
}

Status TraceFile::add(Json head, const Events& events) {
  std::string text;
  for (const Json& event : events) text.append(kBetween).append(event.text());
  head["args"]["bytes"] = text.size();
  return write(size_ - kEnd.size(), std::string(kBetween) + head.text() + text + std::string(kEnd));
}

Result<Events> TraceFile::events_if_all(const std::string& communicator, int ranks) {
  struct Part {
    std::uint64_t at = 0, bytes = 0;
  };
  std::vector<Part> parts;
  std::size_t head_bytes = 0;
  for (std::uint64_t at = first_; at + kEnd.size() < size_;) {
    TUTTI_TRY(const Json head, head_at(at, head_bytes));
    const Json& args = head["args"];
    const Part part{at + head_bytes + kBetween.size(), args.value("bytes", std::uint64_t{0})};
    if (part.bytes > size_) return error("a line is not as it was written");
    if (args.value("communicator", "") == communicator) parts.push_back(part);
    at += head_bytes + part.bytes + kBetween.size();
  }
  Events events;
  if (parts.size() != static_cast<std::size_t>(ranks)) return events;
  for (const Part& part : parts) {
    TUTTI_TRY(const std::string text, read(part.at, static_cast<std::size_t>(part.bytes)));
    auto lines = Json::parse("[" + text.substr(0, text.rfind('}') + 1) + "]");
    if (!lines) return error("a line is not as it was written");
    for (Json& line : *lines) events.push_back(std::move(line));
  }
  return events;
}

using Rows = std::span<const std::shared_ptr<Spans::Buffer>>;

Status add(const SeenTrack& track, Rows rows, const std::string& path) {
  TUTTI_TRY(TraceFile file, TraceFile::open(path));
  const std::string communicator =
      fmt::format("{:016x}{:016x}", track.communicator[0], track.communicator[1]);
  const std::int64_t shift_ns = track.ahead_ns - file.base_ns();
  Events events = events_of(track, track.seen_ns, shift_ns);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    for (auto& event : events_of(track, i, rows[i]->read(), shift_ns))
      events.push_back(std::move(event));
  }
  Json head{{"ph", "M"}, {"name", "tutti_rank"}, {"pid", 0}, {"tid", 0}};
  head["args"] = {{"communicator", communicator}, {"rank", track.rank}};
  TUTTI_RETURN_IF_ERROR(file.add(head, events));
  TUTTI_TRY(const Events all, file.events_if_all(communicator, track.ranks));
  if (all.empty()) return ok();
  head["name"] = "tutti_arrows";
  head["args"] = Json::object();
  return file.add(head, arrows_between(all));
}

}  // namespace

void add_to_trace(const SeenTrack& track, Rows rows, const std::string& path) noexcept {
  const Status status = walled("trace", [&] { return add(track, rows, path); });
  if (status) return;
  (void)walled("trace", [&] {
    log::warn(log::Part::kCalls, "{}; the calls of rank {} are not in it", status.error().what,
              track.rank);
    return ok();
  });
}

void begin_traces_anew() { began_ns = file_clock_ns(); }

}  // namespace tutti::exec::flight
