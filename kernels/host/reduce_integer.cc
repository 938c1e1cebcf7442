// File: kernels/host/reduce_integer.cc: the integers.
#define TUTTI_FAMILY add_all_integers
#define TUTTI_ADD add_integers
#include "kernels/host/family-inl.h"
