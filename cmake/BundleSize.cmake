# Run by CPack: machines that a bundle is sent to take no more than this at once.
set(most 62914560)  # 60 MiB
foreach(bundle ${CPACK_PACKAGE_FILES})
  file(SIZE ${bundle} bytes)
  if(bytes GREATER most)
    message(FATAL_ERROR "${bundle} has ${bytes} bytes; wanted at most ${most}")
  endif()
endforeach()
