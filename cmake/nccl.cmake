# libnccl.so.2 (compat/nccl), over whatever CUDA runtime and kernels `parts` are: simulated ones in
# tests/nccl, real ones in the preset `cuda`.
file(GLOB TUTTI_NCCL_SOURCES CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/compat/nccl/*.cc)

# Every function has a twin with a p before its name: another name for the same code.
file(READ ${PROJECT_SOURCE_DIR}/compat/nccl/nccl_functions.h text)
file(READ ${PROJECT_SOURCE_DIR}/compat/nccl/device_api.h more)
string(REGEX MATCHALL "[ (]nccl[A-Z][A-Za-z0-9]*[,(]" found "${text}${more}")
list(TRANSFORM found REPLACE "[ ,()]" "")
list(REMOVE_DUPLICATES found)
set(TUTTI_NCCL_TWINS)
foreach(name ${found})
  list(APPEND TUTTI_NCCL_TWINS "-Wl,--defsym=p${name}=${name}")
endforeach()

function(tutti_nccl_library target)
  add_library(${target} SHARED ${TUTTI_NCCL_SOURCES})
  target_link_libraries(${target} PRIVATE ${ARGN} tutti_objects tutti_flags)
  target_include_directories(${target} PUBLIC ${PROJECT_SOURCE_DIR}/compat/nccl)
  set_target_properties(${target} PROPERTIES OUTPUT_NAME nccl VERSION 2.30.7 SOVERSION 2
    CXX_VISIBILITY_PRESET default LINKER_LANGUAGE CXX
    LINK_DEPENDS ${PROJECT_SOURCE_DIR}/compat/nccl/exports.map)
  target_link_options(${target} PRIVATE ${TUTTI_NCCL_TWINS}
    -Wl,--version-script=${PROJECT_SOURCE_DIR}/compat/nccl/exports.map)
endfunction()
