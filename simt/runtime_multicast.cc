#include "simt/runtime_multicast.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <new>

#include "simt/runtime.h"

namespace tutti::simt {

struct MulticastObject::Shared {
  struct Member {
    std::atomic<std::uint64_t> inode{0};  // 0: it has bound nothing. Written last.
    std::int32_t process = 0, fd = -1;
    std::size_t offset = 0;
  };
  std::size_t bytes = 0;
  unsigned devices = 0;
  std::atomic<std::uint64_t> added{0};  // A bit for each device.
  Member members[kMostDevices];
};

namespace {
std::atomic<void (*)(int)> bind_hook{nullptr};
}  // namespace

void set_multicast_hook(void (*hook)(int device)) { bind_hook = hook; }

std::uint64_t inode_of(int fd) {
  struct stat file {};
  return fstat(fd, &file) == 0 ? file.st_ino : 0;
}

MulticastObject::MulticastObject(int fd) : fd_(fd) {
  void* at = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (at != MAP_FAILED) shared_ = static_cast<Shared*>(at);
}
MulticastObject::~MulticastObject() {
  for (const Foreign& one : foreign_) munmap(one.at, bytes());
  if (shared_ != nullptr) munmap(shared_, sizeof(Shared));
  close(fd_);
}

std::unique_ptr<MulticastObject> MulticastObject::create(std::size_t bytes, unsigned devices) {
  const int fd = make_memfd(kName, sizeof(Shared));
  if (fd < 0) return nullptr;
  std::unique_ptr<MulticastObject> made(new MulticastObject(fd));
  if (made->shared_ == nullptr) return nullptr;
  new (made->shared_) Shared;
  made->shared_->bytes = bytes;
  made->shared_->devices = devices;
  return made;
}

std::unique_ptr<MulticastObject> MulticastObject::open(int fd) {
  const int own = fcntl(fd, F_DUPFD_CLOEXEC, 0);
  if (own < 0) return nullptr;
  std::unique_ptr<MulticastObject> made(new MulticastObject(own));
  return made->shared_ == nullptr ? nullptr : std::move(made);
}

std::size_t MulticastObject::bytes() const { return shared_->bytes; }

CUresult MulticastObject::add(int device) {
  const std::uint64_t bit = std::uint64_t{1} << device;
  // relaxed, as what follows: processes meet by other means before they rely on it.
  std::uint64_t before = shared_->added.load(std::memory_order_relaxed);
  do {
    if ((before & bit) != 0 || std::popcount(before) == static_cast<int>(shared_->devices))
      return CUDA_ERROR_INVALID_VALUE;
  } while (!shared_->added.compare_exchange_weak(before, before | bit, std::memory_order_relaxed));
  return CUDA_SUCCESS;
}

CUresult MulticastObject::bind(int device, int memory_fd, std::size_t offset, std::size_t bytes) {
  if (auto* const hook = bind_hook.load()) hook(device);
  const std::uint64_t added = shared_->added.load(std::memory_order_relaxed);
  Shared::Member& member = shared_->members[device];
  if (bytes != shared_->bytes || std::popcount(added) != static_cast<int>(shared_->devices) ||
      member.inode.load(std::memory_order_relaxed) != 0)
    return CUDA_ERROR_INVALID_VALUE;
  if ((added >> device & 1) == 0) return CUDA_ERROR_INVALID_DEVICE;
  member.process = getpid();
  member.fd = memory_fd;
  member.offset = offset;
  // release: pairs with the acquire in members.
  member.inode.store(inode_of(memory_fd), std::memory_order_release);
  return CUDA_SUCCESS;
}

CUresult MulticastObject::unbind(int device) {
  const std::uint64_t before =
      shared_->members[device].inode.exchange(0, std::memory_order_relaxed);
  return before != 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

const char* MulticastObject::members(const Find& find, std::vector<char*>& found) {
  for (Shared::Member& member : shared_->members) {
    // acquire: what it has bound was written before.
    const std::uint64_t inode = member.inode.load(std::memory_order_acquire);
    if (inode == 0) continue;
    char* at = find(inode, member.offset, bytes());
    if (at == nullptr && member.process == getpid())
      return "memory that a device bound is not mapped";
    if (at == nullptr) at = map_foreign(inode, member.process, member.fd, member.offset);
    if (at == nullptr) return "memory that a device of another process bound can't be had";
    found.push_back(at);
  }
  return found.size() == shared_->devices ? nullptr : "a device has bound no memory";
}

char* MulticastObject::map_foreign(std::uint64_t inode, int process, int fd, std::size_t offset) {
  const auto known = std::find_if(foreign_.begin(), foreign_.end(), [&](const Foreign& one) {
    return one.inode == inode && one.offset == offset;
  });
  if (known != foreign_.end()) return known->at;
  const int opened = open_of_process(process, fd);
  if (opened < 0) return nullptr;
  void* at = MAP_FAILED;
  if (inode_of(opened) == inode)
    at = mmap(nullptr, bytes(), PROT_READ | PROT_WRITE, MAP_SHARED, opened,
              static_cast<off_t>(offset));
  close(opened);
  if (at == MAP_FAILED) return nullptr;
  foreign_.push_back({inode, offset, static_cast<char*>(at)});
  return foreign_.back().at;
}

}  // namespace tutti::simt
