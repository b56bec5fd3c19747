# What the Debian package does otherwise than the bundle: it leaves out the component "check", and keeps its programs and
# libraries together, away from those of the system. Links in /usr/bin lead there.
if(CPACK_GENERATOR STREQUAL "DEB")
  set(CPACK_PACKAGING_INSTALL_PREFIX /usr/lib/trainyard)
  list(GET CPACK_INSTALL_CMAKE_PROJECTS 0 build)
  list(GET CPACK_INSTALL_CMAKE_PROJECTS 1 project)
  set(CPACK_INSTALL_CMAKE_PROJECTS ${build} ${project} program /)
  set(CPACK_PRE_BUILD_SCRIPTS ${CPACK_TRAINYARD_DEPLOY}/../cmake/DebianTree.cmake)
endif()
