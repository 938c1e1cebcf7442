# libnccl.so.2 (compat/nccl), over whatever CUDA runtime and kernels `parts` are: simulated ones in
# tests/nccl, real ones in the preset `cuda`.
include(${PROJECT_SOURCE_DIR}/cmake/archive.cmake)
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
set(TUTTI_NCCL_VERSION 2.30.7)

function(tutti_nccl_library target)
  add_library(${target} SHARED ${TUTTI_NCCL_SOURCES})
  target_link_libraries(${target} PRIVATE ${ARGN} tutti_objects tutti_flags)
  target_include_directories(${target} PUBLIC ${PROJECT_SOURCE_DIR}/compat/nccl)
  set_target_properties(${target} PROPERTIES OUTPUT_NAME nccl VERSION ${TUTTI_NCCL_VERSION} SOVERSION 2
    CXX_VISIBILITY_PRESET default LINKER_LANGUAGE CXX
    LINK_DEPENDS ${PROJECT_SOURCE_DIR}/compat/nccl/exports.map)
  target_link_options(${target} PRIVATE ${TUTTI_NCCL_TWINS}
    -Wl,--version-script=${PROJECT_SOURCE_DIR}/compat/nccl/exports.map)
endfunction()

# libnccl_static.a of `target`, in `folder`: of it, of the library and of the objects ARGN; it shows
# NCCL's functions alone.
function(tutti_nccl_archive target folder)
  set(shown --wildcard --keep-global-symbol=nccl* --keep-global-symbol=pnccl*)
  tutti_archive(${target} ${folder}/libnccl_static.a "${TUTTI_NCCL_TWINS}" "${shown}"
    $<TARGET_OBJECTS:${target}> $<TARGET_OBJECTS:tutti_objects> ${ARGN})
endfunction()

# Installs nccl.h, and into `folder`, where the library is, nccl.pc and nccl_static.pc. They are in
# none of pkg-config's own folders: whoever wants this NCCL names theirs. `libraries` are
# those that the archive needs besides Tutti's own.
function(tutti_install_nccl folder libraries)
  set(headers ${CMAKE_INSTALL_INCLUDEDIR}/tutti/nccl)
  install(FILES ${PROJECT_SOURCE_DIR}/compat/nccl/nccl.h ${PROJECT_SOURCE_DIR}/compat/nccl/nccl_functions.h
    DESTINATION ${headers} COMPONENT nccl)
  file(RELATIVE_PATH TUTTI_NCCL_HEADERS ${CMAKE_INSTALL_PREFIX}/${folder}/pkgconfig
    ${CMAKE_INSTALL_PREFIX}/${headers})
  set(needs -lspdlog -lfmt -lpugixml)
  foreach(one ${HWY_LIBRARIES} ${SODIUM_LIBRARIES} ${HWLOC_LIBRARIES})
    list(APPEND needs -l${one})
  endforeach()
  list(JOIN needs " " needs)
  set(TUTTI_NCCL_NEEDS "${libraries} ${needs} -lstdc++ -lm -lpthread -ldl -lrt")
  foreach(TUTTI_NCCL_NAME nccl nccl_static)
    set(TUTTI_NCCL_LIBS -lnccl)
    if(TUTTI_NCCL_NAME STREQUAL nccl_static)
      set(TUTTI_NCCL_LIBS "-lnccl_static ${TUTTI_NCCL_NEEDS}")
    endif()
    configure_file(${PROJECT_SOURCE_DIR}/cmake/nccl.pc.in ${PROJECT_BINARY_DIR}/${TUTTI_NCCL_NAME}.pc @ONLY)
    install(FILES ${PROJECT_BINARY_DIR}/${TUTTI_NCCL_NAME}.pc DESTINATION ${folder}/pkgconfig
      COMPONENT nccl)
  endforeach()
endfunction()
