# A method that does not say who may call it (trainyard/v1/access.proto) ends the configuration, and so the build.
# Also a script: cmake -DPROTOS="a.proto;b.proto" -P MethodsHaveAccess.cmake
function(check_methods_have_access)
  foreach(proto ${ARGN})
    file(READ ${proto} text)
    string(REGEX REPLACE "//[^\n]*" "" text "${text}")
    string(REGEX MATCHALL "rpc +[A-Za-z]+" methods "${text}")
    foreach(method ${methods})
      if(NOT text MATCHES "${method} *\\([^)]*\\) *returns *\\([^)]*\\) *{[ \n]*option \\(access\\) = {least: ROLE_[A-Z]+")
        message(FATAL_ERROR "${proto}: ${method} has no `option (access) = {least: ROLE_...}`: say which role may call the method")
      endif()
    endforeach()
  endforeach()
endfunction()

if(CMAKE_SCRIPT_MODE_FILE)
  check_methods_have_access(${PROTOS})
endif()
