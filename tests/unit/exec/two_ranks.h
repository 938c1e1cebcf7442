// File: unit/exec/two_ranks.h: memory that two ranks share, endpoints over it, and a link over
// which nothing goes.
#pragma once
#include <algorithm>
#include <cstdlib>
#include <functional>
#include <memory>
#include <utility>

#include "transport/transport.h"

namespace tutti::test {

/// A region for two ranks, formatted.
class TwoRanks {
 public:
  TwoRanks() {
    std::fill_n(static_cast<std::byte*>(memory_.get()), bytes_, std::byte{});
    region_.format();
  }
  Region& region() { return region_; }

 private:
  const RegionConfig config_ = Region::default_config(2);
  const std::size_t bytes_ = Region::bytes_for(config_);
  const std::unique_ptr<void, void (*)(void*)> memory_{std::aligned_alloc(4096, bytes_), std::free};
  Region region_{static_cast<std::byte*>(memory_.get()), config_};
};

/// A link over which nothing goes.
class IdleLink : public RemoteLink {
 public:
  void publish(const Published&) override {}
  void show_calls(int) override {}
  void flush() override {}
  bool progress() override { return false; }
  bool pending() const override { return false; }
  bool pending_to(int) const override { return false; }
  std::uint64_t taken_for(int) const override { return 0; }
  bool allows_zero_copy(int) const override { return false; }
  void send_zero_copy(int, std::size_t, std::uint64_t, SendBuffer) override {}
  bool is_sending(SendBuffer) const override { return false; }
  void expect(int, bool, std::size_t, std::uint64_t, std::span<std::byte>) override {}
  const std::byte* placed(int, bool, std::size_t, std::uint64_t) const override { return nullptr; }
  void keep() override {}
  void say_left(std::chrono::milliseconds) override {}
  void sleep(std::chrono::nanoseconds) override {}
  void wake() override {}
};

/// Nothing can be mapped: all goes by slots. Whether the peer lives, `is_alive` says.
class PlainEndpoint final : public Endpoint {
 public:
  explicit PlainEndpoint(
      const Region& region, std::function<bool()> is_alive = [] { return true; },
      RemoteLink* link = nullptr)
      : region_(region), is_alive_(std::move(is_alive)), link_(link) {}
  const Region& region() const override { return region_; }
  BufferName name(const void*, std::size_t) override { return {}; }
  Result<std::byte*> map(int, BufferName, std::size_t) override {
    return Error{Code::kSystem, "nothing can be mapped"};
  }
  bool alive(int) const override { return is_alive_(); }
  std::size_t shared_bytes() const override { return 0; }
  RemoteLink* remote_link() override { return link_; }

 private:
  Region region_;
  std::function<bool()> is_alive_;
  RemoteLink* link_;
};

}  // namespace tutti::test
