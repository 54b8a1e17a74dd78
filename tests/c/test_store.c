/* Kernels on disk: found again by another JIT and by another process, never when they are damaged or another processor's;
 * a folder that cannot be used costs nothing but itself. */
#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/pipeline/pipeline.h"
#include "check.h"
#include "run_program.h"

/* Two kernels that are equal, two that are not. */
static const char *const text = "%1 = input 0 : f32[64, 96]\n"
                                "%2 = input 1 : f32[7, 33]\n"
                                "%3 = input 2 : f32[7, 33]\n"
                                "%4 = exp %1 : f32[64, 96]\n"
                                "%5 = reduce_sum %4 dims=[1] : f32[64, 1]\n"
                                "%6 = tanh %2 : f32[7, 33]\n"
                                "%7 = tanh %3 : f32[7, 33]\n"
                                "%8 = input 3 : f32[50]\n"
                                "%9 = neg %8 : f32[50]\n"
                                "return %5 : {1, 1}, %6 : {33, 1}, %7 : {33, 1}, %9 : {1}\n";
static char base[] = "store_test_XXXXXX"; /* where the test runs */
static char folder[64];

static kin_jit *
open_jit(const char *cpu, uint64_t limit, unsigned threads)
{
    kin_text why = {0};
    kin_jit_options options = {.cpu = cpu, .cache_dir = folder, .cache_limit = limit, .threads = threads};
    kin_jit *jit = kin_jit_new(&options, &why);
    if (why.len)
        fprintf(stderr, "%s\n", why.at);
    kin_text_deinit(&why);
    return jit;
}

/* Compiles and runs the program; run_stats says where kernels came from. */
static bool
run_with(kin_jit *jit, const char *program)
{
    kin_text why = {0};
    kin_ir *ir = kin_ir_parse(program, &why);
    bool ok = ir && kin_ir_verify(ir, &why) && run_against_oracle(jit, ir, 1, &why);
    if (!ok)
        fprintf(stderr, "%s\n", why.at);
    kin_text_deinit(&why);
    kin_ir_free(ir);
    return ok;
}

static bool
run_anew(const char *cpu, unsigned threads)
{
    kin_jit *jit = open_jit(cpu, 0, threads);
    bool ok = run_with(jit, text);
    kin_jit_free(jit);
    return ok;
}

typedef void (*visit)(const char *path);

/* Calls the function with each file whose name ends so; how many there are. */
static int
each_file(const char *ending, visit fn)
{
    int n = 0;
    DIR *all = opendir(folder);
    for (struct dirent *e; all && (e = readdir(all)) != NULL;) {
        char path[800];
        snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
        DIR *d = e->d_name[0] == '.' ? NULL : opendir(path);
        for (struct dirent *f; d && (f = readdir(d)) != NULL;) {
            char file[1200];
            size_t len = strlen(f->d_name);
            if (len < strlen(ending) || strcmp(f->d_name + len - strlen(ending), ending) != 0 || f->d_name[0] == '.')
                continue;
            snprintf(file, sizeof file, "%s/%s", path, f->d_name);
            n++;
            if (fn)
                fn(file);
        }
        if (d)
            closedir(d);
    }
    if (all)
        closedir(all);
    return n;
}

static void
cut(const char *path)
{
    CHECK(truncate(path, 300) == 0);
}

/* One bit, in the object. */
static void
flip(const char *path)
{
    struct stat s;
    char c;
    int file = open(path, O_RDWR);
    CHECK(file >= 0 && fstat(file, &s) == 0 && pread(file, &c, 1, s.st_size - 700) == 1);
    c = (char)(c ^ 4);
    CHECK(pwrite(file, &c, 1, s.st_size - 700) == 1);
    close(file);
}

static void
drop(const char *path)
{
    unlink(path);
}

static void
make_old(const char *path)
{
    CHECK(utimensat(AT_FDCWD, path, (struct timespec[2]){{1000, 0}, {1000, 0}}, 0) == 0);
}

static void
check_round_trip(void)
{
    CHECK(run_anew(NULL, 1));
    CHECK_EQ(run_stats.kernels, 4);
    CHECK_EQ(run_stats.compiled, 3);
    CHECK_EQ(run_stats.from_memory, 1);
    CHECK_EQ(run_stats.disk[KIN_STORE_NOTHING], 3);
    CHECK_EQ(each_file(".kernel", NULL), 3);
    CHECK_EQ(each_file(".txt", NULL), 3);
    CHECK(run_anew(NULL, 1));
    CHECK_EQ(run_stats.compiled, 0);
    CHECK_EQ(run_stats.from_disk, 3);
    CHECK(run_stats.llvm_ns == 0);
    struct stat s;
    CHECK(stat(folder, &s) == 0 && (s.st_mode & 077) == 0);
}

static void
check_damage(void)
{
    visit damages[] = {cut, flip};
    for (int i = 0; i < 2; i++) {
        each_file(".kernel", damages[i]);
        CHECK(run_anew(NULL, 1));
        CHECK_EQ(run_stats.disk[KIN_STORE_DAMAGED], 3);
        CHECK_EQ(run_stats.compiled, 3);
        CHECK(run_anew(NULL, 1));
        CHECK_EQ(run_stats.from_disk, 3);
    }
    each_file(".txt", drop); /* they are for people */
    CHECK(run_anew(NULL, 1));
    CHECK_EQ(run_stats.from_disk, 3);
}

static void
check_other_processor(void)
{
#if defined(__x86_64__)
    CHECK(run_anew("x86-64", 1));
#else
    CHECK(run_anew("cortex-a72", 1));
#endif
    CHECK_EQ(run_stats.compiled, 3);
    CHECK_EQ(run_stats.disk[KIN_STORE_OTHER_CPU], 3);
    CHECK_EQ(each_file(".kernel", NULL), 6);
    CHECK(run_anew(NULL, 1));
    CHECK_EQ(run_stats.from_disk, 3);
}

static void
check_folders(void)
{
    kin_text why = {0};
    kin_jit *jit = kin_jit_new(NULL, &why);
    char link[80];
    snprintf(link, sizeof link, "%s/open", base);
    CHECK(mkdir(link, 0700) == 0 && chmod(link, 0777) == 0);
    CHECK(!kin_jit_set_cache(jit, link, 0, &why));
    CHECK(why.len && strstr(why.at, "others may write"));
    kin_text_clear(&why);
    CHECK(!kin_jit_set_cache(jit, "/proc/nowhere", 0, &why) && why.len);
    CHECK(run_with(jit, text));
    CHECK_EQ(run_stats.compiled, 3);
    CHECK_EQ(run_stats.disk[KIN_STORE_NOTHING], 0);
    CHECK(kin_jit_set_cache(jit, NULL, 0, &why));
    kin_jit_free(jit);
    kin_text_deinit(&why);
    rmdir(link);
}

/* Nothing can be written, whoever we are: there is a file where a kernel's folder ought to be. */
static void
check_unwritable(void)
{
    each_file(".kernel", drop);
    each_file(".txt", drop);
    DIR *all = opendir(folder);
    for (struct dirent *e; all && (e = readdir(all)) != NULL;) {
        char path[800];
        snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
        if (e->d_name[0] != '.' && CHECK(rmdir(path) == 0))
            close(open(path, O_CREAT | O_WRONLY, 0600));
    }
    closedir(all);
    CHECK(run_anew(NULL, 1));
    CHECK_EQ(run_stats.compiled, 3);
    CHECK(strstr(run_stats.trouble, "cannot be written") != NULL);
}

/* The ones used longest ago go. */
static void
check_limit(void)
{
    char program[200];
    each_file(".kernel", make_old);
    kin_jit *jit = open_jit(NULL, 100000, 1);
    for (int i = 1; i <= 60; i++) {
        snprintf(program, sizeof program, "%%1 = input 0 : f32[4, %d]\n%%2 = reduce_max %%1 dims=[1] : f32[4, 1]\nreturn %%2 : {1, 1}\n",
                 20 + i);
        CHECK(run_with(jit, program));
        CHECK_EQ(run_stats.compiled, 1);
    }
    kin_jit_free(jit);
    int left = each_file(".kernel", NULL);
    CHECK(left > 5 && left < 50);
    jit = open_jit(NULL, 0, 1);
    CHECK(run_with(jit, program));
    CHECK_EQ(run_stats.from_disk, 1);
    kin_jit_free(jit);
}

/* Several processes that find nothing, all at once; each with several threads. */
static void
check_processes(void)
{
    pid_t children[4];
    for (int i = 0; i < 4; i++) {
        children[i] = fork();
        if (children[i] == 0)
            _exit(run_anew(NULL, 3) && check_failed == 0 ? 0 : 1);
    }
    for (int i = 0; i < 4; i++) {
        int status = -1;
        CHECK(waitpid(children[i], &status, 0) == children[i] && status == 0);
    }
    CHECK(run_anew(NULL, 1));
    CHECK_EQ(run_stats.from_disk, 3);
}

static void
check_faults(void)
{
    kin_text why = {0};
    kin_program *p = NULL;
    kin_jit *jit = kin_jit_new(NULL, &why);
    kin_ir *ir = kin_ir_parse(text, &why);
    kin_jit_set_fault(jit, KIN_FAULT_LLVM);
    CHECK(kin_pipeline_compile(jit, NULL, ir, &p, NULL, &why) == KIN_BREAK && p == NULL && strstr(why.at, "LLVM"));
    kin_jit_set_fault(jit, KIN_FAULT_MEMORY);
    CHECK(kin_pipeline_compile(jit, NULL, ir, &p, NULL, &why) == KIN_NOMEM && p == NULL);
    kin_jit_set_fault(jit, KIN_FAULT_NONE);
    CHECK(run_with(jit, text));
    CHECK_EQ(run_stats.compiled, 3);
    kin_ir_free(ir);
    kin_jit_free(jit);
    kin_text_deinit(&why);
}

/* LLVM is not used again where it had no memory. */
static int
lose_memory(void)
{
    kin_text why = {0};
    kin_program *p = NULL;
    kin_jit *jit = kin_jit_new(NULL, &why);
    kin_ir *ir = kin_ir_parse(text, &why);
    kin_jit_set_fault(jit, KIN_FAULT_LLVM_MEMORY);
    bool ok = kin_pipeline_compile(jit, NULL, ir, &p, NULL, &why) == KIN_BREAK && p == NULL && strstr(why.at, "no memory");
    kin_jit_set_fault(jit, KIN_FAULT_NONE);
    kin_text_clear(&why);
    ok = ok && kin_pipeline_compile(jit, NULL, ir, &p, NULL, &why) == KIN_BREAK && strstr(why.at, "before");
    kin_ir_free(ir);
    kin_jit_free(jit);
    kin_text_deinit(&why);
    return ok ? 0 : 1;
}

static int
fail_fatally(void)
{
    kin_text why = {0};
    kin_program *p = NULL;
    kin_jit *jit = kin_jit_new(&(kin_jit_options){.threads = 3}, &why);
    kin_ir *ir = kin_ir_parse(text, &why);
    kin_jit_set_fault(jit, KIN_FAULT_FATAL);
    bool ok = kin_pipeline_compile(jit, NULL, ir, &p, NULL, &why) == KIN_BREAK && p == NULL && strstr(why.at, "fatally");
    kin_jit_set_fault(jit, KIN_FAULT_NONE);
    ok = ok && run_with(jit, text) && run_stats.compiled == 3;
    kin_ir_free(ir);
    kin_jit_free(jit);
    kin_text_deinit(&why);
    return ok ? 0 : 1;
}

/* What makes LLVM end the process; in children, as LLVM's memory is lost then. */
static void
check_fatal(void)
{
    static int (*const tries[])(void) = {fail_fatally, lose_memory};
#ifdef __SANITIZE_ADDRESS__ /* which has an end of its own for a lack of memory */
    unsigned n = 1;
#else
    unsigned n = 2;
#endif
    for (unsigned i = 0; i < n; i++) {
        pid_t child = fork();
        if (child == 0)
            _exit(tries[i]());
        int status = -1;
        CHECK(waitpid(child, &status, 0) == child && status == 0);
    }
}

static void
use_folder(const char *name)
{
    snprintf(folder, sizeof folder, "%s/%s", base, name);
}

int
main(void)
{
    kin_jit *jit = kin_jit_new(NULL, &(kin_text){0});
    if (jit == NULL || mkdtemp(base) == NULL) {
        printf("store: skipped\n");
        return 77;
    }
    kin_jit_free(jit);
    use_folder("one/deep");
    check_round_trip();
    check_damage();
    check_other_processor();
    check_folders();
    check_unwritable();
    use_folder("limit");
    check_limit();
    use_folder("processes");
    check_processes();
    check_faults();
    check_fatal();
    char remove[80];
    snprintf(remove, sizeof remove, "rm -r %s", base);
    CHECK(system(remove) == 0);
    return check_report("store");
}
