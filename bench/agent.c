/* The agent's program of the bench: answers a turn as `openclaw agent --json` does, and nothing else.

   As cheap as /bin/true, so that what is measured is mailboxd. The answer says when the program ran, in nanoseconds of
   the wall clock: "at 1766000000000000000". `--while FILE` before the other words: hangs for as long as FILE exists. */

#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    struct timespec now;
    char answer[1024];
    int length;

    clock_gettime(CLOCK_REALTIME, &now);
    if (argc > 2 && strcmp(argv[1], "--while") == 0)
        while (access(argv[2], F_OK) == 0)
            usleep(200000);
    length = snprintf(answer, sizeof answer,
        "{\"runId\":\"bench-%d-%lld%09ld\",\"status\":\"ok\",\"summary\":\"completed\",\"result\":{"
        "\"payloads\":[{\"text\":\"at %lld%09ld\",\"mediaUrl\":null}],"
        "\"meta\":{\"durationMs\":0,\"aborted\":false,\"stopReason\":\"stop\",\"agentMeta\":{\"sessionId\":\"bench\"}}}}\n",
        (int)getpid(), (long long)now.tv_sec, now.tv_nsec, (long long)now.tv_sec, now.tv_nsec);
    return write(1, answer, (size_t)length) == length ? 0 : 1;
}
