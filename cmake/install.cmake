# Installing: the shared library, its headers, a CMake package (tutti::tutti) and a pkg-config file.
include(CMakePackageConfigHelpers)
install(TARGETS tutti EXPORT tutti-targets
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
set(TUTTI_NOT_INSTALLED)
if(TARGET simulated_gpus)  # A folder of its own: these go by the names of NVIDIA's and of ours.
  install(DIRECTORY ${PROJECT_BINARY_DIR}/simulated DESTINATION ${CMAKE_INSTALL_LIBDIR}/tutti
    COMPONENT nccl PATTERN simulated/cuda EXCLUDE PATTERN simulated/nccl EXCLUDE)
  install(DIRECTORY ${PROJECT_BINARY_DIR}/simulated-install/ DESTINATION ${CMAKE_INSTALL_LIBDIR}/tutti/simulated
    COMPONENT nccl USE_SOURCE_PERMISSIONS)
  include(cmake/nccl.cmake)
  tutti_install_nccl(${CMAKE_INSTALL_LIBDIR}/tutti/simulated -lcudart)
endif()
if(NOT TUTTI_CUDA AND NOT TARGET simulated_gpus)  # Headers of what no library here has.
  set(TUTTI_NOT_INSTALLED PATTERN cuda.h EXCLUDE PATTERN "device*" EXCLUDE PATTERN detail EXCLUDE)
endif()
install(DIRECTORY include/tutti DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h" PATTERN "*.cuh"
  PATTERN "*.def" ${TUTTI_NOT_INSTALLED})
install(EXPORT tutti-targets NAMESPACE tutti:: DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/tutti)
configure_package_config_file(cmake/tutti-config.cmake.in ${PROJECT_BINARY_DIR}/tutti-config.cmake
  INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/tutti)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/tutti-config-version.cmake COMPATIBILITY SameMinorVersion)
# Relative to itself, so that an installation can be moved, or installed with another --prefix.
file(RELATIVE_PATH TUTTI_PC_TO_PREFIX ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_PREFIX})
configure_file(cmake/tutti.pc.in ${PROJECT_BINARY_DIR}/tutti.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/tutti-config.cmake ${PROJECT_BINARY_DIR}/tutti-config-version.cmake
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/tutti)
install(FILES ${PROJECT_BINARY_DIR}/tutti.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
