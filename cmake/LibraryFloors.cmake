# Fails where a library is older than FLOORS (library_floors.txt) allows. Other systems than Debian 12 have other packages: there
# nothing is checked, and a line says so.
#
#   cmake -DFLOORS=FILE -P cmake/LibraryFloors.cmake
if(NOT FLOORS)
  set(FLOORS ${CMAKE_CURRENT_LIST_DIR}/library_floors.txt)
endif()
set(system "")
if(EXISTS /etc/os-release)
  file(STRINGS /etc/os-release system REGEX "^(ID|VERSION_ID)=")
endif()
if(NOT "${system}" MATCHES "ID=debian" OR NOT "${system}" MATCHES "VERSION_ID=\"12\"")
  message(STATUS "Trainyard: versions of libraries not checked, since this is not Debian 12")
  return()
endif()

file(STRINGS ${FLOORS} lines REGEX "^[^#]")
foreach(line IN LISTS lines)
  if(NOT line MATCHES "^([^ ]+) +([^ ]+) +(.+)$")
    message(FATAL_ERROR "${FLOORS}: wanted a package, a version and a reason, found '${line}'")
  endif()
  set(package ${CMAKE_MATCH_1})
  set(least ${CMAKE_MATCH_2})
  set(reason ${CMAKE_MATCH_3})
  execute_process(COMMAND dpkg-query -W -f "\${Version}" ${package} OUTPUT_VARIABLE found ERROR_QUIET RESULT_VARIABLE failed)
  if(failed)
    message(FATAL_ERROR "${package}: wanted at least ${least}, found none; scripts/install_deps.sh installs it")
  endif()
  execute_process(COMMAND dpkg --compare-versions ${found} ge ${least} RESULT_VARIABLE older)
  if(older)
    message(FATAL_ERROR "${package}: wanted at least ${least}, found ${found}, which is open to ${reason}. "
      "'apt-get install ${package}' brings the newest")
  endif()
endforeach()
