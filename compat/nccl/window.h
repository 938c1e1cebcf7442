// File: compat/nccl/window.h: what an ncclWindow_t is.
#pragma once
#include "comm.h"

/// A buffer that the user registered. Kernels use buffers where they are in any case. Peers read
/// and write the buffers of a symmetric window directly, so that nothing is copied.
struct ncclWindow_vidmem {
  std::shared_ptr<ncclComm> comm;  // The user may give it back before its windows.
  void* data;
  std::size_t bytes;
  bool open = false;  // Whether peers map it: known once the group has ended.
};
