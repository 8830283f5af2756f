# Included by ggml's project (CMAKE_PROJECT_ggml_INCLUDE in scripts/build.py): adds the programs of bench/attention.py and of
# sdgen-bench's upstream forms.
function(add_bench_program name source)
    add_executable(${name} EXCLUDE_FROM_ALL ${CMAKE_CURRENT_FUNCTION_LIST_DIR}/${source})
    target_link_libraries(${name} PRIVATE ggml m)
    target_compile_options(${name} PRIVATE -Wall -Wextra -Werror)
    set_target_properties(${name} PROPERTIES C_STANDARD 17 C_STANDARD_REQUIRED ON C_EXTENSIONS ON
                                             RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
endfunction()

add_bench_program(bench-attention attention.c)
add_bench_program(bench-upstream upstream.c)
# Without it ggml starts and ends its threads in each run by itself.
find_package(OpenMP QUIET COMPONENTS C)
if(OpenMP_C_FOUND)
    target_link_libraries(bench-upstream PRIVATE OpenMP::OpenMP_C)
endif()
