// File: support/catch.h: the one place that knows which Catch2 this is (Debian's 2.13).
#pragma once
#include <catch2/catch.hpp>
