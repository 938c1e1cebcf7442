#include "compat/nccl/nccl.h"
#include "facts.h"

DEFINE_FACTS(facts_of_ours)
