// File: simt/handles.h: handles of streams, events and graphs, which come back.
//
// A driver gives what is created the handle of something that was destroyed, or not: CUDA says
// nothing, but that to use a handle after its object was destroyed is undefined (cudaStreamDestroy,
// cudaEventDestroy). Here the handle that was given back last is the next one's, at once, which is
// the worst for code that remembers anything by a handle. A handle that nothing has is an error.
#pragma once
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "simt/engine.h"

namespace tutti::simt {

/// Any thread may call it. Never destroyed: threads that are asleep at the process's end use it.
template <class Object>
class Handles {
 public:
  using Pointer = std::shared_ptr<Object>;

  Object* add(Pointer object) {
    const std::lock_guard lock(mutex_);
    if (free_.empty() || !settings().reuse_handles) free_.push_back(new_handle());
    Object* const handle = free_.back();
    free_.pop_back();
    objects_[handle] = std::move(object);
    return handle;
  }
  /// Null: nothing has the handle.
  Pointer find(Object* handle) {
    const std::lock_guard lock(mutex_);
    const auto found = objects_.find(handle);
    return found == objects_.end() ? nullptr : found->second;
  }
  /// Gives the handle back. Its object lives on until nothing uses it any more.
  Pointer take(Object* handle) {
    const std::lock_guard lock(mutex_);
    const auto found = objects_.find(handle);
    if (found == objects_.end()) return nullptr;
    Pointer object = std::move(found->second);
    objects_.erase(found);
    free_.push_back(handle);
    return object;
  }

 private:
  /// An address that nobody else has, and nobody looks behind.
  static Object* new_handle() { return static_cast<Object*>(::operator new(64)); }

  std::mutex mutex_;  // Guards what follows.
  std::map<Object*, Pointer> objects_;
  std::vector<Object*> free_;
};

}  // namespace tutti::simt
