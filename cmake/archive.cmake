# tutti_archive(NAME ARCHIVE OPTIONS SHOWN OBJECT...): an archive with one object made of the objects, which
# shows of itself what SHOWN, options of objcopy, leaves: a program's own names are its own. OPTIONS are the
# linker's. The object has no groups of sections: the linker would take a program's copy for one of them, and
# drop names that are not shown with it. So what the compiler calls unique becomes weak: a program has it too.
function(tutti_archive name archive options shown)
  set(object ${PROJECT_BINARY_DIR}/${name}_static.o)
  add_custom_command(OUTPUT ${archive}
    COMMAND ${CMAKE_CXX_COMPILER} -r -nostdlib -Wl,--force-group-allocation -o ${object} ${ARGN} ${options}
    COMMAND sh -c "nm -g \"$0\" | awk '$2 == \"u\" { print $3 }' >\"$0.unique\"" ${object}
    COMMAND ${CMAKE_OBJCOPY} --weaken-symbols=${object}.unique ${object}
    COMMAND ${CMAKE_OBJCOPY} ${shown} ${object}
    COMMAND ${CMAKE_COMMAND} -E rm -f ${archive}
    COMMAND ${CMAKE_AR} rcs ${archive} ${object}
    COMMAND ${CMAKE_COMMAND} -E rm -f ${object} ${object}.unique
    DEPENDS ${name} ${ARGN} COMMAND_EXPAND_LISTS VERBATIM)
  add_custom_target(${name}_static ALL DEPENDS ${archive})
endfunction()
