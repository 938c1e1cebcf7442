// Slots apart over soft-RoCE devices: the kernel reads and writes memory that is closed to this
// process. Runs in a virtual machine that has them (rdma/vm/run).
#include "support/net/gpudirect_cases.h"

namespace tutti::test {

const std::size_t kGpuDirectSlotBytes = 16384;
const std::uint32_t kGpuDirectSlots = 20;

VerbsFabric fabric() { return {"rxe", verbs::probe_ports()}; }
// The kernel has the pages: it needs no address that is open.
void know_memory(std::size_t, std::span<std::byte>, std::byte*) {}
void forget_memory(std::span<std::byte>) {}
void flush_memory(std::size_t) {}

}  // namespace tutti::test
