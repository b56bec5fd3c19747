# check_bundle_size(BUNDLE SOURCE): fails if the bundle is larger than it may be, or if it does not
# fit beside the checkout SOURCE, which is sent with it: all files that git knows or does not ignore.
if(NOT MOST)
  set(MOST 40000000)  # Bytes of the bundle; a test asks for fewer.
endif()
function(check_bundle_size bundle source)
  set(travels 67108864)  # Bytes of the bundle and the checkout: 64 MiB.
  file(SIZE ${bundle} bytes)
  if(bytes GREATER MOST)
    file(REMOVE ${bundle})
    message(FATAL_ERROR "the bundle has ${bytes} bytes; wanted at most ${MOST}. "
      "The largest files of build/gpu_bundle say what has grown")
  endif()
  execute_process(
    COMMAND git -C ${source} -c core.quotepath=off ls-files --cached --others --exclude-standard
    OUTPUT_VARIABLE files COMMAND_ERROR_IS_FATAL ANY)
  string(REPLACE "\n" ";" files "${files}")
  set(all ${bytes})
  foreach(file IN LISTS files)
    if(file AND EXISTS ${source}/${file} AND NOT IS_DIRECTORY ${source}/${file})
      file(SIZE ${source}/${file} size)
      math(EXPR all "${all} + ${size}")
    endif()
  endforeach()
  if(all GREATER travels)
    file(REMOVE ${bundle})
    message(FATAL_ERROR "the bundle, ${bytes} bytes, and the checkout have ${all} bytes; "
      "wanted at most ${travels}. Git ignores what need not travel")
  endif()
  message(STATUS "The bundle has ${bytes} bytes, with the checkout ${all}")
endfunction()
