// File: simt/nvcc/ptx.h: the few PTX instructions that ptx.py translates: accesses to memory with
// an order, fences, and registers that say which thread asks.
#pragma once
#include <cstdint>
#include <type_traits>

#include "simt/nvcc/atomics.h"
#include "simt/nvcc/functions.h"

namespace tutti::simt::nvcc {

/// An address operand: a pointer, or an integer.
template <class T, class Address>
T* ptx_at(Address address) {
  if constexpr (std::is_pointer_v<Address>) {
    return reinterpret_cast<T*>(
        const_cast<void*>(const_cast<const void*>(static_cast<const volatile void*>(address))));
  } else {
    return reinterpret_cast<T*>(static_cast<std::uintptr_t>(address));
  }
}
/// An operand's bits as a T, and a result's as the operand.
template <class To, class From>
To ptx_cast(From from) {
  if constexpr (std::is_same_v<To, From> || std::is_arithmetic_v<From> == std::is_pointer_v<To>) {
    return (To)from;
  } else if constexpr (std::is_integral_v<To> && std::is_integral_v<From>) {
    return static_cast<To>(from);
  } else {
    static_assert(sizeof(To) == sizeof(From));
    return std::bit_cast<To>(from);
  }
}

template <class T>
T ptx_load(const T* at) {
  if (settings().check) check_access(at, sizeof *at, Scope::kSystem, true);
  poll_point(at);
  T value;
  __atomic_load(at, &value, __ATOMIC_ACQUIRE);
  return value;
}
template <class T>
void ptx_store(T* at, T value) {
  if (settings().check) check_access(at, sizeof *at, Scope::kSystem, true);
  yield_point();
  __atomic_store(at, &value, __ATOMIC_RELEASE);
  note_progress();
}

template <class T>
T ptx_add(T* at, T value) {
  return update(at, [=](T old) { return static_cast<T>(old + value); });
}
template <class T>
T ptx_min(T* at, T value) {
  return update(at, [=](T old) { return value < old ? value : old; });
}
template <class T>
T ptx_max(T* at, T value) {
  return update(at, [=](T old) { return old < value ? value : old; });
}
template <class T>
T ptx_and(T* at, T value) {
  return update(at, [=](T old) { return static_cast<T>(old & value); });
}
template <class T>
T ptx_or(T* at, T value) {
  return update(at, [=](T old) { return static_cast<T>(old | value); });
}
template <class T>
T ptx_xor(T* at, T value) {
  return update(at, [=](T old) { return static_cast<T>(old ^ value); });
}
template <class T>
T ptx_exch(T* at, T value) {
  return update(at, [=](T) { return value; });
}
template <class T>
T ptx_cas(T* at, T expected, T value) {
  return update(at, [=](T old) { return old == expected ? value : old; });
}

}  // namespace tutti::simt::nvcc
