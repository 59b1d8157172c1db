/* Standard normal numbers by Box and Muller's method from xoshiro256++ (Blackman & Vigna 2021), eight generators side by side.
 *
 * Compiled with REAL = float and REAL = double. A state is 4 x 8 words of 64 bits. Every step of the generators gives eight words: two
 * steps make a radius and an angle each. float32 radii come from 39 random bits, so that the tails reach 7.4 standard deviations;
 * float64 ones from 52, and 8.5.
 */

#include "vectors.h"

enum { STREAMS = 8 };
typedef uint64_t words __attribute__((vector_size(STREAMS * 8), aligned(8)));
#define COUNT ((long)(STREAMS * 8 / LANES / sizeof(REAL))) /* vectors of REAL in as many bytes */

INLINE words rotated(words x, int k) { return (x << k) | (x >> (64 - k)); }

INLINE words next(words s[4]) {
    const words result = rotated(s[0] + s[3], 23) + s[0], t = s[1] << 17;
    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= t;
    s[3] = rotated(s[3], 45);
    return result;
}

/* The cosine and sine of quarters of a turn, -2 <= quarters <= 2. */
INLINE void cosine_and_sine(vec quarters, vec *cosine, vec *sine) {
    const REAL magic = IS_FLOAT ? 0x1.8p23 : 0x1.8p52;
    const int terms = IS_FLOAT ? 5 : 9;
    const vec shifted = quarters + magic, x = (quarters - (shifted - magic)) * (REAL)1.5707963267948966, square = x * x;
    const mask whole = (mask)shifted - (mask)all(magic), odd = -(whole & 1);
    vec c = all(1), s = all(1);
    UNROLLED for (int k = terms - 1; k > 0; k--) {
        c = 1 - square * c * ((REAL)1 / (2 * k * (2 * k - 1)));
        s = 1 - square * s * ((REAL)1 / (2 * k * (2 * k + 1)));
    }
    s *= x;
    const int to_sign = 8 * sizeof(REAL) - 2;
    *cosine = (vec)((mask)where(odd, s, c) ^ (((whole + 1) & 2) << to_sign));
    *sine = (vec)((mask)where(odd, c, s) ^ ((whole & 2) << to_sign));
}

/* Two vectors of normal numbers from two of random bits. */
INLINE void box_muller(mask a, mask b, vec *first, vec *second) {
    vec u, quarters; /* uniform in (0, 1] and in [-2, 2) */
    if (IS_FLOAT) {
        const vec more = (__builtin_convertvector(b & 255, vec) + (REAL)0.5) * (REAL)0x1p-8; /* bits that the angle does not use */
        u = (__builtin_convertvector(a & 0x7fffffff, vec) + more) * (REAL)0x1p-31;
        quarters = __builtin_convertvector(b & ~255, vec) * (REAL)0x1p-30;
    } else {
        const mask one = (mask)all(1), fraction = (mask)all(2) - one - 1;
        u = 2 - (vec)((a & fraction) | one);
        quarters = 4 * (vec)((b & fraction) | one) - 6;
    }
    const vec radius = root(-2 * logarithm(u));
    cosine_and_sine(quarters, first, second);
    *first *= radius;
    *second *= radius;
}

/* Fill `count` numbers, and move the state on. */
static void fill(uint64_t *state, long count, REAL *out) {
    enum { NUMBERS = 2 * STREAMS * 8 / sizeof(REAL) };
    words s[4];
    REAL aside[NUMBERS];
    memcpy(s, state, sizeof s);
    for (long i = 0; i < count; i += NUMBERS) {
        const words bits[2] = {next(s), next(s)};
        mask a[COUNT], b[COUNT];
        memcpy(a, &bits[0], sizeof a);
        memcpy(b, &bits[1], sizeof b);
        REAL *to = i + NUMBERS <= count ? out + i : aside;
        UNROLLED for (int v = 0; v < COUNT; v++) box_muller(a[v], b[v], (vec *)(to + v * LANES), (vec *)(to + NUMBERS / 2 + v * LANES));
        if (to == aside) memcpy(out + i, aside, (count - i) * sizeof(REAL));
    }
    memcpy(state, s, sizeof s);
}

/* Fill out (n_numbers), every `n_of_block` of them from the next state. */
void normals(long n_numbers, long n_of_block, uint64_t *const *states, REAL *out) {
    for (long first = 0; first < n_numbers; first += n_of_block, states++)
        fill(*states, n_numbers - first < n_of_block ? n_numbers - first : n_of_block, out + first);
}
