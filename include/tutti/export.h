/* File: tutti/export.h: what the shared library shows. Everything without the mark stays inside. */
#ifndef TUTTI_EXPORT_H
#define TUTTI_EXPORT_H

#if defined(__cplusplus)
#define TUTTI_API [[gnu::visibility("default")]] /* GCC wants this form beside [[nodiscard]]. */
#else
#define TUTTI_API __attribute__((visibility("default")))
#endif

#endif
