/* What compiled code may call without being told to. */
#include <stddef.h>

void *memcpy(void *restrict to, const void *restrict from, size_t size)
{
    char *t = to;
    for (const char *f = from, *end = f + size; f < end; f++)
        *t++ = *f;
    return to;
}

void *memmove(void *to, const void *from, size_t size)
{
    char *t = to;
    const char *f = from;
    if (t <= f)
        return memcpy(to, from, size);
    while (size-- > 0)
        t[size] = f[size];
    return to;
}

void *memset(void *to, int value, size_t size)
{
    for (char *t = to, *end = t + size; t < end; t++)
        *t = (char)value;
    return to;
}
