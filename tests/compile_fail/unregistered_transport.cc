// A transport that nobody registered would never be tested nor chosen.
// expect: unused-const-variable|defined but not used|unused variable
#include "transport/transport.h"

#ifdef TUTTI_MISUSE
#define NAME nobody_registered_this
#else
#define NAME in_process_transport
#endif

namespace tutti {
constinit const Transport NAME{
    .name = "none", .joins = "nobody", .reach = nullptr, .open = nullptr};
}  // namespace tutti
