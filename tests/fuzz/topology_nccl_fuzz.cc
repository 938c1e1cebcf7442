// The reader nccl_xml against any bytes.
#include "fuzz/topology_readers.h"

TUTTI_FUZZ_READER("nccl_xml")
