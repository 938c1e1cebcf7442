// File: simt/runtime_multicast.h: a multicast object of the simulated driver, as one process has
// it.
//
// Model. The object is a memfd with what all processes have to agree on: which devices were added,
// and which memory each has bound. Memory is named by its memfd: its inode, and where it is open. A
// process that maps the object finds its own memory by the inode, and maps that of other processes.
// So an object is only looked into once all have bound; one that is mapped earlier can't be used.
#pragma once
#include <cuda.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

namespace tutti::simt {

class MulticastObject {
 public:
  /// Null: there is no memory for it.
  static std::unique_ptr<MulticastObject> create(std::size_t bytes, unsigned devices);
  /// One that another process, or this one, has made. The descriptor stays the caller's.
  static std::unique_ptr<MulticastObject> open(int fd);
  /// The beginning of the names of such memfds.
  static constexpr const char* kName = "simt-multicast";
  ~MulticastObject();
  MulticastObject(const MulticastObject&) = delete;
  MulticastObject& operator=(const MulticastObject&) = delete;

  int fd() const { return fd_; }
  std::size_t bytes() const;

  CUresult add(int device);
  /// All devices have to be added before: on hardware it would wait for them. Only whole objects
  /// can be bound.
  CUresult bind(int device, int memory_fd, std::size_t offset, std::size_t bytes);
  CUresult unbind(int device);

  /// Finds this process's address of a memfd's bytes; null: it has not mapped them.
  using Find = std::function<char*(std::uint64_t inode, std::size_t offset, std::size_t bytes)>;
  /// The members' memory, by device. Returns what is wrong, or null.
  const char* members(const Find& find, std::vector<char*>& found);

 private:
  struct Shared;
  struct Foreign {
    std::uint64_t inode;
    std::size_t offset;
    char* at;
  };
  explicit MulticastObject(int fd);
  char* map_foreign(std::uint64_t inode, int process, int fd, std::size_t offset);

  int fd_;
  Shared* shared_ = nullptr;
  std::vector<Foreign> foreign_;  // Memory of other processes that is mapped here.
};

/// For tests: called when a device is about to bind memory. Null: nothing is.
void set_multicast_hook(void (*hook)(int device));

/// The number by which a memfd is known in all processes.
std::uint64_t inode_of(int fd);

}  // namespace tutti::simt
