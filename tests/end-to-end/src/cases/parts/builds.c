/* Builds that can't take another's place, compiled with one of
 *   SAYS_NOTHING     waits for ever
 *   OTHER_RECORDS    says that it has another layout of records
 *   DIES_SOON        is a good build, SKINK, but killed shortly after it has become `tcp`
 *   NO_HEIR          is a good build that can't be the supervisor
 *   DIES_AS_HEIR     is a good build, but killed shortly after it has become the supervisor
 */
#include <signal.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

#ifdef OTHER_RECORDS
static const char born[] =
    "{\"report\":\"born\",\"release\":\"99.0.0\",\"interfaces\":{\"connection records\":99}}";
#endif

int main(int argc, char **argv)
{
#if defined(SAYS_NOTHING)
    for (;;)
        pause();
#elif defined(OTHER_RECORDS)
    /* The link to the supervisor. */
    if (write(3, born, strlen(born)) < 0)
        return 1;
    for (;;)
        pause();
#else
    /* A timer stays through execve(2). It is long enough to take over, and shorter than the trial. */
    struct itimerval soon = {{0, 0}, {0, 250000}};
#ifdef DIES_SOON
    int dies = argc > 2 && !strcmp(argv[2], "tcp");
#else
    int dies = argc > 1 && !strcmp(argv[1], "up");
#endif
#ifdef NO_HEIR
    if (dies)
        return 1;
#endif
    if (dies)
        setitimer(ITIMER_REAL, &soon, 0);
    argv[0] = "skink";
    execv(SKINK, argv);
    return 1;
#endif
}
