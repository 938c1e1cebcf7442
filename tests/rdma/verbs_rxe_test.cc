// Links between soft-RoCE devices. Runs in a virtual machine that has them (rdma/vm/run).
#include "support/net/verbs_cases.h"
#include "support/net/verbs_renewal_cases.h"

const unsigned tutti::test::kBreakingRounds = 4;
tutti::test::VerbsFabric tutti::test::fabric() { return {"rxe", verbs::probe_ports()}; }
