// The reader json against any bytes.
#include "fuzz/topology_readers.h"

TUTTI_FUZZ_READER("json")
