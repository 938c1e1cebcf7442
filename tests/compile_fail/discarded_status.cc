// A failed collective must not go unnoticed.
// expect: unused-(result|value)
#include "tutti/communicator.h"

void use(tutti::Communicator& comm) {
#ifdef TUTTI_MISUSE
  comm.barrier();
#else
  (void)comm.barrier();
#endif
}
