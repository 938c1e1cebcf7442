#include "topology/probe/sources/verbs.h"

#include <fmt/format.h>

#include "base/driver_library.h"

// The structures' layout belongs to the library's ABI, so it is taken from its header, where there
// is one. Only functions that the library exports are called: some of the header's are inline and
// would have to be linked.
#if __has_include(<infiniband/verbs.h>)
#include <infiniband/verbs.h>

#include <cerrno>
#include <cstdint>
#define TUTTI_HAVE_VERBS 1
#endif

namespace tutti::topology {
namespace {

Error absent(std::string what) { return {Code::kUnsupported, std::move(what), {}, {}}; }

#ifdef TUTTI_HAVE_VERBS

constexpr int kMostDevices = 256, kMostPorts = 16;

struct Library : DriverLibrary {
  using DriverLibrary::DriverLibrary;
  ibv_device** (*list)(int*) = find("ibv_get_device_list");
  void (*free_list)(ibv_device**) = find("ibv_free_device_list");
  const char* (*name)(ibv_device*) = find("ibv_get_device_name");
  ibv_context* (*open)(ibv_device*) = find("ibv_open_device");
  int (*close)(ibv_context*) = find("ibv_close_device");
  int (*query)(ibv_context*, ibv_device_attr*) = find("ibv_query_device");
  int (*query_port)(ibv_context*, std::uint8_t, void*) = find("ibv_query_port");
  ibv_pd* (*make_domain)(ibv_context*) = find("ibv_alloc_pd");
  int (*drop_domain)(ibv_pd*) = find("ibv_dealloc_pd");
  ibv_mr* (*register_dma_buf)(ibv_pd*, std::uint64_t, std::size_t, std::uint64_t, int,
                              int) = find("ibv_reg_dmabuf_mr");
  bool usable() const {
    return list != nullptr && free_list != nullptr && name != nullptr && open != nullptr &&
           close != nullptr;
  }
};

int bytes_of(ibv_mtu mtu) {
  return mtu >= IBV_MTU_256 && mtu <= IBV_MTU_4096 ? 128 << static_cast<int>(mtu) : 0;
}

std::string atomics_of(ibv_atomic_cap capability) {
  switch (capability) {
    case IBV_ATOMIC_NONE: return "none";
    case IBV_ATOMIC_HCA: return "device";
    case IBV_ATOMIC_GLOB: return "global";
    default: return {};
  }
}

// A registration of no descriptor at all: a kernel and a driver that know dma-buf complain of the
// descriptor, others of the request. (The question that NCCL asks, too.)
std::string dma_buf_of(const Library& library, ibv_context* context) {
  if (library.register_dma_buf == nullptr || library.make_domain == nullptr ||
      library.drop_domain == nullptr) {
    return {};
  }
  ibv_pd* const domain = library.make_domain(context);
  if (domain == nullptr) return {};
  errno = 0;
  const ibv_mr* const none = library.register_dma_buf(domain, 0, 0, 0, -1, 0);
  const int why = errno;
  library.drop_domain(domain);
  if (none != nullptr) return {};  // It cannot be; then nothing is known.
  if (why == EBADF) return "yes";
  return why == EOPNOTSUPP || why == EPROTONOSUPPORT ? "no" : "";
}

VerbsDevice read_device(const Library& library, ibv_device* device) {
  VerbsDevice read;
  const char* const name = library.name(device);
  if (name != nullptr) read.name = name;
  ibv_context* const context = library.open(device);
  if (context == nullptr) return read;
  ibv_device_attr attributes{};
  int ports = 1;
  if (ask(library.query, context, &attributes)) {
    read.atomics = atomics_of(attributes.atomic_cap);
    ports = attributes.phys_port_cnt;
  }
  for (int number = 1; number <= ports && number <= kMostPorts; ++number) {
    // The exported function fills the structure as it was in version 1.1, a prefix of this one.
    ibv_port_attr port{};
    void* const where = &port;
    if (!ask(library.query_port, context, static_cast<std::uint8_t>(number), where)) continue;
    read.ports.push_back({number, bytes_of(port.active_mtu), bytes_of(port.max_mtu)});
  }
  read.dma_buf = dma_buf_of(library, context);
  library.close(context);
  return read;
}

#endif

}  // namespace

Result<VerbsFacts> read_verbs(const char* name) {
#ifdef TUTTI_HAVE_VERBS
  const Library library(name);
  if (!library.opened()) return absent(fmt::format("no verbs: there is no {}", name));
  if (!library.usable()) return absent(fmt::format("no verbs: {} lacks functions", name));
  int count = 0;
  ibv_device** const list = library.list(&count);
  VerbsFacts facts;
  for (int i = 0; list != nullptr && i < count && i < kMostDevices; ++i) {
    facts.devices.push_back(read_device(library, list[i]));
  }
  if (list != nullptr) library.free_list(list);
  if (facts.devices.empty()) return absent(fmt::format("no verbs: {} finds no device", name));
  return facts;
#else
  return absent(fmt::format("no verbs: this build has no header of {}", name));
#endif
}

}  // namespace tutti::topology
