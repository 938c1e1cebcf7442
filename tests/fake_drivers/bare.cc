// A library that opens and has none of the functions: another one of that name, or a stub.
#include "fake_driver.h"

FAKE_DRIVER int tutti_fake_driver() { return 0; }
