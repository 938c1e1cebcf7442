// File: comm/watching.h: a rank that connects to its peers hears what the rendezvous knows.
#pragma once
#include <chrono>
#include <string>
#include <string_view>
#include <utility>

#include "comm/state.h"
#include "tutti/rendezvous.h"

namespace tutti {

/// The same founding, with a `look` that returns why the job has failed, once the rendezvous knows:
/// a rank that connects waits for all others, and one of them may have ended. `rendezvous` has to
/// outlive it. One thread.
inline Founding watching(Founding founding, Rendezvous& rendezvous, std::string_view name) {
  using std::chrono::steady_clock;
  static constexpr std::chrono::milliseconds kPause{100};  // It is a question over the network.
  founding.look = [&rendezvous, key = std::string(name) + "/look",
                   next = steady_clock::now() + kPause]() mutable -> Status {
    if (steady_clock::now() < next) return ok();
    // Nobody puts that key. A deadline that has not passed makes every rendezvous look for deaths.
    const auto told = rendezvous.get(key, Deadline::after(std::chrono::milliseconds(1)));
    next = steady_clock::now() + kPause;
    return told || told.error().code == Code::kTimeout ? ok() : Status(told.error());
  };
  return founding;
}

}  // namespace tutti
