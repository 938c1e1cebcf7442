# Installing, by components: `lib` (the shared library), `dev` (headers, the archive, a CMake package
# (tutti::tutti, tutti::tutti_static) and pkg-config files), `tools` (the commands) and `nccl` (libnccl,
# and simulated GPUs).
include(CMakePackageConfigHelpers)
include(cmake/archive.cmake)
install(TARGETS tutti EXPORT tutti-targets
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT lib NAMELINK_COMPONENT dev)
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
install(DIRECTORY include/tutti DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT dev
  FILES_MATCHING PATTERN "*.h" PATTERN "*.cuh" PATTERN "*.def" ${TUTTI_NOT_INSTALLED})
install(EXPORT tutti-targets NAMESPACE tutti:: DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/tutti COMPONENT dev)

# The archive, without what the CUDA toolkit adds. It shows of itself what the shared library does.
set(archive)
if(NOT TUTTI_SANITIZE AND NOT TUTTI_COVERAGE)
  set(archive ${PROJECT_BINARY_DIR}/libtutti.a)
  tutti_archive(tutti ${archive} "" --localize-hidden $<TARGET_OBJECTS:tutti_objects>)
  install(FILES ${archive} DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT dev)
endif()
set(TUTTI_STATIC_NEEDS fmt spdlog libhwy libsodium pugixml)
if(HWLOC_FOUND)
  list(APPEND TUTTI_STATIC_NEEDS hwloc)
endif()
list(JOIN TUTTI_STATIC_NEEDS " " TUTTI_STATIC_NEEDS)

set(package ${CMAKE_INSTALL_LIBDIR}/cmake/tutti)
configure_package_config_file(cmake/tutti-config.cmake.in ${PROJECT_BINARY_DIR}/tutti-config.cmake
  INSTALL_DESTINATION ${package} PATH_VARS CMAKE_INSTALL_LIBDIR CMAKE_INSTALL_INCLUDEDIR)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/tutti-config-version.cmake COMPATIBILITY SameMinorVersion)
# Relative to itself, so that an installation can be moved, or installed with another --prefix.
file(RELATIVE_PATH TUTTI_PC_TO_PREFIX ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_PREFIX})
set(files ${PROJECT_BINARY_DIR}/tutti.pc)
configure_file(cmake/tutti.pc.in ${PROJECT_BINARY_DIR}/tutti.pc @ONLY)
if(archive)
  configure_file(cmake/tutti_static.pc.in ${PROJECT_BINARY_DIR}/tutti_static.pc @ONLY)
  list(APPEND files ${PROJECT_BINARY_DIR}/tutti_static.pc)
endif()
install(FILES ${PROJECT_BINARY_DIR}/tutti-config.cmake ${PROJECT_BINARY_DIR}/tutti-config-version.cmake
  DESTINATION ${package} COMPONENT dev)
install(FILES ${files} DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT dev)
if(TUTTI_TOOLS)
  install(FILES README.md CHANGELOG.md LICENSE NOTICE DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT tools)
  install(DIRECTORY docs/ DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT tools
    FILES_MATCHING PATTERN "*.md" PATTERN "*.svg" PATTERN decisions EXCLUDE)
endif()

# All that an installation takes, and nothing else: `all` has the tests.
add_custom_target(installed DEPENDS tutti)
foreach(target tutti_static tutti_command sweeps simulated nccl_simulated_static nccl nccl_static)
  if(TARGET ${target})
    add_dependencies(installed ${target})
  endif()
endforeach()
if(PROJECT_IS_TOP_LEVEL)  # CPack takes one configuration; a project that contains Tutti has its own.
  include(cmake/packages.cmake)
endif()
