// File: trainer/models/matrix.h: products of row-major matrices, by BLAS.
#pragma once
#include <cblas.h>

#include <cstddef>

namespace tutti::trainer {

/// A row-major matrix, or its transpose. `stride`: from row to row.
struct Matrix {
  const float* data;
  std::size_t stride;
  bool transposed = false;
};

/// c[rows][columns] = scale * a * b + keep * c, over `inner` products for each.
inline void multiply(std::size_t rows, std::size_t columns, std::size_t inner, Matrix a, Matrix b,
                     float* c, std::size_t c_stride, float keep = 0, float scale = 1) {
  cblas_sgemm(CblasRowMajor, a.transposed ? CblasTrans : CblasNoTrans,
              b.transposed ? CblasTrans : CblasNoTrans, static_cast<f77_int>(rows),
              static_cast<f77_int>(columns), static_cast<f77_int>(inner), scale, a.data,
              static_cast<f77_int>(a.stride), b.data, static_cast<f77_int>(b.stride), keep, c,
              static_cast<f77_int>(c_stride));
}

/// sums[columns] = the sums of the rows of a[rows][columns].
inline void sum_rows(const float* a, std::size_t rows, std::size_t columns, float* sums) {
  for (std::size_t c = 0; c < columns; ++c) sums[c] = 0;
  for (std::size_t r = 0; r < rows; ++r) {
    for (std::size_t c = 0; c < columns; ++c) sums[c] += a[r * columns + c];
  }
}

}  // namespace tutti::trainer
