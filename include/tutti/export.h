/* File: tutti/export.h: what the shared library shows. Everything without the mark stays inside. */
#ifndef TUTTI_EXPORT_H
#define TUTTI_EXPORT_H

#if defined(__GNUC__)
#define TUTTI_API __attribute__((visibility("default")))
#else
#define TUTTI_API
#endif

#endif
