// File: simt/report.cc: planted mistakes, and what is said when a kernel can't go on.
#include <execinfo.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "base/hash.h"
#include "simt/block.h"

namespace tutti::simt {
namespace {

std::mutex live_mutex;
std::vector<Block*>& live_blocks() {
  static std::vector<Block*> list;
  return list;
}

std::vector<const std::string*>& live_waits() {
  static std::vector<const std::string*> list;
  return list;
}

/// "12 threads (0 ... 31) polling 0x7f... and others, at kernel+0x10".
void describe(const Block& block) {
  const Launch& launch = *block.launch;
  std::fprintf(stderr,
               "simt: kernel %s, device %d, block %u: %d of %zu threads have not returned\n",
               launch.kernel->name, launch.device, block.index, block.alive, block.fibers.size());
  std::map<std::pair<std::string, void*>, std::vector<const Fiber*>> alike;
  for (const Fiber& fiber : block.fibers) {
    if (fiber.state == Fiber::State::kDone) continue;
    alike[{fiber.doing != nullptr ? fiber.doing : "running", fiber.caller}].push_back(&fiber);
  }
  for (const auto& [where, fibers] : alike) {
    const Fiber *first = fibers.front(), *last = fibers.back();
    void* caller = where.second;
    char** symbol = caller != nullptr ? backtrace_symbols(&caller, 1) : nullptr;
    std::fprintf(stderr, "    %zu threads (%u ... %u) %s %p%s, at %s\n", fibers.size(),
                 first->context.flat, last->context.flat, where.first.c_str(),
                 const_cast<const void*>(first->what),
                 first->what != last->what ? " and others" : "",
                 symbol != nullptr ? symbol[0] : "its start");
    std::free(static_cast<void*>(symbol));
  }
}

struct Met {
  Mistake mistake;
  Place place;
};
// Written from fibers, so of fixed size: places beyond it are not listed.
std::array<Met, 256> met;
std::atomic<std::size_t> met_count{0};
std::mutex met_mutex;

const char* base_name(const char* file) {
  const char* slash = std::strrchr(file, '/');
  return slash != nullptr ? slash + 1 : file;
}

bool same(const Met& a, Mistake mistake, Place place) {
  return a.mistake == mistake && a.place.line == place.line &&
         std::strcmp(a.place.file, place.file) == 0;
}

void remember(Mistake mistake, Place place) {
  const std::lock_guard lock(met_mutex);
  const std::size_t n = met_count.load(std::memory_order_relaxed);
  for (std::size_t i = 0; i < n; ++i) {
    if (same(met[i], mistake, place)) return;
  }
  if (n == met.size()) return;
  met[n] = {mistake, place};
  met_count.store(n + 1, std::memory_order_relaxed);
}

/// The value of SIMT_MISTAKE.
struct Wanted {
  bool list = false, any = false;
  Mistake mistake = Mistake::kNoBarrier;
  std::string file;
  int line = 0;
};

Wanted wanted_mistake() {
  Wanted wanted;
  const char* variable = std::getenv("SIMT_MISTAKE");
  if (variable == nullptr || *variable == '\0') return wanted;
  const std::string text = variable;
  wanted.list = text == "list";
  if (wanted.list) return wanted;
  const auto at = text.find('@'), colon = text.rfind(':');
  for (std::size_t i = 0; i < std::size(kMistakeNames); ++i) {
    if (at == std::string::npos || colon == std::string::npos || colon < at) break;
    if (text.substr(0, at) != kMistakeNames[i]) continue;
    wanted.any = true;
    wanted.mistake = static_cast<Mistake>(i);
    wanted.file = text.substr(at + 1, colon - at - 1);
    wanted.line = std::atoi(text.c_str() + colon + 1);
    return wanted;
  }
  std::fprintf(stderr, "SIMT_MISTAKE=%s is none; 'list' lists those there are\n", variable);
  std::exit(2);
}

const Wanted wanted_here = wanted_mistake();
// relaxed: it says all there is to know.
std::atomic<bool> was_planted{false};

/// A mistake that nothing met proves nothing: lines move.
const struct SayIfUnmet {
  ~SayIfUnmet() {
    if (!wanted_here.any || was_planted.load(std::memory_order_relaxed)) return;
    std::fprintf(stderr, "simt: SIMT_MISTAKE=%s was not planted: no kernel came to that line\n",
                 std::getenv("SIMT_MISTAKE"));
  }
} say_if_unmet;

}  // namespace

void set_seed(std::uint64_t seed) {
  settings().seed = seed;
  settings().preempt_one_in = seed != 0 ? 8 : 0;
}

std::uint64_t mixed(std::uint64_t number) { return mix(number) | 1; }

double now_s() {
  const auto since = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double>(since).count();
}

void block_begins(Block* block) {
  const std::lock_guard lock(live_mutex);
  live_blocks().push_back(block);
}

void block_ends(Block* block) {
  const std::lock_guard lock(live_mutex);
  auto& list = live_blocks();
  list.erase(std::find(list.begin(), list.end(), block));
}

Waiting::Waiting(std::string what) : what_(std::move(what)) {
  const std::lock_guard lock(live_mutex);
  live_waits().push_back(&what_);
}

Waiting::~Waiting() {
  const std::lock_guard lock(live_mutex);
  std::erase(live_waits(), &what_);
}

void die(const char* format, ...) {
  std::va_list arguments;
  va_start(arguments, format);
  ::flockfile(stderr);  // A line of its own: other blocks may be dying too.
  std::fputs("simt: ", stderr);
  std::vfprintf(stderr, format, arguments);
  va_end(arguments);
  if (current != nullptr && current_block != nullptr) {
    std::fprintf(stderr, " [%s, device %d, block %u, thread %u]",
                 current_block->launch->kernel->name, current->device, current_block->index,
                 current->flat);
  }
  std::fputs("\n", stderr);
  ::funlockfile(stderr);
  {
    const std::lock_guard lock(live_mutex);
    for (const Block* block : live_blocks()) describe(*block);
    for (const std::string* what : live_waits()) std::fprintf(stderr, "simt: %s\n", what->c_str());
  }
  std::fflush(stderr);
  _exit(86);
}

bool planted(Mistake mistake, Place place) {
  if (wanted_here.list) remember(mistake, place);
  const bool here = wanted_here.any && wanted_here.mistake == mistake &&
                    wanted_here.line == place.line && wanted_here.file == base_name(place.file);
  if (here) was_planted.store(true, std::memory_order_relaxed);
  return here;
}

std::string mistakes_met() {
  const std::lock_guard lock(met_mutex);
  std::string text;
  for (std::size_t i = 0; i < met_count.load(std::memory_order_relaxed); ++i) {
    text += std::string(kMistakeNames[static_cast<std::size_t>(met[i].mistake)]) + "@" +
            base_name(met[i].place.file) + ":" + std::to_string(met[i].place.line) + "\n";
  }
  return text;
}

}  // namespace tutti::simt
