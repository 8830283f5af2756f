#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* SOCK_CLOEXEC */
#endif
#include "program.h"

#include <ctype.h>
#include <errno.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LINE = 256 };

extern char **environ;

/* Ends it, and returns how it ended where it had done so by itself. */
static int end(struct program *program)
{
    int status = 0;
    if (program->pid) {
        kill(program->pid, SIGKILL); /* which does nothing to what has ended */
        while (waitpid(program->pid, &status, 0) < 0 && errno == EINTR)
            ;
        program->pid = 0;
    }
    return status;
}

__attribute__((format(printf, 2, 3))) static bool fails(struct program *program, const char *format, ...)
{
    int length = snprintf(program->fault, sizeof program->fault, "%s ", program->path);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(program->fault + length, sizeof program->fault - (size_t)length, format, arguments);
    va_end(arguments);
    return false;
}

/* It left off in the middle of what the line asks for. */
static bool fails_by_end(struct program *program, const char *line)
{
    const int status = end(program);
    if (WIFEXITED(status))
        return fails(program, "ended (exit status %d) when it was asked \"%s\"", WEXITSTATUS(status), line);
    return fails(program, "ended (%s) when it was asked \"%s\"", strsignal(WTERMSIG(status)), line);
}

static bool send_all(const struct program *program, const void *data, size_t size)
{
    const char *rest = data;
    while (size > 0) {
        ssize_t sent = send(program->socket, rest, size, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent <= 0)
            return false;
        rest += sent;
        size -= (size_t)sent;
    }
    return true;
}

static bool ask(const struct program *program, const char *line)
{
    return send_all(program, line, strlen(line)) && send_all(program, "\n", 1);
}

/* Reads an answer, without its end of line, and with a question mark for whatever cannot be shown. */
static bool read_answer(struct program *program, const char *line, char *answer)
{
    if (!fgets(answer, LINE, program->answers))
        return fails_by_end(program, line);
    answer[strcspn(answer, "\n")] = 0;
    for (; *answer; answer++)
        if (!isprint((unsigned char)*answer))
            *answer = '?';
    return true;
}

static bool expect(struct program *program, const char *line, const char *expected)
{
    char answer[LINE];
    if (!read_answer(program, line, answer))
        return false;
    return strcmp(answer, expected) == 0 || fails(program, "answered \"%s\", not \"%s\", to \"%s\"", answer, expected, line);
}

static bool spawn(struct program *program, int threads)
{
    int sockets[2];
    char count[16];
    snprintf(count, sizeof count, "%d", threads);
    char *arguments[] = {(char *)program->path, count, NULL};
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets) != 0)
        return fails(program, "cannot be talked to: %s", strerror(errno));
    program->socket = sockets[0];
    program->answers = fdopen(sockets[0], "r");
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, sockets[1], STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, sockets[1], STDOUT_FILENO);
    int error = posix_spawn(&program->pid, program->path, &actions, NULL, arguments, environ);
    posix_spawn_file_actions_destroy(&actions);
    close(sockets[1]);
    if (error)
        program->pid = 0;
    return error || !program->answers ? fails(program, "cannot be started: %s", strerror(error ? error : errno)) : true;
}

bool program_start(struct program *program, const char *path, const struct operation *operation, int threads)
{
    *program = (struct program){.path = path};
    if (!spawn(program, threads))
        return false;
    char line[LINE], expected[LINE] = "inputs";
    shape_numbers(operation->shape, line, sizeof line);
    for (int i = 0; i < MOST_INPUTS && operation->input_size[i]; i++)
        snprintf(expected + strlen(expected), sizeof expected - strlen(expected), " %zu", operation->input_size[i]);
    if (!ask(program, line))
        return fails_by_end(program, line);
    if (!expect(program, line, expected))
        return false;
    for (int i = 0; i < MOST_INPUTS && operation->input_size[i]; i++)
        if (!send_all(program, operation->memory[i], operation->input_size[i]))
            return fails_by_end(program, line);
    snprintf(expected, sizeof expected, "ready %zu", operation->result_size);
    return expect(program, line, expected);
}

bool program_run(struct program *program, int runs, double *seconds, double *cpu_seconds)
{
    char line[LINE], answer[LINE];
    long long clock = 0, cpu = 0;
    int length = 0;
    snprintf(line, sizeof line, "run %d", runs);
    if (!ask(program, line))
        return fails_by_end(program, line);
    if (!read_answer(program, line, answer))
        return false;
    if (sscanf(answer, "ran %lld %lld%n", &clock, &cpu, &length) != 2 || answer[length] || clock <= 0 || cpu < 0)
        return fails(program, "answered \"%s\", not \"ran\" and two numbers, to \"%s\"", answer, line);
    *seconds = 1e-9 * (double)clock / runs;
    *cpu_seconds = 1e-9 * (double)cpu / runs;
    return true;
}

bool program_result(struct program *program, struct operation *operation)
{
    static const char line[] = "result";
    if (!ask(program, line) || fread(operation->memory[RESULT], operation->result_size, 1, program->answers) != 1)
        return fails_by_end(program, line);
    return true;
}

void program_stop(struct program *program)
{
    end(program);
    if (program->answers)
        fclose(program->answers);
}
