# The project's own build rules: one way to declare a library, a program and a test.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin)
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/lib)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()

# Equal numbers on every host: no fused multiply-add unless a kernel asks for it.
# -Wno-restrict: GCC 12 warns wrongly about std::string operator+ (bug 105651). -Wno-unknown-pragmas: clang does not know `#pragma GCC ivdep`.
add_compile_options(-Wall -Wextra -Werror $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict> $<$<CXX_COMPILER_ID:Clang>:-Wno-unknown-pragmas> -ffp-contract=off -ffile-prefix-map=${PROJECT_SOURCE_DIR}/=)
if(DCC_SANITIZE)
  add_compile_options(-fsanitize=${DCC_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${DCC_SANITIZE})
endif()
include_directories(${PROJECT_SOURCE_DIR} ${PROJECT_BINARY_DIR}/generated)

# ccache reads a precompiled header by its contents, if it may take for granted that headers do not ask for the time. What one checkout compiled serves
# another: paths below the checkout are relative to it.
find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros CCACHE_BASEDIR=${PROJECT_SOURCE_DIR} CCACHE_NOHASHDIR=1 ${CCACHE_PROGRAM})
endif()

# Headers of the standard library are parsed once for all libraries. gcc 12 then no longer knows that what it inlines from them is not ours, and warns wrongly
# (as bug 105651): the preset `bare` has those warnings, without precompiled headers.
set(dc_library_options "")
if(NOT CMAKE_DISABLE_PRECOMPILE_HEADERS)
  set(dc_library_options "$<$<CXX_COMPILER_ID:GNU>:-fpch-preprocess;-Wno-array-bounds;-Wno-stringop-overflow;-Wno-stringop-overread>")
endif()
add_library(dc_precompiled OBJECT ${PROJECT_SOURCE_DIR}/scripts/cmake/precompiled.cpp)
target_precompile_headers(dc_precompiled PRIVATE <algorithm> <array> <charconv> <cmath> <cstdint> <cstring> <functional> <map> <memory>
  <optional> <set> <span> <string> <string_view> <unordered_map> <utility> <vector>)
target_compile_options(dc_precompiled PRIVATE "${dc_library_options}")

# Files of a library are compiled a dozen at a time: together they take less than half of the time that they take alone, because most of it goes into the headers that
# they share. So two files of one library do not give a name of an anonymous namespace twice.
# dc_library(<name> SOURCES ... [DEPS public...] [PRIVATE_DEPS ...])
function(dc_library name)
  cmake_parse_arguments(arg "" "" "SOURCES;DEPS;PRIVATE_DEPS" ${ARGN})
  if(arg_SOURCES)
    add_library(${name} STATIC ${arg_SOURCES})
    target_link_libraries(${name} PUBLIC ${arg_DEPS} PRIVATE ${arg_PRIVATE_DEPS})
    target_precompile_headers(${name} REUSE_FROM dc_precompiled)
    target_compile_options(${name} PRIVATE "${dc_library_options}")
    set_target_properties(${name} PROPERTIES UNITY_BUILD ${DCC_UNITY_BUILD} UNITY_BUILD_BATCH_SIZE 12)
    if(DCC_UNITY_BUILD) # gcc takes such a file for a header, where members of a type that one file alone knows would be a fault
      target_compile_options(${name} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-Wno-subobject-linkage>)
    endif()
  else()
    add_library(${name} INTERFACE)
    target_link_libraries(${name} INTERFACE ${arg_DEPS})
  endif()
endfunction()

# dc_program(<name> SOURCES ... DEPS ...): a binary in build/<preset>/bin
function(dc_program name)
  cmake_parse_arguments(arg "" "" "SOURCES;DEPS" ${ARGN})
  add_executable(${name} ${arg_SOURCES})
  target_link_libraries(${name} PRIVATE ${arg_DEPS})
endfunction()

# What tests include is parsed once, and they are not optimised: that is half of the time of building them. Each includes what it uses all the same:
# clang-tidy reads it without what is precompiled (scripts/lint.sh).
if(DCC_WITH_TESTS)
  find_package(GTest REQUIRED)
  set(dc_test_options $<$<CONFIG:Release>:-O0> $<$<CXX_COMPILER_ID:GNU>:-fpch-preprocess>) # ccache needs the second one
  # Optimised, as under sanitizers, they get gcc 12's wrong warnings as well.
  list(APPEND dc_test_options "$<$<AND:$<NOT:$<CONFIG:Release>>,$<CXX_COMPILER_ID:GNU>>:-Wno-array-bounds;-Wno-stringop-overflow;-Wno-stringop-overread>")
  add_executable(dc_precompiled_test ${PROJECT_SOURCE_DIR}/scripts/cmake/precompiled.cpp)
  target_link_libraries(dc_precompiled_test PRIVATE GTest::gtest GTest::gmock)
  target_precompile_headers(dc_precompiled_test PRIVATE <gmock/gmock.h> <gtest/gtest.h> <algorithm> <array> <cmath> <cstdint> <filesystem> <fstream>
    <functional> <map> <memory> <optional> <random> <set> <span> <sstream> <string> <string_view> <thread> <unordered_map> <utility> <vector>)
  target_compile_options(dc_precompiled_test PRIVATE "${dc_test_options}")
  file(GENERATE OUTPUT ${PROJECT_BINARY_DIR}/generated/source_dir.cpp
    CONTENT "#include \"tests/source_dir.h\"\n\nconst char* const dc::kSourceDir = \"${PROJECT_SOURCE_DIR}\";\n")
  add_library(dc_source_dir STATIC ${PROJECT_BINARY_DIR}/generated/source_dir.cpp)
endif()

# Seconds that a test may take; what takes seconds takes minutes under a sanitizer, more if other programs run.
set(dc_test_limit 300)
if(DCC_SANITIZE)
  set(dc_test_limit 1500)
endif()

# dc_test(<name> SOURCES ... DEPS ... [LABELS unit|torch|multirank|gpu|slow]): a GoogleTest binary
function(dc_test name)
  if(NOT DCC_WITH_TESTS)
    return()
  endif()
  cmake_parse_arguments(arg "" "" "SOURCES;DEPS;LABELS" ${ARGN})
  if(NOT arg_LABELS)
    set(arg_LABELS unit)
  endif()
  add_executable(${name} ${arg_SOURCES})
  target_link_libraries(${name} PRIVATE ${arg_DEPS} dc_source_dir GTest::gtest GTest::gmock GTest::gtest_main)
  target_precompile_headers(${name} REUSE_FROM dc_precompiled_test)
  target_compile_options(${name} PRIVATE "${dc_test_options}")
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES LABELS "${arg_LABELS}" TIMEOUT ${dc_test_limit})
endfunction()
