// libibverbs: two devices. The first has two ports and takes dma-buf; the second can't be opened.
#include "fake_driver.h"

#if __has_include(<infiniband/verbs.h>)
#include <infiniband/verbs.h>
#undef ibv_query_port  // A macro around an inline function; the library exports this one.

#include <cerrno>
#include <cstdint>

namespace {

ibv_device devices[2];
ibv_context context;
ibv_pd domain;
int open_count = 0;

}  // namespace

// How many things were taken and not given back: lists, contexts and domains.
FAKE_DRIVER int tutti_fake_driver_open_count() { return open_count; }

FAKE_DRIVER ibv_device** ibv_get_device_list(int* count) {
  MAY_FAIL(nullptr);
  static ibv_device* list[3] = {&devices[0], &devices[1], nullptr};
  *count = 2;
  ++open_count;
  return list;
}
FAKE_DRIVER void ibv_free_device_list(ibv_device**) { --open_count; }
FAKE_DRIVER const char* ibv_get_device_name(ibv_device* device) {
  MAY_FAIL(nullptr);
  return device == &devices[0] ? "mlx5_0" : "mlx4_0";
}
FAKE_DRIVER ibv_context* ibv_open_device(ibv_device* device) {
  MAY_FAIL(nullptr);
  if (device != &devices[0]) return nullptr;
  ++open_count;
  return &context;
}
FAKE_DRIVER int ibv_close_device(ibv_context*) {
  --open_count;
  return 0;
}
FAKE_DRIVER int ibv_query_device(ibv_context*, ibv_device_attr* attributes) {
  MAY_FAIL(EINVAL);
  attributes->phys_port_cnt = 2;
  attributes->atomic_cap = IBV_ATOMIC_HCA;
  return 0;
}
FAKE_DRIVER int ibv_query_port(ibv_context*, std::uint8_t number, _compat_ibv_port_attr* compat) {
  MAY_FAIL(EINVAL);
  if (number < 1 || number > 2) return EINVAL;
  auto* const port = reinterpret_cast<ibv_port_attr*>(compat);
  port->active_mtu = number == 1 ? IBV_MTU_1024 : IBV_MTU_256;
  port->max_mtu = IBV_MTU_4096;
  return 0;
}
FAKE_DRIVER ibv_pd* ibv_alloc_pd(ibv_context*) {
  MAY_FAIL(nullptr);
  ++open_count;
  return &domain;
}
FAKE_DRIVER int ibv_dealloc_pd(ibv_pd*) {
  --open_count;
  return 0;
}
FAKE_DRIVER ibv_mr* ibv_reg_dmabuf_mr(ibv_pd*, std::uint64_t, std::size_t, std::uint64_t, int file,
                                      int) {
  errno = fake_driver::fails(__func__) ? EOPNOTSUPP : file < 0 ? EBADF : EINVAL;
  return nullptr;
}
#endif
