// The reader hwloc_xml against any bytes.
#include "fuzz/topology_readers.h"

TUTTI_FUZZ_READER("hwloc_xml")
