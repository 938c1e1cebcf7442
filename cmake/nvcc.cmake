# What the kernels are compiled with, for the library (cmake/cuda.cmake) and for the tests that read
# their machine code (tests/sass).
#
# Machine code runs on its own and on later devices of the same major number alone: 80 on 8.x, 100 on 10.x.
find_program(TUTTI_NVCC nvcc PATHS /usr/local/cuda/bin /opt/cuda/bin ENV CUDA_PATH PATH_SUFFIXES bin)
set(TUTTI_CUDA_ARCHITECTURES "80;90;100;120" CACHE STRING "Architectures that kernels are compiled for")
# No contraction of a*b+c: it would change bits.
set(TUTTI_NVCC_FLAGS -std=c++20 -O3 -fmad=false --expt-relaxed-constexpr -I ${PROJECT_SOURCE_DIR}
  -I ${PROJECT_SOURCE_DIR}/src -I ${PROJECT_SOURCE_DIR}/include)
