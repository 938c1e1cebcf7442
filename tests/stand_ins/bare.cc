// A library that opens and has none of the functions: another one of that name, or a stub.
#include "stand_in.h"

STAND_IN int tutti_stand_in() { return 0; }
