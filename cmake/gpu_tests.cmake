# tutti_gpu_tests(prefix libraries...): the tests of simulated devices as they run on GPUs, on those that
# there are: real ones (cmake/cuda.cmake), or, to be sure that they do that, one that is simulated (tests/simt).
function(tutti_gpu_tests prefix)
  set(sources mesh one_shot two_shot fused messages communicator/communicator communicator/communicator_fused
    communicator/communicator_program communicator/communicator_wire vector)
  list(TRANSFORM sources REPLACE "(.+)" "${PROJECT_SOURCE_DIR}/tests/simt/\\1_test.cc")
  add_executable(${prefix}_devices_test ${sources})
  # Another program: who has used CUDA can't fork.
  set(sources mesh_processes communicator/communicator_processes
    communicator/communicator_program_processes)
  list(TRANSFORM sources REPLACE "(.+)" "${PROJECT_SOURCE_DIR}/tests/simt/\\1_test.cc")
  add_executable(${prefix}_processes_test ${sources})
  foreach(name ${prefix}_devices_test ${prefix}_processes_test)
    target_compile_definitions(${name} PRIVATE TUTTI_GPU)
    target_link_libraries(${name} PRIVATE ${ARGN})
  endforeach()
endfunction()
