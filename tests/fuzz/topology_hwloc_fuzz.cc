// The reader hwloc_xml against any bytes.
#include "fuzz/topology_readers.h"

// libhwloc 2.9 loses the objects of a file that it refuses half way; a leak of ours has no frame of
// it on its stack.
extern "C" const char* __lsan_default_suppressions();
extern "C" const char* __lsan_default_suppressions() { return "leak:libhwloc\n"; }

TUTTI_FUZZ_READER("hwloc_xml")
