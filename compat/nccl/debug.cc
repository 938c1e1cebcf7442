#include "debug.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdio>
#include <mutex>
#include <set>
#include <string_view>
#include <utility>

#include "base/hash.h"
#include "base/log.h"
#include "tutti/tutti.h"

namespace tutti::nccl {
namespace {

/// Without the domain, as NCCL writes it.
std::string host_name() {
  char name[256] = {};
  static_cast<void>(gethostname(name, sizeof name - 1));
  const std::string text(name);
  return text.substr(0, text.find('.'));
}

/// The device of the communicator of which the thread writes; -1: the thread's own.
thread_local int shown_device = -1;
struct ShownDevice {
  explicit ShownDevice(int device) { shown_device = device; }
  ~ShownDevice() { shown_device = -1; }
  ShownDevice(const ShownDevice&) = delete;
  ShownDevice& operator=(const ShownDevice&) = delete;
};

const char* word_of(log::Level level) {
  switch (level) {
    case log::Level::kTrace:
    case log::Level::kDebug: return "TRACE";
    case log::Level::kInfo: return "INFO";
    default: return "WARN";
  }
}

/// What stands before a line of that level; the version's has none.
std::string head_of(log::Level level) {
  if (level == log::Level::kOff) return "";
  int device = shown_device;
  if (device < 0 && cudaGetDevice(&device) != cudaSuccess) device = -1;
  return fmt::format("{}:{}:{} [{}] NCCL {} ", host_name(), getpid(), syscall(SYS_gettid), device,
                     word_of(level));
}

/// Where this library was loaded from: shows whether it or NVIDIA's runs.
std::string own_path() {
  Dl_info found{};
  return dladdr(reinterpret_cast<void*>(&ncclGetVersion), &found) != 0 && found.dli_fname != nullptr
             ? found.dli_fname
             : "libnccl.so.2";
}

std::string version_line() {
  int version = 0;
  static_cast<void>(ncclGetVersion(&version));
  return fmt::format("NCCL version {}.{}.{}+tutti{}.{}.{}, {}", version / 10000,
                     version / 100 % 100, version % 100, TUTTI_VERSION_MAJOR, TUTTI_VERSION_MINOR,
                     TUTTI_VERSION_PATCH, own_path());
}

/// NCCL_DEBUG_FILE, or stdout. The file stays open.
std::FILE* open_file(const Environment& environment, std::string& trouble) {
  const auto named = environment.own.find("NCCL_DEBUG_FILE");
  if (named == environment.own.end() || named->second == "stdout") return stdout;
  if (named->second == "stderr") return stderr;
  const std::string path = expand_file_name(named->second, host_name(), getpid());
  std::FILE* const file = std::fopen(path.c_str(), "we");
  if (file != nullptr) return file;
  trouble = fmt::format("NCCL_DEBUG_FILE: {:.128} can't be written; lines go to stdout", path);
  return stdout;
}

/// Whether somebody asked for warnings: the log's own level is not enough, as it has them always.
bool& warnings_wanted() {
  static bool wanted = false;  // Written by start_debug alone, before anyone reads it.
  return wanted;
}

/// The same as NCCL writes it: 0000:1b:00.0 is 1b000.
std::string bus_of(int device) {
  char text[32] = {};
  if (cudaDeviceGetPCIBusId(text, sizeof text - 1, device) != cudaSuccess) return "unknown";
  std::string digits;
  for (const char* c = text; *c != '\0'; ++c) {
    if (*c == ':' || *c == '.' || (*c == '0' && digits.empty())) continue;
    digits += *c >= 'A' && *c <= 'F' ? static_cast<char>(*c - 'A' + 'a') : *c;
  }
  return digits.empty() ? "0" : digits;
}

/// Alike on all ranks of a communicator, and of no use to others: most of an id is a secret.
std::uint64_t id_of(const ncclComm& comm) {
  return Hash().add_all(comm.id.bytes).add(hash_text(comm.name)).value();
}

}  // namespace

void start_debug(const Environment& environment) {
  const DebugLevel level = debug_level(environment);
  std::string trouble;
  const std::string own = value_of("TUTTI_LOG");
  if (level != DebugLevel::kNone) {
    log::write_as(open_file(environment, trouble), head_of);
    const auto name = environment.settings.find("TUTTI_LOG");
    if (own.empty() && name != environment.settings.end())
      log::set_levels(log::parse_levels(name->second).value_or(log::all_at(log::Level::kWarn)));
    // Whatever NCCL_DEBUG_SUBSYS says.
    if (level >= DebugLevel::kInfo && own.empty())
      log::write(log::Part::kNccl, log::Level::kInfo, version_line());
    else if (level >= DebugLevel::kInfo)
      log::info(log::Part::kNccl, "{}", version_line());
    else
      log::write(log::Part::kNccl, log::Level::kOff, version_line());
  }
  if (!trouble.empty()) log::warn(log::Part::kNccl, "{}", trouble);
  for (const std::string& line : environment.complaints) log::warn(log::Part::kNccl, "{}", line);
  warnings_wanted() = level >= DebugLevel::kWarn || !own.empty();
  if (warnings_wanted() && !environment.ignored.empty())
    log::warn(log::Part::kNccl, "{}", environment.ignored);
  for (const std::string& line : environment.notes) log::info(log::Part::kSettings, "{}", line);
}

void warn_of(const std::string& line) {
  static_cast<void>(environment());
  if (!warnings_wanted() || !log::enabled(log::Part::kNccl, log::Level::kWarn)) return;
  // Programs ask for the same asynchronous error again and again.
  constexpr std::size_t kMostTold = 256;
  static auto& mutex = *new std::mutex;
  static auto& told = *new std::set<std::uint64_t>;  // Threads may fail when the process ends.
  {
    const std::lock_guard lock(mutex);
    if (told.size() == kMostTold) told.clear();
    if (!told.insert(hash_text(line)).second) return;
  }
  log::warn(log::Part::kNccl, "{}", line);
}

void tell(const ncclComm& comm, const char* function, const char* what) {
  if (!log::enabled(log::Part::kNccl, log::Level::kInfo)) return;
  const ShownDevice shown(comm.device);
  const std::string& name = comm.config.comm_name;
  log::info(log::Part::kNccl,
            "{} comm {} rank {} nranks {} cudaDev {} busId {} commId {:#x}{}{} - {}", function,
            static_cast<const void*>(&comm), comm.rank, comm.size, comm.device, bus_of(comm.device),
            id_of(comm), name.empty() ? "" : " commName ", name, what);
}

std::vector<std::string> fold_description(const std::string& description, bool plans) {
  constexpr std::string_view kTo = "to rank ", kPlans = "plans chosen:", kNone = "plans: ";
  std::vector<std::string> lines;
  std::string first, last, how;  // Ranks in a row that are reached alike.
  const auto flush = [&] {
    if (first.empty()) return;
    lines.push_back(first == last ? "to rank " + first + how
                                  : "to ranks " + first + "-" + last + how);
    first.clear();
  };
  bool in_plans = false;
  for (std::string_view rest = description; !rest.empty();) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(rest.size(), line.size() + 1));
    in_plans = in_plans || line == kPlans || line.starts_with(kNone);
    const auto colon = line.find(':');
    const bool is_link = line.starts_with(kTo) && colon != std::string_view::npos;
    if (is_link && !first.empty() && how == line.substr(colon)) {
      if (!plans) last = line.substr(kTo.size(), colon - kTo.size());
      continue;
    }
    flush();
    if (in_plans != plans || line.empty()) continue;
    if (is_link) {
      first = last = line.substr(kTo.size(), colon - kTo.size());
      how = line.substr(colon);
    } else {
      lines.emplace_back(line);
    }
  }
  flush();
  return lines;
}

namespace {

void tell_lines(const ncclComm& comm, log::Part part, bool plans) {
  if (!log::enabled(part, log::Level::kInfo)) return;
  const ShownDevice shown(comm.device);
  for (const std::string& line : fold_description(comm.device_communicator->describe(), plans))
    log::info(part, "comm {} rank {}: {}", static_cast<const void*>(&comm), comm.rank, line);
}

}  // namespace

void tell_links(const ncclComm& comm) {
  // NCCL writes them for INIT as well as for P2P.
  const bool joined = log::enabled(log::Part::kNccl, log::Level::kInfo);
  tell_lines(comm, joined ? log::Part::kNccl : log::Part::kDevices, false);
}
void tell_plans(const ncclComm& comm) { tell_lines(comm, log::Part::kPlans, true); }

}  // namespace tutti::nccl
