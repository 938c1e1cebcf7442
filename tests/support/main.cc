// The main function of every Catch2 test.
#define CATCH_CONFIG_MAIN
#include "support/catch.h"
