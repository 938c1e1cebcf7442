// Memory that was allocated must not be dropped, and neither must the error.
// expect: unused-(result|value)
#include "tutti/communicator.h"

void use() {
#ifdef TUTTI_MISUSE
  tutti::mem_alloc(64);
#else
  (void)tutti::mem_alloc(64);
#endif
}
