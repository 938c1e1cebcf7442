// File: comm/growing.h: the rendezvous of a communicator that grows.
#pragma once
#include <algorithm>
#include <chrono>
#include <functional>
#include <string_view>
#include <utility>

#include "tutti/rendezvous.h"

namespace tutti {

/// Another rendezvous, whose waits end as soon as a rank of the old communicator has died: that one
/// does not come any more, and the rendezvous, which it may never have entered, can't know. All
/// ranks are told, the new ones too. `there` outlives it. Any thread, if that holds for `look`.
class GrowingRendezvous final : public Rendezvous {
 public:
  /// `look`: ok, or why the old communicator is over.
  GrowingRendezvous(Rendezvous& there, std::function<Status()> look)
      : there_(there), look_(std::move(look)) {}

  Status put(std::string_view key, std::span<const std::byte> value) override {
    return there_.put(key, value);
  }
  Result<Bytes> get(std::string_view key, Deadline deadline) override {
    for (;;) {
      const Deadline pause = Deadline::after(kPause);
      auto value = there_.get(key, {std::min(pause.at, deadline.at)});
      // What comes before that time is an error that somebody has told.
      const bool nothing_yet = !value && value.error().code == Code::kTimeout && pause.passed();
      if (!nothing_yet || deadline.passed()) return value;
      if (Status alive = look_(); !alive) {
        (void)there_.fail(alive.error());
        return std::move(alive.error());
      }
    }
  }
  Status fail(const Error& error) override { return there_.fail(error); }
  void enter(Rank me) override { there_.enter(me); }
  void leave() override { there_.leave(); }
  bool kept_here() const override { return there_.kept_here(); }
  void kept_by(Rank keeper) override { there_.kept_by(keeper); }

 private:
  static constexpr std::chrono::milliseconds kPause{100};

  Rendezvous& there_;
  std::function<Status()> look_;
};

}  // namespace tutti
