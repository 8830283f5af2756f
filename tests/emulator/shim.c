/* Loaded before Bochs, with its symbols visible to it: chooses the model of processor, which the package fixes at one, and
 * stands in for functions of glibc 2.38. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

const char *sdgen_module;  /* path of Bochs' library */
const char *sdgen_factory; /* symbol of the wanted model's function in it */

/* Bochs' function for the model that the package is built for: called through this name, so that this definition is taken. */
void *_Z23create_corei3_cnl_cpuidP8BX_CPU_C(void *cpu)
{
    void *module = dlopen(sdgen_module, RTLD_LAZY | RTLD_NOLOAD);
    void *(*factory)(void *) = module ? (void *(*)(void *))dlsym(module, sdgen_factory) : NULL;
    if (!factory) {
        fprintf(stderr, "emulator: %s has no %s\n", sdgen_module, sdgen_factory);
        abort();
    }
    return factory(cpu);
}

#ifdef OLD_GLIBC
unsigned long long __isoc23_strtoull(const char *text, char **end, int base)
{
    return strtoull(text, end, base);
}

int __isoc23_sscanf(const char *text, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int count = vsscanf(text, format, arguments);
    va_end(arguments);
    return count;
}
#endif
