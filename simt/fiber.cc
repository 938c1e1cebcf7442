// File: simt/fiber.cc: stacks, and changing between them, with what the sanitizers want to know.
#include <sys/mman.h>

#include <cstring>
#include <mutex>

#include "simt/block.h"

#if defined(TUTTI_SIMT_ASAN)
extern "C" {
void __sanitizer_start_switch_fiber(void** save, const void* bottom, std::size_t bytes);
void __sanitizer_finish_switch_fiber(void* save, const void** bottom, std::size_t* bytes);
}
#define TUTTI_SIMT_IF_ASAN(code) code
#else
#define TUTTI_SIMT_IF_ASAN(code)
#endif

// Saves the callee-saved registers on the stack, and goes on with another stack where the same was
// done. makecontext would save signal masks too, with a system call each time.
extern "C" void tutti_simt_swap(void** save, void* load);
#if defined(__x86_64__)
asm(R"(
.text
.globl tutti_simt_swap
.type tutti_simt_swap,@function
tutti_simt_swap:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp,(%rdi)
  movq %rsi,%rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size tutti_simt_swap,.-tutti_simt_swap
)");
#else
#error "simulated GPUs need tutti_simt_swap for this CPU (aarch64: x19-x30, d8-d15, sp)"
#endif

namespace tutti::simt {
namespace {

constexpr std::size_t kPage = 4096;
constexpr std::size_t kSavedRegisters = 6;

std::mutex stacks_mutex;
std::vector<char*>& spare_stacks() {
  static std::vector<char*> list;
  return list;
}

}  // namespace

char* take_stack() {
  {
    const std::lock_guard lock(stacks_mutex);
    if (!spare_stacks().empty()) {
      char* stack = spare_stacks().back();
      spare_stacks().pop_back();
      return stack;
    }
  }
  void* memory = mmap(nullptr, settings().stack_bytes + kPage, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
  if (memory == MAP_FAILED) die("no memory for one more thread's stack");
  // A guard page doubles a stack's entries in the process's map, which has a limit: only on demand.
  if (settings().check) mprotect(memory, kPage, PROT_NONE);
  return static_cast<char*>(memory) + kPage;
}

void give_stack(char* stack) {
  const std::lock_guard lock(stacks_mutex);
  spare_stacks().push_back(stack);
}

void prepare(Fiber& fiber, void (*entry)()) {
  fiber.stack = take_stack();
  // The stack that tutti_simt_swap expects: registers, the address to go on at, and one word more,
  // as if that had been called.
  auto** top = reinterpret_cast<void**>(fiber.stack + settings().stack_bytes - 64);
  *--top = nullptr;
  *--top = reinterpret_cast<void*>(entry);
  top -= kSavedRegisters;
  std::memset(top, 0, kSavedRegisters * sizeof(void*));
  fiber.stack_pointer = top;
  TUTTI_SIMT_IF_TSAN(fiber.tsan = __tsan_create_fiber(0));
}

void switch_to(Fiber& fiber) {
  Block* block = current_block;
  TUTTI_SIMT_IF_ASAN(__sanitizer_start_switch_fiber(&block->scheduler_asan_stack, fiber.stack,
                                                    settings().stack_bytes));
  // Only its first start is an order that the sanitizer may rely on: all of the launch is before
  // it.
  TUTTI_SIMT_IF_TSAN(__tsan_switch_to_fiber(fiber.tsan, fiber.started ? 1 : 0));
  fiber.started = true;
  tutti_simt_swap(&block->scheduler_stack_pointer, fiber.stack_pointer);
  TUTTI_SIMT_IF_ASAN(
      __sanitizer_finish_switch_fiber(block->scheduler_asan_stack, nullptr, nullptr));
}

void switch_to_scheduler(bool forever) {
  Block* block = current_block;
  Fiber* fiber = block->running;
  TUTTI_SIMT_IF_ASAN(__sanitizer_start_switch_fiber(forever ? nullptr : &fiber->asan_stack,
                                                    block->scheduler_stack_bottom,
                                                    block->scheduler_stack_bytes));
  TUTTI_SIMT_IF_TSAN(__tsan_switch_to_fiber(block->scheduler_tsan, forever ? 0 : 1));
  static_cast<void>(forever);
  tutti_simt_swap(&fiber->stack_pointer, block->scheduler_stack_pointer);
  fiber_entered();
}

void fiber_entered() {
  TUTTI_SIMT_IF_ASAN(__sanitizer_finish_switch_fiber(current_block->running->asan_stack,
                                                     &current_block->scheduler_stack_bottom,
                                                     &current_block->scheduler_stack_bytes));
}

}  // namespace tutti::simt
