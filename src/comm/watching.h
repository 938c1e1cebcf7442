// File: comm/watching.h: while a rank joins, it and the others hear of each other's end.
#pragma once
#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/wall.h"
#include "comm/state.h"
#include "tutti/rendezvous.h"

namespace tutti {

/// A copy of the configuration with the rendezvous and with a `look` that returns why the job has
/// failed, once the rendezvous knows, from then on always. A rank that connects waits for all
/// others, and one of them may have ended. `rendezvous` has to outlive the copy. One thread.
inline CommunicatorConfig watching(CommunicatorConfig comm_config, Rendezvous& rendezvous,
                                   std::string_view name) {
  using std::chrono::steady_clock;
  static constexpr std::chrono::milliseconds kPause{100};  // A look may be a request over TCP.
  comm_config.rendezvous = &rendezvous;
  comm_config.look = [&rendezvous, key = std::string(name) + "/look",
                      next = steady_clock::now() + kPause,
                      why = std::optional<Error>()]() mutable -> Status {
    if (why) return *why;
    if (steady_clock::now() < next) return ok();
    // No rank puts that key. If the deadline has not passed, every rendezvous looks for deaths.
    auto told = rendezvous.get(key, Deadline::after(std::chrono::milliseconds(1)));
    next = steady_clock::now() + kPause;
    if (!told && told.error().code != Code::kTimeout) why = std::move(told.error());
    return why ? Status(*why) : ok();
  };
  return comm_config;
}

/// While it lives, ranks that wait at the rendezvous learn if this process ends.
class Entered {
 public:
  Entered(Rendezvous& rendezvous, Rank me) : rendezvous_(rendezvous) { rendezvous_.enter(me); }
  ~Entered() {
    (void)walled("joining", [this] { return rendezvous_.leave(), ok(); });
  }
  Entered(const Entered&) = delete;
  Entered& operator=(const Entered&) = delete;

 private:
  Rendezvous& rendezvous_;
};

}  // namespace tutti
