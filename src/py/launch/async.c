/* Compiles kernels in the background: one thread takes jobs (core/codegen) in order. It never touches Python objects and
 * holds no lock while it compiles; callers poll a ticket. When the process ends, the thread is told to stop and joined; a forked child
 * starts without it.
 */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#include "py/launch/launch_priv.h"

struct launch_ticket {
    atomic_uint holders;
    atomic_bool done;
    pid_t process; /* the process that started it: a forked child has no thread to finish it */
    kin_jit_job *job;
    kin_compile_stats stats; /* of the job, once it is done */
    launch_ticket *next;
};

static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed; /* there is a new job, or the thread has to end */
    pthread_t thread;
    launch_ticket *first, *last;
    bool running, quit, prepared, busy;
} worker = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

launch_ticket *
launch_ticket_hold(launch_ticket *t)
{
    atomic_fetch_add(&t->holders, 1);
    return t;
}

void
launch_ticket_release(launch_ticket *t)
{
    if (t != NULL && atomic_fetch_sub(&t->holders, 1) == 1)
        free(t);
}

bool
launch_ticket_done(const launch_ticket *t)
{
    return atomic_load(&t->done) || t->process != getpid();
}

void
launch_ticket_stats(const launch_ticket *t, kin_compile_stats *stats)
{
    if (atomic_load(&t->done))
        *stats = t->stats;
}

static void *
work(void *unused)
{
    pthread_mutex_lock(&worker.lock);
    while (!worker.quit) {
        launch_ticket *t = worker.first;
        if (t == NULL) {
            pthread_cond_wait(&worker.changed, &worker.lock);
            continue;
        }
        worker.first = t->next;
        worker.busy = true;
        pthread_mutex_unlock(&worker.lock);
        kin_jit_job_run(t->job, &t->stats);
        atomic_store(&t->done, true);
        launch_ticket_release(t);
        pthread_mutex_lock(&worker.lock);
        worker.busy = false;
        pthread_cond_broadcast(&worker.changed);
    }
    pthread_mutex_unlock(&worker.lock);
    return NULL;
}

void
kin_launch_wait(void)
{
    pthread_mutex_lock(&worker.lock);
    while (worker.running && !worker.quit && (worker.busy || worker.first != NULL))
        pthread_cond_wait(&worker.changed, &worker.lock);
    pthread_mutex_unlock(&worker.lock);
}

/* -- beginning and end ------------------------------------------------------------------------------------------- */

static void
stop(void)
{
    pthread_mutex_lock(&worker.lock);
    bool running = worker.running;
    worker.quit = true;
    worker.running = false;
    pthread_cond_broadcast(&worker.changed);
    pthread_mutex_unlock(&worker.lock);
    if (!running)
        return;
    launch_jit_cancel();
    pthread_join(worker.thread, NULL);
}

static void
before_fork(void)
{
    pthread_mutex_lock(&worker.lock);
    launch_jit_lock(true);
}

static void
after_fork(void)
{
    launch_jit_lock(false);
    pthread_mutex_unlock(&worker.lock);
}

static void
in_child(void)
{
    worker.running = worker.busy = false;
    worker.first = worker.last = NULL;
    pthread_cond_init(&worker.changed, NULL);
    after_fork();
}

/* Called with the lock held. Signals are left to the program's own threads. */
static bool
start(void)
{
    sigset_t all, before;
    if (!worker.prepared) {
        if (pthread_atfork(before_fork, after_fork, in_child) != 0 || Py_AtExit(stop) != 0)
            return false;
        worker.prepared = true;
    }
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    worker.running = pthread_create(&worker.thread, NULL, work, NULL) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return worker.running;
}

launch_ticket *
launch_in_background(kin_jit_job *job)
{
    launch_ticket *t = malloc(sizeof *t);
    if (t == NULL)
        return NULL;
    *t = (launch_ticket){.holders = 2, .process = getpid(), .job = job};
    pthread_mutex_lock(&worker.lock);
    bool ok = !worker.quit && (worker.running || start());
    if (ok) {
        if (worker.first == NULL)
            worker.first = t;
        else
            worker.last->next = t;
        worker.last = t;
        pthread_cond_broadcast(&worker.changed);
    }
    pthread_mutex_unlock(&worker.lock);
    if (!ok) {
        free(t);
        return NULL;
    }
    return t;
}
