// File: kernels/host/wire.cc: the codecs of wire formats, for each instruction set.
#include "kernels/host/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/host/wire.cc"
#include <hwy/foreach_target.h>

#include "kernels/host/wire-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tutti::kernels::HWY_NAMESPACE {
namespace {

void fill_wire(WireTable& table) {
  add_codec<Float16Codec>(table, WireFormat::kFloat16);
  add_codec<Bfloat16Codec>(table, WireFormat::kBfloat16);
  add_codec<Int8Codec>(table, WireFormat::kInt8);
  add_codec<Float8Codec>(table, WireFormat::kFloat8);
}

}  // namespace
}  // namespace tutti::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tutti::kernels {
namespace {

HWY_EXPORT(fill_wire);

const WireTable& best_wire_table() {
  static const WireTable kTable = make_wire_table();
  return kTable;
}

}  // namespace

WireTable make_wire_table() {
  WireTable table;
  HWY_DYNAMIC_DISPATCH(fill_wire)(table);
  return table;
}

void encode(const Wire& wire, const Encoding& part) {
  best_wire_table().encode[static_cast<std::size_t>(wire.format)]
                          [wire.rounding == Rounding::kStochastic ? 1 : 0](part);
}

void decode(const Wire& wire, const Decoding& part) {
  best_wire_table().decode[static_cast<std::size_t>(wire.format)](part);
}

}  // namespace tutti::kernels
#endif
