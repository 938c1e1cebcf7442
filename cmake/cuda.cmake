# The kernels compiled by nvcc (TUTTI_CUDA, preset `cuda`), with ptxas' report beside each object: a
# test reads there whether registers were spilled. Plain commands instead of CMake's language CUDA,
# which checks its compiler with an architecture that new toolkits no longer have.
#
# Devices later than all of TUTTI_CUDA_ARCHITECTURES compile the PTX when they load kernels (some half a
# minute, kept in ~/.nv/ComputeCache). That is of the oldest architecture that has all that kernels use
# (multimem: 90), so that it fits most devices, and without what only one family has (100a, 100f), which
# runs nowhere else.
include(cmake/nvcc.cmake)
set(TUTTI_CUDA_PTX 90 CACHE STRING "Of which PTX is embedded, for devices that have none of these; empty: none")
if(NOT TUTTI_NVCC)
  message(STATUS "CUDA kernels: no nvcc; set TUTTI_NVCC. They are left out of this build")
  if(TUTTI_TESTS)
    add_test(NAME cuda/spills COMMAND ${CMAKE_COMMAND} -E echo "no nvcc: kernels were not compiled")
    set_tests_properties(cuda/spills PROPERTIES LABELS cuda SKIP_REGULAR_EXPRESSION "no nvcc")
  endif()
  return()
endif()

# Kernels for several architectures, types and operations are much alike: packed tightly they take a
# seventh of the room, and each file is unpacked when one of its kernels is first needed.
execute_process(COMMAND ${TUTTI_NVCC} --help OUTPUT_VARIABLE nvcc_help)
set(targets)
if(nvcc_help MATCHES "compress-mode")  # From CUDA 12.8 on.
  list(APPEND targets --compress-mode=size)
endif()
foreach(architecture ${TUTTI_CUDA_ARCHITECTURES})
  list(APPEND targets -gencode arch=compute_${architecture},code=sm_${architecture})
endforeach()
if(TUTTI_CUDA_PTX)
  list(APPEND targets -gencode arch=compute_${TUTTI_CUDA_PTX},code=compute_${TUTTI_CUDA_PTX})
endif()
file(GLOB kernels CONFIGURE_DEPENDS kernels/cuda/*.cu kernels/cuda/types/*.cu)
# An object of a source, in `out`.
function(tutti_nvcc_object source out)
  get_filename_component(name ${source} NAME_WE)
  set(object ${PROJECT_BINARY_DIR}/cuda/${name}.o)
  # The report is what nvcc prints.
  add_custom_command(OUTPUT ${object} ${object}.ptxas
    COMMAND ${CMAKE_COMMAND} -E make_directory ${PROJECT_BINARY_DIR}/cuda
    COMMAND bash -c "\"$@\" 2> \"$0\" || { cat \"$0\"; exit 1; }" ${object}.ptxas
      ${TUTTI_NVCC} ${TUTTI_NVCC_FLAGS} ${targets} -Xptxas -v
      -Xcompiler -fPIC,-fvisibility=hidden -MD -MF ${object}.d -c ${source} -o ${object}
    DEPENDS ${source} DEPFILE ${object}.d COMMENT "nvcc ${name}.cu" VERBATIM)
  set(${out} ${object} PARENT_SCOPE)
endfunction()
foreach(source ${kernels})
  tutti_nvcc_object(${source} object)
  list(APPEND objects ${object})
  list(APPEND reports ${object}.ptxas)
endforeach()
# Part of the library itself, with the runtime in it, so that it also loads where there is no driver.
find_library(TUTTI_CUDART cudart_static PATHS /usr/local/cuda/lib64 ENV CUDA_PATH PATH_SUFFIXES lib64)
find_path(TUTTI_CUDA_INCLUDE cuda_runtime.h PATHS /usr/local/cuda/include /opt/cuda/include
  ENV CUDA_PATH PATH_SUFFIXES include)
file(GLOB_RECURSE host_parts CONFIGURE_DEPENDS src/cuda/*.cc src/capi/cuda/*.cc)
add_library(tutti_cuda_objects OBJECT ${host_parts})
target_include_directories(tutti_cuda_objects SYSTEM PUBLIC ${TUTTI_CUDA_INCLUDE})
target_link_libraries(tutti_cuda_objects PRIVATE tutti_objects tutti_flags)
set_target_properties(tutti_cuda_objects PROPERTIES CXX_VISIBILITY_PRESET hidden
  VISIBILITY_INLINES_HIDDEN ON)
if(TUTTI_CUDART)
  set_property(SOURCE src/comm/messages.cc APPEND PROPERTY COMPILE_DEFINITIONS TUTTI_STATIC_CUDART)
  add_library(tutti_cuda INTERFACE)
  target_sources(tutti_cuda INTERFACE $<TARGET_OBJECTS:tutti_cuda_objects> ${objects})
  target_include_directories(tutti_cuda SYSTEM INTERFACE ${TUTTI_CUDA_INCLUDE})
  target_link_libraries(tutti_cuda INTERFACE ${TUTTI_CUDART} ${CMAKE_DL_LIBS} rt)
  target_link_libraries(tutti PRIVATE tutti_cuda)
else()
  message(STATUS "CUDA: no libcudart_static.a; the library is built without communicators of devices")
endif()
if(TUTTI_TESTS)
  list(TRANSFORM TUTTI_CUDA_ARCHITECTURES PREPEND sm_ OUTPUT_VARIABLE names)
  add_test(NAME cuda/spills
    COMMAND ${PROJECT_SOURCE_DIR}/scripts/ptxas-report ${names} -- ${reports}
      $<TARGET_FILE:tutti>)
  add_test(NAME cuda/loads_late COMMAND bash -c "! readelf -dW $<TARGET_FILE:tutti> | grep STATIC_TLS")
  set_tests_properties(cuda/spills cuda/loads_late PROPERTIES LABELS cuda)
endif()

# The tests of simulated devices, on those that there are.
if(TUTTI_TESTS AND TUTTI_CUDART)
  include(cmake/gpu_tests.cmake)
  tutti_gpu_tests(cuda tutti_cuda tutti_test_main)
  tutti_nvcc_object(${PROJECT_SOURCE_DIR}/tests/simt/program_kernels.cu program_kernels)
  foreach(name cuda_devices_test cuda_processes_test)
    target_sources(${name} PRIVATE ${program_kernels})
  endforeach()
  # How fast they are (scripts/gpu-check).
  tutti_nvcc_object(${PROJECT_SOURCE_DIR}/perf/cuda_facts.cu facts)
  foreach(name cuda_bench cuda_nccl cuda_facts)
    add_executable(${name} perf/${name}.cc)
    target_link_libraries(${name} PRIVATE tutti_cuda tutti_command_line tutti_internal
      nlohmann_json::nlohmann_json)
  endforeach()
  target_sources(cuda_facts PRIVATE ${facts})
  # A pack has libraries beside its programs (scripts/gpu-check --pack). An RPATH, not a RUNPATH, as what
  # these libraries need is there too.
  foreach(name cuda_devices_test cuda_processes_test cuda_bench cuda_nccl cuda_facts)
    set_target_properties(${name} PROPERTIES BUILD_RPATH "$ORIGIN/lib")
    target_link_options(${name} PRIVATE -Wl,--disable-new-dtags)
  endforeach()
  add_test(NAME cuda/devices COMMAND bash -c
    "nvidia-smi -L || { echo no GPU; exit 0; }; $<TARGET_FILE:cuda_devices_test> && exec $<TARGET_FILE:cuda_processes_test>")
  set_tests_properties(cuda/devices PROPERTIES LABELS cuda TIMEOUT 600
    SKIP_REGULAR_EXPRESSION "no GPU")
endif()

# The drop-in for NCCL.
if(TUTTI_CUDART)
  include(cmake/nccl.cmake)
  tutti_nccl_library(nccl tutti_cuda)
  if(NOT TUTTI_SANITIZE)
    tutti_nccl_archive(nccl ${PROJECT_BINARY_DIR} $<TARGET_OBJECTS:tutti_cuda_objects> ${objects})
  endif()
  if(TUTTI_INSTALL)
    install(TARGETS nccl LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/tutti COMPONENT nccl)
    if(NOT TUTTI_SANITIZE)
      install(FILES ${PROJECT_BINARY_DIR}/libnccl_static.a DESTINATION ${CMAKE_INSTALL_LIBDIR}/tutti
        COMPONENT nccl)
    endif()
    tutti_install_nccl(${CMAKE_INSTALL_LIBDIR}/tutti "-lcudart_static")
  endif()
endif()
