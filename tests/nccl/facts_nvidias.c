/* NVIDIA's header is first in the search path of this file. Declaring our functions over its own is
 * an error of the compiler where a signature differs. */
#include <nccl.h>

#define TUTTI_NCCL_UNTIL_2_28
#define TUTTI_NCCL_API(result, name, ...) \
  result name(__VA_ARGS__);               \
  result p##name(__VA_ARGS__);
#include "compat/nccl/nccl_functions.h"
#undef TUTTI_NCCL_API

#include "facts.h"

DEFINE_FACTS(facts_of_nvidias)
