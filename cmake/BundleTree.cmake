# Installs all that BUILD has built for the bundle into TREE, programs stripped.
file(REMOVE_RECURSE ${TREE})
execute_process(COMMAND ${CMAKE_COMMAND} --install ${BUILD} --prefix ${TREE} --strip
  OUTPUT_QUIET COMMAND_ERROR_IS_FATAL ANY)
