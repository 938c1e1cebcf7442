// File: transport/verbs/library.h: libibverbs, opened at run time, and owners of what it makes.
//
// A program that has this transport also runs where there is no libibverbs: then no rank has an
// RDMA device. The data path's calls (posting, polling) are inline in the library's header and go
// through a device's own table; only functions that make and remove things are looked up by name.
#pragma once
#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <memory>

#include "tutti/result.h"

namespace tutti::verbs {

// The pointer of each exported function; names without "ibv_".
#define TUTTI_VERBS_FUNCTIONS(X) \
  X(get_device_list)             \
  X(free_device_list)            \
  X(get_device_name)             \
  X(open_device)                 \
  X(close_device)                \
  X(query_device)                \
  X(query_port)                  \
  X(alloc_pd)                    \
  X(dealloc_pd)                  \
  X(reg_mr)                      \
  X(dereg_mr)                    \
  X(create_comp_channel)         \
  X(destroy_comp_channel)        \
  X(create_cq)                   \
  X(destroy_cq)                  \
  X(create_qp)                   \
  X(destroy_qp)                  \
  X(modify_qp)                   \
  X(get_cq_event)                \
  X(ack_cq_events)               \
  X(get_async_event)             \
  X(ack_async_event)             \
  X(wc_status_str)               \
  X(event_type_str)

struct Library {
#define TUTTI_VERBS_POINTER(name) decltype(&::ibv_##name) name = nullptr;
  TUTTI_VERBS_FUNCTIONS(TUTTI_VERBS_POINTER)
#undef TUTTI_VERBS_POINTER
  /// Null: the library is older than dma-buf (rdma-core 34), as its header may be.
  ibv_mr* (*reg_dmabuf_mr)(ibv_pd* domain, std::uint64_t offset, std::size_t bytes,
                           std::uint64_t address, int descriptor, int access) = nullptr;
};

/// Loaded by the first call and never closed. kUnsupported: there is none, or it lacks a function.
/// Any thread.
Result<const Library*> load_library();

/// For owners of objects that the library made: it is loaded.
const Library& library();

/// For tests: what is used from now on.
void use_library(const Library& other);

/// Gives back what the library made.
template <auto Remove>
struct Remover {
  template <class Thing>
  void operator()(Thing* thing) const {
    (void)(library().*Remove)(thing);
  }
};
using Context = std::unique_ptr<ibv_context, Remover<&Library::close_device>>;
using Domain = std::unique_ptr<ibv_pd, Remover<&Library::dealloc_pd>>;
using Memory = std::unique_ptr<ibv_mr, Remover<&Library::dereg_mr>>;
using Channel = std::unique_ptr<ibv_comp_channel, Remover<&Library::destroy_comp_channel>>;
using Queue = std::unique_ptr<ibv_cq, Remover<&Library::destroy_cq>>;
using Pair = std::unique_ptr<ibv_qp, Remover<&Library::destroy_qp>>;

}  // namespace tutti::verbs
