#include "exec/calls/call.h"

namespace tutti::exec {

std::string describe_call(std::uint64_t what, std::uint64_t count) {
  if (what >> 63 == 0) return "nothing yet";
  if (what >> 56 & 1) return "barrier";
  const auto collective = static_cast<Collective>(what >> 48 & 0xff);
  std::string text(to_string(collective));
  if (what >> 57 & 1)
    return text + "_v of " + std::string(to_string(static_cast<DataType>(what >> 40 & 0xff)));
  text += " of " + std::to_string(count) + " " +
          std::string(to_string(static_cast<DataType>(what >> 40 & 0xff)));
  if (reduces(collective))
    text += " (" + std::string(to_string(static_cast<ReduceOp>(what >> 32 & 0xf))) + ")";
  if (has_root(collective)) {
    text += traits_of(collective).root_input ? " from rank " : " to rank ";
    text += std::to_string(what & 0xffffU);
  }
  const Wire wire(static_cast<WireFormat>(what >> 36 & 7), static_cast<Rounding>(what >> 39 & 1));
  if (!wire.is_plain()) text += " as " + to_string(wire);
  if ((what >> 16 & 0xffff) != 0) text += ", with an algorithm of its own";
  return text;
}

}  // namespace tutti::exec
