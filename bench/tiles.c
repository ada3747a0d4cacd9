// How fast a core's AMX tiles are from moment to moment: where another program uses the core's other hyper-thread, they are
// several times slower, while other instructions hardly change. Nanoseconds for four tile products, four tile loads, both, and
// eight fused multiply-adds of 16 floats, each in windows of some 10 ms; the fastest and the slowest window, and the median.
//
//   gcc -O3 -mavx512f -mamx-tile -mamx-int8 bench/tiles.c -o tiles && taskset -c CORE ./tiles [WINDOWS]
#define _GNU_SOURCE
#include <immintrin.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { CALLS = 200000, PAGES = 8, PAGE = 4096, TILE = 1024, MOST = 1000 };
static struct {
    unsigned char palette, start, reserved[14];
    unsigned short row_bytes[16];
    unsigned char rows[16];
} __attribute__((aligned(64))) shapes = {.palette = 1};
static char memory[PAGES * PAGE] __attribute__((aligned(PAGE)));

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return t.tv_sec * 1e9 + t.tv_nsec;
}

static void load(long i) {
    const char *from = memory + i % PAGES * PAGE;
    _tile_loadd(4, from, 64);
    _tile_loadd(5, from + TILE, 64);
    _tile_loadd(6, from + 2 * TILE, 64);
    _tile_loadd(7, from + 3 * TILE, 64);
}

static void multiply(void) {
    _tile_dpbusd(0, 4, 6);
    _tile_dpbusd(1, 4, 7);
    _tile_dpbusd(2, 5, 6);
    _tile_dpbusd(3, 5, 7);
}

static double window(int what) {
    double start = now();
    if (what < 3) {
        for (long i = 0; i < CALLS; i++) {
            if (what != 0) load(i);
            if (what != 1) multiply();
        }
        return (now() - start) / CALLS;
    }
    __m512 one = _mm512_set1_ps(1), sums[8];
    for (int i = 0; i < 8; i++) sums[i] = one;
    for (long n = 0; n < 10 * CALLS; n++)
        for (int i = 0; i < 8; i++) sums[i] = _mm512_fmadd_ps(sums[i], one, one);
    double took = (now() - start) / (10 * CALLS);
    volatile float keep = 0;
    for (int i = 0; i < 8; i++) keep += _mm512_reduce_add_ps(sums[i]);
    return took;
}

static int by_size(const void *a, const void *b) {
    return (*(double *)a > *(double *)b) - (*(double *)a < *(double *)b);
}

int main(int count, char **words) {
    int windows = count > 1 ? atoi(words[1]) : 30;
    if (windows < 1 || windows > MOST) return fprintf(stderr, "tiles: 1 to %d windows\n", MOST), 2;
    // Linux gives a program tiles only when it asks for them (ARCH_REQ_XCOMP_PERM, XTILEDATA).
    if (syscall(SYS_arch_prctl, 0x1023, 18)) return fprintf(stderr, "tiles: this machine has no AMX\n"), 2;
    for (int i = 0; i < 8; i++) shapes.row_bytes[i] = 64, shapes.rows[i] = 16;
    _tile_loadconfig(&shapes);
    memset(memory, 1, sizeof memory);
    static double took[4][MOST];
    for (int n = 0; n < windows; n++)
        for (int what = 0; what < 4; what++) took[what][n] = window(what);
    const char *names[] = {"4 products", "4 loads", "both", "8 multiply-adds"};
    for (int what = 0; what < 4; what++) {
        qsort(took[what], windows, sizeof(double), by_size);
        printf("%-16s %6.1f ns (%.1f-%.1f)\n", names[what], took[what][windows / 2], took[what][0], took[what][windows - 1]);
    }
}
