# Writes three identities, each as a C string: build_id.inc, a digest of every source that can change a plan; runtime_id.inc, of every source of dcrun;
# interface_id.inc, of every header that programs and plug-ins share. Run as: cmake -DROOT=... -DOUTPUT=folder -DVERSION=... -P build_id.cmake
function(digest_of result)
  list(SORT ARGN)
  set(all "")
  foreach(source ${ARGN})
    file(SHA256 ${ROOT}/${source} digest)
    string(APPEND all "${source} ${digest}\n")
  endforeach()
  string(SHA256 digest "${all}")
  string(SUBSTRING ${digest} 0 16 digest)
  set(${result} ${digest} PARENT_SCOPE)
endfunction()

function(write_if_changed file text)
  set(old "")
  if(EXISTS ${OUTPUT}/${file})
    file(READ ${OUTPUT}/${file} old)
  endif()
  if(NOT old STREQUAL text)
    file(WRITE ${OUTPUT}/${file} "${text}")
  endif()
endfunction()

file(GLOB_RECURSE sources RELATIVE ${ROOT} ${ROOT}/src/*.h ${ROOT}/src/*.cpp ${ROOT}/src/*.def ${ROOT}/schemas/*.fbs ${ROOT}/runtime/plan/*.h
     ${ROOT}/runtime/plan/*.cpp)
digest_of(digest ${sources})
write_if_changed(build_id.inc "\"dcc ${VERSION} (sources ${digest})\"\n")

file(GLOB_RECURSE sources RELATIVE ${ROOT} ${ROOT}/runtime/*.h ${ROOT}/runtime/*.cpp ${ROOT}/src/base/*.h ${ROOT}/src/base/*.cpp
     ${ROOT}/src/base/*.def ${ROOT}/schemas/*.fbs ${ROOT}/cli/dcrun*.h ${ROOT}/cli/dcrun*.cpp ${ROOT}/cli/dcrun*.def)
digest_of(digest ${sources})
write_if_changed(runtime_id.inc "\"dcrun ${VERSION} (sources ${digest})\"\n")

file(GLOB_RECURSE headers RELATIVE ${ROOT} ${ROOT}/runtime/*.h ${ROOT}/src/base/*.h)
digest_of(digest ${headers})
write_if_changed(interface_id.inc "\"interfaces ${digest}\"\n")
