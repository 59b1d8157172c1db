/* Vectors of REAL (float or double), and elementary functions of them: series summed to the precision of REAL. NaN stays NaN. */

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#if defined(__AVX512F__)
#define BYTES 64
#elif defined(__AVX__)
#define BYTES 32
#else
#define BYTES 16
#endif
#define LANES ((long)(BYTES / sizeof(REAL)))
#define INLINE static inline __attribute__((always_inline))
#define UNROLLED _Pragma("GCC unroll 32")
#define IS_FLOAT (sizeof(REAL) == 4)

typedef REAL vec __attribute__((vector_size(BYTES), aligned(sizeof(REAL))));
typedef __typeof__((vec){0} < (vec){0}) mask; /* of integers: all bits set where true */

/* Four numbers, and four of the eight of two. */
typedef REAL quad __attribute__((vector_size(4 * sizeof(REAL)), aligned(sizeof(REAL))));
#if defined(__clang__)
#define FROM_TWO(A, B, ...) __builtin_shufflevector(A, B, __VA_ARGS__)
#else
typedef __typeof__(__builtin_choose_expr(IS_FLOAT, (int32_t)0, (int64_t)0)) choice __attribute__((vector_size(4 * sizeof(REAL))));
#define FROM_TWO(A, B, ...) __builtin_shuffle(A, B, (choice){__VA_ARGS__})
#endif

INLINE vec load(const REAL *from) { return *(const vec *)from; }
INLINE void store(REAL *to, vec v) { *(vec *)to = v; }
INLINE vec all(REAL value) { return value - (vec){0}; }
INLINE vec where(mask m, vec yes, vec no) { return (vec)((m & (mask)yes) | (~m & (mask)no)); }
INLINE vec root(vec v) {
    REAL of[BYTES / sizeof(REAL)];
    store(of, v);
    for (int i = 0; i < LANES; i++) of[i] = IS_FLOAT ? sqrtf(of[i]) : sqrt(of[i]);
    return load(of);
}
INLINE vec absolute(vec v) { return where(v < all(0), -v, v); }

/* v where v >= 0 or NaN, else 0. */
INLINE vec rectified(vec v) { return (vec)((mask)v & ~(v < (vec){0})); }

/* 2^n and (exp(x) - 2^n) / 2^n with n = round(x / log 2): x is held within what REAL can represent. */
INLINE vec powers_of_e(vec x, vec *excess) {
    const REAL magic = IS_FLOAT ? 0x1.8p23 : 0x1.8p52, largest = IS_FLOAT ? 88 : 709, least = IS_FLOAT ? -87 : -708;
    const REAL high = IS_FLOAT ? 0x1.62e4p-1 : 0x1.62e42feep-1, low = IS_FLOAT ? 0x1.7f7d1cp-20 : 0x1.a39ef35793c76p-33; /* log 2 */
    const int terms = IS_FLOAT ? 7 : 13, mantissa = IS_FLOAT ? 23 : 52, bias = IS_FLOAT ? 127 : 1023;
    x = where(x > all(largest), all(largest), where(x < all(least), all(least), x));
    const vec shifted = x * (REAL)1.4426950408889634 + magic, n = shifted - magic;
    const vec r = (x - n * high) - n * low;
    double coefficient = IS_FLOAT ? 1.0 / 5040 : 1.0 / 6227020800; /* 1 / terms! */
    vec sum = all((REAL)coefficient);
    UNROLLED for (int k = terms; k > 1; k--) sum = sum * r + (REAL)(coefficient *= k);
    *excess = sum * r;
    return (vec)(((mask)shifted - (mask)all(magic) + bias) << mantissa);
}

INLINE vec exponential(vec x) {
    vec excess;
    const vec power = powers_of_e(x, &excess);
    return power + power * excess;
}

/* exp(x) - 1, precise near 0. */
INLINE vec exponential_minus_1(vec x) {
    vec excess;
    const vec power = powers_of_e(x, &excess);
    return (power - 1) + power * excess;
}

/* 1 / (1 + exp(-x)), 0 where exp(-x) overflows: then x times it is 0 too, however large x is. */
INLINE vec logistic(vec x) { return where(x < all(IS_FLOAT ? -88 : -709), all(0), 1 / (1 + exponential(-x))); }

INLINE vec tangent(vec x) {
    const vec e = exponential_minus_1(-2 * absolute(x)), of_size = -e / (2 + e);
    return where(x < all(0), -of_size, of_size);
}

/* 2 artanh(s), |s| <= 1/3: log((1 + s) / (1 - s)). */
INLINE vec twice_artanh(vec s, const int terms) {
    const vec square = s * s;
    vec sum = all((REAL)1 / (2 * terms - 1));
    UNROLLED for (int k = terms - 1; k > 0; k--) sum = (REAL)1 / (2 * k - 1) + square * sum;
    return 2 * s * sum;
}

/* log u for u > 0 that is finite and no smaller than normal numbers are. */
INLINE vec logarithm(vec u) {
    const int mantissa = IS_FLOAT ? 23 : 52;
    const mask half = (mask)all((REAL)0.70710678118654752), of_u = (mask)u - half; /* exponents counted from sqrt(1/2) */
    const mask exponent = of_u >> mantissa;
    const vec m = (vec)((mask)u - (exponent << mantissa)); /* in sqrt(1/2) ... sqrt(2) */
    return __builtin_convertvector(exponent, vec) * (REAL)0.69314718055994531 + twice_artanh((m - 1) / (m + 1), IS_FLOAT ? 5 : 11) + (u - u);
}

/* log(1 + exp(x)). */
INLINE vec softplus(vec x) {
    const vec u = exponential(-absolute(x));
    return rectified(x) + twice_artanh(u / (2 + u), IS_FLOAT ? 8 : 17);
}

/* The standard normal distribution function; *density is its derivative. All terms of the series of erf have one sign. */
INLINE vec normal_cdf(vec x, vec *density) {
    const REAL largest = IS_FLOAT ? 5.6 : 8.5; /* beyond, it is 0 or 1, and its derivative 0: x times them may not be rounding */
    const int terms = IS_FLOAT ? 50 : 110;
    const mask below = x < all(-largest), above = x > all(largest);
    x = where(above, all(largest), where(below, all(-largest), x));
    const vec square = x * x, bell = exponential(-square / 2) * (REAL)0.3989422804014327;
    vec sum = all(1);
    for (int k = terms; k > 0; k--) sum = 1 + square * sum * ((REAL)1 / (2 * k + 1));
    *density = where(below | above, all(0), bell);
    return where(above, all(1), where(below, all(0), (REAL)0.5 + x * sum * bell));
}
