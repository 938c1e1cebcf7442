// File: kernels/host/copy.cc: one source to several targets, byte for byte.
#define TUTTI_FAMILY add_copy_of_bytes
#define TUTTI_ADD add_copy
#include "kernels/host/family-inl.h"
