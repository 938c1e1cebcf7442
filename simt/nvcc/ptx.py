"""Inline PTX of one instruction to C++ (simt/nvcc/ptx.h): what programs use for flags, counters and thread numbers."""
import re

TYPES = {"u16": "std::uint16_t", "b16": "std::uint16_t", "s16": "std::int16_t", "u32": "std::uint32_t",
         "b32": "std::uint32_t", "s32": "std::int32_t", "u64": "std::uint64_t", "b64": "std::uint64_t",
         "s64": "std::int64_t", "f32": "float", "f64": "double", "u8": "std::uint8_t", "b8": "std::uint8_t",
         "s8": "std::int8_t"}
ORDERS = {"relaxed", "acquire", "release", "acq_rel", "volatile", "weak", "mmio", "cta", "gpu", "sys", "cluster",
          "global", "gl"}
OPERATIONS = {"add", "min", "max", "and", "or", "xor", "exch", "cas"}
THREAD = "::tutti::simt::current->"
REGISTERS = {"%laneid": THREAD + "lane", "%warpid": THREAD + "warp",
             "%lanemask_lt": f"((1u << {THREAD}lane) - 1)", "%lanemask_eq": f"(1u << {THREAD}lane)",
             "%lanemask_le": f"((2u << {THREAD}lane) - 1)", "%lanemask_gt": f"~((2u << {THREAD}lane) - 1)",
             "%lanemask_ge": f"~((1u << {THREAD}lane) - 1)", "%globaltimer": "::tutti::simt::nvcc::nanoseconds()",
             "%clock64": "::clock64()", "%clock": "::clock64()"}
for axis in "xyz":
    REGISTERS.update({f"%tid.{axis}": f"threadIdx.{axis}", f"%ctaid.{axis}": f"blockIdx.{axis}",
                      f"%ntid.{axis}": f"blockDim.{axis}", f"%nctaid.{axis}": f"gridDim.{axis}"})
INSTRUCTION = re.compile(r"([a-z_0-9.]+)\s*(.*)", re.S)
SIMT = "::tutti::simt::nvcc::"


def translate(template, operands):
    """C++ for one instruction; None: it is not known here. `operands` are C++ expressions, outputs first."""
    found = INSTRUCTION.fullmatch(template.strip().rstrip(";").strip())
    if not found or ";" in found[2]:
        return None
    name, *modifiers = found[1].split(".")
    places = [place.strip() for place in found[2].split(",")] if found[2].strip() else []
    if name in ("membar", "fence"):
        return "::tutti::simt::fence()" if set(modifiers) <= ORDERS | {"sc", "acq_rel"} and not places else None
    kind = TYPES.get(modifiers.pop()) if modifiers else None
    if kind is None:
        return None
    if name == "mov" and len(places) == 2 and places[1] in REGISTERS and not modifiers:
        return assign(places[0], REGISTERS[places[1]], operands)
    operation = [word for word in modifiers if word in OPERATIONS]
    if not set(modifiers) <= ORDERS | set(operation):
        return None
    try:
        return access(name, operation, kind, places, operands)
    except (IndexError, ValueError):
        return None


def number(place):
    """The operand that "%2" or "[%2]" names."""
    return int(re.fullmatch(r"\[?\s*%(\d+)\s*\]?", place)[1]) if re.fullmatch(r"\[?\s*%\d+\s*\]?", place) else -1


def operand(place, operands):
    if number(place) < 0:
        raise ValueError(place)
    return operands[number(place)]


def assign(place, value, operands):
    target = operand(place, operands)
    return f"({target}) = {SIMT}ptx_cast<std::remove_reference_t<decltype({target})>>({value})"


def access(name, operation, kind, places, operands):
    address = [place for place in places if place.startswith("[")]
    if len(address) != 1:
        return None
    at = f"{SIMT}ptx_at<{kind}>({operand(address[0], operands)})"
    behind = places[places.index(address[0]) + 1:]
    values = "".join(f", {SIMT}ptx_cast<{kind}>({operand(place, operands)})" for place in behind)
    if name == "ld" and len(places) == 2 and not operation:
        return assign(places[0], f"{SIMT}ptx_load({at})", operands)
    if name == "st" and len(places) == 2 and not operation:
        return f"{SIMT}ptx_store({at}{values})"
    if name == "red" and len(operation) == 1 and len(behind) == 1:
        return f"static_cast<void>({SIMT}ptx_{operation[0]}({at}{values}))"
    if name == "atom" and len(operation) == 1 and len(behind) == (2 if operation[0] == "cas" else 1):
        return assign(places[0], f"{SIMT}ptx_{operation[0]}({at}{values})", operands)
    return None
