// File: comm/exchange_over.h: set-up over a communicator that is there already.
#pragma once
#include <optional>
#include <span>
#include <vector>

#include "tutti/communicator.h"
#include "tutti/rendezvous.h"

namespace tutti {

/// An all-gather of what may differ in size: by rank what it gave, nothing of a rank that gave
/// nullopt. At most 1 MiB each; what is longer is an error on all ranks alike. Collective.
Result<std::vector<std::optional<Bytes>>> exchange_over(
    Communicator& control, std::optional<std::span<const std::byte>> mine);

}  // namespace tutti
