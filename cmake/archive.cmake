# tutti_archive(NAME ARCHIVE OPTIONS SHOWN OBJECT...): an archive with one object made of the objects, which
# shows of itself what SHOWN, options of objcopy, leaves: a program's own names are its own. OPTIONS are the
# linker's.
function(tutti_archive name archive options shown)
  set(object ${PROJECT_BINARY_DIR}/${name}_static.o)
  add_custom_command(OUTPUT ${archive}
    COMMAND ${CMAKE_CXX_COMPILER} -r -nostdlib -o ${object} ${ARGN} ${options}
    COMMAND ${CMAKE_OBJCOPY} ${shown} ${object}
    COMMAND ${CMAKE_COMMAND} -E rm -f ${archive}
    COMMAND ${CMAKE_AR} rcs ${archive} ${object}
    COMMAND ${CMAKE_COMMAND} -E rm -f ${object}
    DEPENDS ${name} ${ARGN} COMMAND_EXPAND_LISTS VERBATIM)
  add_custom_target(${name}_static ALL DEPENDS ${archive})
endfunction()
