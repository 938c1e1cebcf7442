// File: trainer/memory.h: the memory of a rank's training, counted by what it holds.
//
// ZeRO (Rajbhandari et al., 2020) calls parameters, gradients and the optimiser's values the model
// states, and states how much of them a rank holds. Gathered units, buckets in flight and other
// things that live for a part of a step are counted apart, as transient.
#pragma once
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "tutti/communicator.h"

namespace tutti::trainer {

enum class Holds : std::uint8_t { kParameters, kGradients, kOptimiser, kTransient };
inline constexpr std::size_t kHoldsCount = 4;

/// Bytes that one rank holds. Not thread safe: a rank is one thread as far as its memory goes.
class Ledger {
 public:
  void add(Holds what, std::size_t bytes) {
    now_[index(what)] += bytes;
    most_[index(what)] = std::max(most_[index(what)], now_[index(what)]);
  }
  void remove(Holds what, std::size_t bytes) { now_[index(what)] -= bytes; }
  /// The most that was held at one time.
  std::size_t most(Holds what) const { return most_[index(what)]; }
  /// Parameters, gradients and the optimiser's values.
  std::size_t model_states() const {
    return most(Holds::kParameters) + most(Holds::kGradients) + most(Holds::kOptimiser);
  }

 private:
  static std::size_t index(Holds what) { return static_cast<std::size_t>(what); }
  std::array<std::size_t, kHoldsCount> now_{}, most_{};
};

/// Values of T, 0 at first, in memory that peers can map, so that a collective on them needs no
/// copy. The ledger has to outlive it.
template <class T>
class Buffer {
 public:
  Buffer() = default;
  static Result<Buffer> make(Ledger& ledger, Holds what, std::size_t count) {
    TUTTI_TRY(void* memory, mem_alloc(std::max<std::size_t>(1, count) * sizeof(T)));
    Buffer buffer;
    buffer.data_.reset(static_cast<T*>(memory));
    buffer.count_ = count;
    buffer.held_ = {&ledger, what, count * sizeof(T)};
    std::fill_n(buffer.data(), count, T{});
    return buffer;
  }

  T* data() { return data_.get(); }
  const T* data() const { return data_.get(); }
  std::size_t size() const { return count_; }
  std::span<T> span() { return {data(), count_}; }
  std::span<const T> span() const { return {data(), count_}; }

 private:
  struct Free {
    void operator()(T* memory) const { (void)mem_free(memory); }
  };
  /// An entry of the ledger, which moves with the buffer.
  class Entry {
   public:
    Entry() = default;
    Entry(Ledger* ledger, Holds what, std::size_t bytes)
        : ledger_(ledger), what_(what), bytes_(bytes) {
      ledger_->add(what_, bytes_);
    }
    Entry(Entry&& other) noexcept
        : ledger_(std::exchange(other.ledger_, nullptr)),
          what_(other.what_),
          bytes_(other.bytes_) {}
    Entry& operator=(Entry&& other) noexcept {
      std::swap(ledger_, other.ledger_);
      std::swap(what_, other.what_);
      std::swap(bytes_, other.bytes_);
      return *this;
    }
    ~Entry() {
      if (ledger_ != nullptr) ledger_->remove(what_, bytes_);
    }

   private:
    Ledger* ledger_ = nullptr;
    Holds what_ = Holds::kTransient;
    std::size_t bytes_ = 0;
  };
  std::unique_ptr<T, Free> data_;
  std::size_t count_ = 0;
  Entry held_;
};

using Floats = Buffer<float>;

}  // namespace tutti::trainer
