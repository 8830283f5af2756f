# Adds the kernels and their hook to a ggml CPU backend target.
get_filename_component(SDGEN_RUNTIME ${CMAKE_CURRENT_LIST_DIR}/.. ABSOLUTE)

function(sdgen_add_to target)
  if(NOT TARGET sdgen)
    set(SDGEN_TESTS OFF)
    if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
      set(SDGEN_REQUIRE_AVX2 ON)
    endif()
    add_subdirectory(${SDGEN_RUNTIME} ${CMAKE_BINARY_DIR}/sdgen)
  endif()
  find_package(Threads REQUIRED)
  target_sources(${target} PRIVATE ${SDGEN_RUNTIME}/ggml/sdgen-ggml.c ${SDGEN_RUNTIME}/ggml/graph.c
                                   ${SDGEN_RUNTIME}/ggml/attention-pattern.c ${SDGEN_RUNTIME}/ggml/plan.c
                                   ${SDGEN_RUNTIME}/ggml/chains.c ${SDGEN_RUNTIME}/ggml/profile.c
                                   ${SDGEN_RUNTIME}/ggml/gate-pattern.c ${SDGEN_RUNTIME}/ggml/norm-pattern.c)
  target_include_directories(${target} PUBLIC ${SDGEN_RUNTIME}/ggml PRIVATE ${SDGEN_RUNTIME})
  target_compile_definitions(${target} PUBLIC GGML_USE_SDGEN)
  target_link_libraries(${target} PRIVATE sdgen Threads::Threads)
endfunction()
