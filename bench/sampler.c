// Notes what runs, some hundred times a second of a program's processor time (SIGPROF). Preloaded by bench/sample.py.
//
// At the end a line for every sample goes to the file that $SAMPLES names: the file that the instruction is of and its offset
// there; then the offset of the newest return address on the stack that lies in the program itself, or 0.
#define _GNU_SOURCE
#include <link.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <ucontext.h>
#include <unistd.h>

enum { MOST_SAMPLES = 1 << 20, MOST_RANGES = 256, STACK_WORDS = 1024 };
static struct { size_t at, own; } samples[MOST_SAMPLES];
static atomic_size_t count;
// Executable memory: the program's first.
static struct { size_t base, begin, end; const char *name; } ranges[MOST_RANGES];
static int range_count, own_ranges;

static int add_ranges(struct dl_phdr_info *module, size_t size, void *first) {
    (void)size;
    for (int i = 0; i < module->dlpi_phnum && range_count < MOST_RANGES; i++) {
        const ElfW(Phdr) *part = &module->dlpi_phdr[i];
        if (part->p_type != PT_LOAD || !(part->p_flags & PF_X)) continue;
        size_t begin = module->dlpi_addr + part->p_vaddr;
        ranges[range_count].base = module->dlpi_addr, ranges[range_count].begin = begin;
        ranges[range_count].end = begin + part->p_memsz, ranges[range_count++].name = module->dlpi_name;
    }
    return *(int *)first;
}

static int is_own(size_t at) {
    for (int i = 0; i < own_ranges; i++)
        if (at >= ranges[i].begin && at < ranges[i].end) return 1;
    return 0;
}

static void note(int number, siginfo_t *info, void *context) {
    (void)number, (void)info;
    const greg_t *registers = ((ucontext_t *)context)->uc_mcontext.gregs;
    size_t sample = atomic_fetch_add(&count, 1), own = registers[REG_RIP];
    if (sample >= MOST_SAMPLES) return;
    samples[sample].at = own;
    if (!is_own(own)) {
        // A copy by the kernel, which knows where the stack ends.
        size_t stack[STACK_WORDS];
        struct iovec to = {stack, sizeof stack}, from = {(void *)registers[REG_RSP], sizeof stack};
        ssize_t words = process_vm_readv(getpid(), &to, 1, &from, 1, 0) / (ssize_t)sizeof *stack, word = 0;
        while (word < words && !is_own(stack[word])) word++;
        own = word < words ? stack[word] : 0;
    }
    samples[sample].own = own;
}

__attribute__((constructor)) static void begin(void) {
    int first = 1;
    dl_iterate_phdr(add_ranges, &first);
    own_ranges = range_count;
    struct sigaction action = {.sa_sigaction = note, .sa_flags = SA_SIGINFO | SA_RESTART};
    sigaction(SIGPROF, &action, NULL);
    setitimer(ITIMER_PROF, &(struct itimerval){{0, 1000}, {0, 1000}}, NULL);
}

__attribute__((destructor)) static void end(void) {
    setitimer(ITIMER_PROF, &(struct itimerval){0}, NULL);
    FILE *file = getenv("SAMPLES") ? fopen(getenv("SAMPLES"), "w") : NULL;
    if (!file) return;
    int all = 0;
    range_count = 0;
    dl_iterate_phdr(add_ranges, &all);
    for (size_t i = 0; i < count && i < MOST_SAMPLES; i++) {
        size_t at = samples[i].at, own = samples[i].own;
        const char *name = "?";
        for (int n = 0; n < range_count; n++)
            if (at >= ranges[n].begin && at < ranges[n].end) name = n < own_ranges ? "program" : ranges[n].name, at -= ranges[n].base;
        fprintf(file, "%s\t%zx\t%zx\n", *name ? name : "?", at, own ? own - ranges[0].base : 0);
    }
    fclose(file);
}
