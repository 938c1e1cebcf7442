# A folder like CUDA's for programs that are compiled for simulated GPUs (docs/simulated-gpus.md,
# "Kernels of your own"): bin/nvcc, the toolkit's headers, and links to the libraries; and beside it one
# like NCCL's. The same in the build and where it is installed, but for where Tutti's headers are.
set(parts ${PROJECT_SOURCE_DIR}/simt/nvcc)
# What a program's source includes: the language, and what its functions call.
set(TUTTI_SIMT_NVCC_INCLUDES language.h engine.h prim.h variables.h nvcc/prelude.h nvcc/launch.h
  nvcc/functions.h nvcc/atomics.h nvcc/ptx.h)

# `folder`: the simulated libraries' folder; `headers`: where include/tutti is, from its folder cuda.
function(tutti_simulated_nvcc folder headers)
  set(TUTTI_SIMT_NVCC_HEADERS ${headers})
  configure_file(${parts}/nvcc.in ${folder}/cuda/bin/nvcc @ONLY
    FILE_PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
  foreach(name merge options ptx source translate)
    configure_file(${parts}/${name}.py ${folder}/cuda/nvcc/${name}.py COPYONLY)
  endforeach()
  foreach(name ${TUTTI_SIMT_NVCC_INCLUDES})
    configure_file(${PROJECT_SOURCE_DIR}/simt/${name} ${folder}/cuda/nvcc/include/simt/${name} COPYONLY)
  endforeach()
  foreach(name nccl.h nccl_functions.h)
    configure_file(${PROJECT_SOURCE_DIR}/compat/nccl/${name} ${folder}/nccl/include/${name} COPYONLY)
  endforeach()
  file(MAKE_DIRECTORY ${folder}/cuda/lib64)
  foreach(name ${ARGN})
    file(CREATE_LINK ../../${name} ${folder}/cuda/lib64/${name} SYMBOLIC)
  endforeach()
  file(CREATE_LINK lib64 ${folder}/cuda/lib SYMBOLIC)
  file(CREATE_LINK ../cuda/lib64 ${folder}/nccl/lib SYMBOLIC)
  file(CREATE_LINK ${TUTTI_CUDA_INCLUDE} ${folder}/cuda/include SYMBOLIC)
endfunction()
