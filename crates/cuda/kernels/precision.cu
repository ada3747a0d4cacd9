// Precision: how activations are stored and converted, and the functions applied to them.
//
// These files are compiled for one precision at a time. ROWS says how activations are stored
// (0 float32, 1 float16, 2 bfloat16); all arithmetic outside products is float32.
// No header of the CUDA toolkit is used: NVRTC alone can compile this.

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

#define NONE 0xffffffffu
#define INFINITE __int_as_float(0x7f800000)

__device__ __forceinline__ float from_float16(u16 h) {
    float f;
    asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(h));
    return f;
}

__device__ __forceinline__ u16 to_float16(float f) {
    u16 h;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(f));
    return h;
}

__device__ __forceinline__ float from_bfloat16(u16 h) { return __uint_as_float((u32)h << 16); }

// Round to nearest, ties to even. Infinities stay; there are no NaNs here.
__device__ __forceinline__ u16 to_bfloat16(float f) {
    u32 bits = __float_as_uint(f);
    return (u16)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

#if ROWS == 0
typedef float act;
__device__ __forceinline__ float up(act v) { return v; }
__device__ __forceinline__ act down(float v) { return v; }
#elif ROWS == 1
typedef u16 act;
__device__ __forceinline__ float up(act v) { return from_float16(v); }
__device__ __forceinline__ act down(float v) { return to_float16(v); }
#else
typedef u16 act;
__device__ __forceinline__ float up(act v) { return from_bfloat16(v); }
__device__ __forceinline__ act down(float v) { return to_bfloat16(v); }
#endif

// Two adjacent activations of two bytes.
#if ROWS == 1
__device__ __forceinline__ u32 pair_of(float low, float high) {
    u32 pair;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
}
#elif ROWS == 2
__device__ __forceinline__ u32 pair_of(float low, float high) { return (u32)down(low) | (u32)down(high) << 16; }
#endif

// Eight adjacent activations, as float32.
struct Eight {
    float v[8];
};

// Eight adjacent activations as they are stored: half the registers while loads are in flight.
// Loads and stores need addresses aligned to their size.
#if ROWS == 0
struct Packed {
    float4 a, b;
};
#else
typedef uint4 Packed;
#endif

__device__ __forceinline__ Packed load_packed(const act *from) {
#if ROWS == 0
    return Packed{((const float4 *)from)[0], ((const float4 *)from)[1]};
#else
    return *(const uint4 *)from;
#endif
}

__device__ __forceinline__ Eight unpacked(const Packed &p) {
    Eight e;
#if ROWS == 0
    e.v[0] = p.a.x, e.v[1] = p.a.y, e.v[2] = p.a.z, e.v[3] = p.a.w;
    e.v[4] = p.b.x, e.v[5] = p.b.y, e.v[6] = p.b.z, e.v[7] = p.b.w;
#else
    u32 w[4] = {p.x, p.y, p.z, p.w};
#pragma unroll
    for (int i = 0; i < 4; i++) {
        e.v[2 * i] = up((u16)(w[i] & 0xffffu));
        e.v[2 * i + 1] = up((u16)(w[i] >> 16));
    }
#endif
    return e;
}

__device__ __forceinline__ Eight load8(const act *from) { return unpacked(load_packed(from)); }

__device__ __forceinline__ void store8(act *to, const Eight &e) {
#if ROWS == 0
    ((float4 *)to)[0] = make_float4(e.v[0], e.v[1], e.v[2], e.v[3]);
    ((float4 *)to)[1] = make_float4(e.v[4], e.v[5], e.v[6], e.v[7]);
#else
    u32 w[4];
#pragma unroll
    for (int i = 0; i < 4; i++) w[i] = pair_of(e.v[2 * i], e.v[2 * i + 1]);
    *(uint4 *)to = make_uint4(w[0], w[1], w[2], w[3]);
#endif
}

// Copies a row as one warp: eight activations a lane where the row is aligned.
__device__ __forceinline__ void copy_row(const act *__restrict__ from, act *__restrict__ to, u32 width, bool aligned) {
    u32 lane = threadIdx.x % 32;
    if (aligned && width % 8 == 0) {
#pragma unroll 4
        for (u32 i = lane * 8; i < width; i += 256) store8(to + i, load8(from + i));
    } else {
        for (u32 i = lane; i < width; i += 32) to[i] = from[i];
    }
}

__device__ __forceinline__ float power_of_two(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// exp; for rows of two bytes an approximation, whose relative error grows with x: some 1e-7 at -1, 1e-5 at -88.
__device__ __forceinline__ float quick_exp(float x) {
#if ROWS == 0
    return expf(x);
#else
    return power_of_two(1.44269504f * x);
#endif
}

// tanh; for rows of two bytes an approximation within 1e-6, in a quarter of the time.
__device__ __forceinline__ float quick_tanh(float x) {
#if ROWS == 0
    return tanhf(x);
#else
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(1.0f + power_of_two(2.88539008f * x)));
    return fmaf(-2.0f, y, 1.0f);
#endif
}

__device__ __forceinline__ float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

// The costlier activations, out of line: epilogues apply them in fully unrolled loops.
__device__ __noinline__ float activate_slowly(u32 kind, float x) {
    switch (kind) {
    case 2: return x * sigmoid(x);
    case 3: return 0.5f * x * (1.0f + erff(x * 0.70710678118654752f));
    case 4: return 0.5f * x * (1.0f + tanhf(0.79788456080286536f * (x + 0.044715f * x * x * x)));
    case 5: return x * sigmoid(1.702f * x);
    case 6: return sigmoid(x);
    case 7: return tanhf(x);
    default: return x;
    }
}

// In the order of the enum `Activation`.
__device__ __forceinline__ float activate(u32 kind, float x) {
    return kind == 0 ? x : kind == 1 ? fmaxf(x, 0.0f) : activate_slowly(kind, x);
}

// Programmatic dependent launch: every kernel begins with one of these. The next kernel may be launched
// while this one runs (its blocks wait in `after_previous`). Before `after_previous` a kernel must not
// read what another kernel wrote, and must not write.
__device__ __forceinline__ void let_next_begin() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

__device__ __forceinline__ void after_previous() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

__device__ __forceinline__ void begin() {
    let_next_begin();
    after_previous();
}

// Sums and maxima over a warp: every lane gets the result, in a fixed order.
__device__ __forceinline__ float warp_sum(float v) {
#pragma unroll
    for (int d = 16; d > 0; d >>= 1) v += __shfl_xor_sync(0xffffffffu, v, d);
    return v;
}

__device__ __forceinline__ float warp_max(float v) {
#pragma unroll
    for (int d = 16; d > 0; d >>= 1) v = fmaxf(v, __shfl_xor_sync(0xffffffffu, v, d));
    return v;
}
