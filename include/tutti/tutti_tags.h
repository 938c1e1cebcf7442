/* File: tutti/tutti_tags.h: the rest of the C API: messages with tags. tutti.h includes it.
 */
#ifndef TUTTI_TUTTI_TAGS_H
#define TUTTI_TUTTI_TAGS_H

#include "tutti/tutti.h"

/* C has no `using`. NOLINTBEGIN(modernize-*) */

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Messages with tags -----------------------------------------------------------------------
 * As tutti_send and its like, which are those with tag 0. A receive takes the next message with its
 * tag, so messages with different tags may be received in any order. What comes before a receive
 * asks for its tag is kept while one for another tag waits, up to TUTTI_UNEXPECTED_BYTES; what is
 * more waits at its sender. A receive has its deadline from when it was made, or the one before it
 * with its tag ended. TUTTI_INVALID_ARGUMENT if `tag` is negative. */

TUTTI_API tutti_result_t tutti_send_tagged(tutti_comm_t comm, const void* data, size_t count,
                                           tutti_data_type_t type, int to, int tag);
TUTTI_API tutti_result_t tutti_recv_tagged(tutti_comm_t comm, void* data, size_t count,
                                           tutti_data_type_t type, int from, int tag);
TUTTI_API tutti_result_t tutti_start_send_tagged(tutti_comm_t comm, const void* data, size_t count,
                                                 tutti_data_type_t type, int to, int tag,
                                                 tutti_work_t* work);
TUTTI_API tutti_result_t tutti_start_recv_tagged(tutti_comm_t comm, void* data, size_t count,
                                                 tutti_data_type_t type, int from, int tag,
                                                 tutti_work_t* work);

/* From whichever other rank sends first with that tag. */
TUTTI_API tutti_result_t tutti_recv_any_tagged(tutti_comm_t comm, void* data, size_t count,
                                               tutti_data_type_t type, int* from, int tag);
TUTTI_API tutti_result_t tutti_start_recv_any_tagged(tutti_comm_t comm, void* data, size_t count,
                                                     tutti_data_type_t type, int* from, int tag,
                                                     tutti_work_t* work);

#ifdef __cplusplus
}
#endif

/* NOLINTEND(modernize-*) */

#endif /* TUTTI_TUTTI_TAGS_H */
