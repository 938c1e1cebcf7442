// File: kernels/host/wire.h: encodes and decodes wire formats on the host, and the body of a data
// step whose slots are encoded.
//
// Model. An encoded tile is two runs, scales and elements (tutti/detail/wire_codec.h). Any part of
// it that begins at a block can be encoded or decoded alone, so a step works on parts that fit the
// first-level cache.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/host/reduce.h"
#include "tutti/detail/wire_codec.h"
#include "tutti/wire.h"

namespace tutti::kernels {

/// Elements to be encoded. They begin at a block; `count` may be any.
struct Encoding {
  const std::byte* from = nullptr;  // Float32.
  std::size_t count = 0;
  std::uint64_t stream = 0;      // See stream_key.
  std::uint64_t element = 0;     // The index in the message of the first one.
  std::byte* scales = nullptr;   // From its block on; unused without scales.
  std::byte* to = nullptr;       // Its encoding; null: only `decoded` is wanted.
  std::byte* decoded = nullptr;  // What the encoding stands for; may be `from`, or null.
};
/// The reverse.
struct Decoding {
  const std::byte* scales = nullptr;
  const std::byte* from = nullptr;
  std::size_t count = 0;
  std::byte* to = nullptr;
};

/// Never with the plain format. Any alignment. Any thread.
void encode(const Wire& wire, const Encoding& part);
void decode(const Wire& wire, const Decoding& part);

/// The same by the definitions in wire_codec.h: what these have to equal bit for bit.
void encode_reference(const Wire& wire, const Encoding& part);
void decode_reference(const Wire& wire, const Decoding& part);

/// A source of a step on a wire.
struct WireSource {
  enum class Kind : std::uint8_t {
    kEncoded,  // A slot.
    kInput,    // This rank's input: float32, rounded to the format where it is read.
    kValue,    // Float32 as it is: a finished value, which the format can hold, or a partial sum.
  };
  const std::byte* data = nullptr;
  Kind kind = Kind::kValue;
  Form form = Form::kResult;
  bool scale = false;  // An input that is multiplied by Arithmetic::scale before it is rounded.
};
struct WireTarget {
  std::byte* data = nullptr;
  bool encoded = false;  // A slot.
  Form form = Form::kResult;
};

/// A data step of which the slots are encoded. `element` is the index of its first element in the
/// message. Every result is rounded to the format, whether it goes to a slot or to memory.
struct WireStep {
  const Arithmetic& arithmetic;  // Its type is float32.
  Wire wire;
  std::span<const WireSource> sources;
  std::span<const WireTarget> targets;
  std::size_t count = 0;
  std::uint64_t element = 0;
  std::uint64_t input_stream = 0, result_stream = 0;
};

/// Memory in which steps of up to so many sources and targets work.
struct WireWork {
  WireWork(std::size_t most_sources, std::size_t most_targets);
  std::vector<std::byte> values;  // Parts of decoded sources, and one of their reduction.
  std::vector<Source> sources;
  // For the caller: a step's own lists.
  std::vector<WireSource> step_sources;
  std::vector<WireTarget> step_targets;
};

/// Runs a step, in one pass over memory. No partial sum goes to or comes from a slot. A target may
/// be exactly one of the sources' memory, and must not overlap them otherwise. Does not allocate.
void run(const WireStep& step, WireWork& work);

}  // namespace tutti::kernels
