// File: compat/nccl/window.h: what an ncclWindow_t is.
#pragma once
#include "comm.h"

/// A buffer that the user registered. Kernels use buffers where they are in any case; those of a
/// window that is symmetric are read and written by peers, so that nothing is copied.
struct ncclWindow_vidmem {
  std::shared_ptr<ncclComm> comm;  // It may be given back before its windows.
  void* data;
  std::size_t bytes;
  bool open = false;  // With peers. Known once the group has ended.
};
