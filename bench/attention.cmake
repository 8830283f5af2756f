# Included by ggml's project (CMAKE_PROJECT_ggml_INCLUDE in scripts/build.py): adds the program of bench/attention.py.
add_executable(bench-attention EXCLUDE_FROM_ALL ${CMAKE_CURRENT_LIST_DIR}/attention.c)
target_link_libraries(bench-attention PRIVATE ggml m)
target_compile_options(bench-attention PRIVATE -Wall -Wextra -Werror)
set_target_properties(bench-attention PROPERTIES C_STANDARD 17 C_STANDARD_REQUIRED ON C_EXTENSIONS ON
                                                 RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
