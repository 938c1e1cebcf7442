// A function of the CUDA driver that is called by another prototype than the one that is found.
// expect: cuGetProcAddress has another prototype than that of CUDA 11030
#include "cuda/driver/prototypes.h"

TUTTI_CUDA_MEMORY_FUNCTIONS(TUTTI_CUDA_PROTOTYPE)
TUTTI_CUDA_MULTICAST_FUNCTIONS(TUTTI_CUDA_PROTOTYPE)
TUTTI_CUDA_OTHER_FUNCTIONS(TUTTI_CUDA_PROTOTYPE)
#ifdef TUTTI_MISUSE
TUTTI_CUDA_PROTOTYPE(look_up, cuGetProcAddress, 11030)  // It had no query result then.
#endif
