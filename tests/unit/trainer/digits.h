// File: unit/trainer/digits.h: the digits that tests train on.
#pragma once
#include "support/catch.h"
#include "trainer/data.h"

namespace tutti::test {

/// Read and split once for the process.
inline const trainer::Split& digits() {
  static const trainer::Split parts = [] {
    auto all = trainer::read_digits(trainer::default_data_path());
    if (!all) FAIL(all.error().to_string());
    return trainer::split(*all, 1);
  }();
  return parts;
}

}  // namespace tutti::test
