"""The version of this package and of the library that it binds; a test compares it with tutti.h."""

VERSION = "0.1.0"
