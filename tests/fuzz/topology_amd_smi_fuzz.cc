// The reader amd_smi against any bytes.
#include "fuzz/topology_readers.h"

TUTTI_FUZZ_READER("amd_smi")
