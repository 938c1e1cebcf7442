// File: transport/ucx/library.h: UCX's functions, of a library that is only loaded when it is used.
//
// Loading UCX changes a process: its constructors read the environment, catch signals and patch
// mmap. So it is not linked but opened when the first communicator over it is made, and then never
// closed. The build needs its headers; without them this folder is left out.
#pragma once
#include <ucp/api/ucp.h>

#include "tutti/result.h"

namespace tutti::ucx {

/// All that is called, under the names that it has there.
#define TUTTI_UCX_FUNCTIONS(one)                                                                  \
  one(ucp_get_version_string) one(ucp_init_version) one(ucp_cleanup) one(ucp_config_read)         \
      one(ucp_config_print) one(ucp_config_modify) one(ucp_config_release) one(ucp_worker_create) \
          one(ucp_worker_destroy) one(ucp_worker_get_address) one(ucp_worker_release_address)     \
              one(ucp_worker_get_efd) one(ucp_worker_arm) one(ucp_worker_signal)                  \
                  one(ucp_worker_progress) one(ucp_worker_set_am_recv_handler) one(ucp_ep_create) \
                      one(ucp_ep_close_nbx) one(ucp_ep_flush_nbx) one(ucp_ep_print_info)          \
                          one(ucp_am_send_nbx) one(ucp_am_recv_data_nbx) one(ucp_am_data_release) \
                              one(ucp_request_check_status) one(ucp_request_free)                 \
                                  one(ucs_status_string)

struct Library {
#define TUTTI_UCX_FUNCTION(name) decltype(&::name) name = nullptr;
  TUTTI_UCX_FUNCTIONS(TUTTI_UCX_FUNCTION)
#undef TUTTI_UCX_FUNCTION
};

/// Loads it the first time; from any thread. kUnsupported: it is not installed, or lacks something;
/// the error says what and the remedy.
Result<const Library*> library();

}  // namespace tutti::ucx
