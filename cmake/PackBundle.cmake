# Packs TREE as BUNDLE, and fails if the bundle is too large to be sent (BundleSize.cmake). A bundle
# that is too large is not left behind.
cmake_path(GET TREE PARENT_PATH parent)
cmake_path(GET TREE FILENAME name)
set(partial ${BUNDLE}.partial)
# Less than half of the processor time of xz -6. The programs have libraries in common: a dictionary
# that reaches from one to the next makes the bundle a quarter smaller.
set(xz "xz --x86 --lzma2=preset=3,dict=32MiB --block-size=96MiB -T2")
execute_process(
  COMMAND tar --create --sort=name --owner=0 --group=0 --numeric-owner --directory ${parent}
          "--use-compress-program=${xz}" --file ${partial} ${name}
  COMMAND_ERROR_IS_FATAL ANY)
file(REMOVE ${BUNDLE})
include(${CMAKE_CURRENT_LIST_DIR}/BundleSize.cmake)
check_bundle_size(${partial} ${SOURCE})
file(RENAME ${partial} ${BUNDLE})
