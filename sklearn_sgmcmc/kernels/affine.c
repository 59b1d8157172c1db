/* One fully connected layer of many chains, and its pullback. Every chain has weights of its own and rows of its own.
 *
 * Compiled with REAL = float and REAL = double. A layer's block holds (n_in + 1, n_out) numbers, biases last. The output layer
 * (`last`) holds (n_out, n_in + 1), and its outputs and their derivatives are (n_out, n_rows) instead of (n_rows, n_out).
 *
 * Each sum runs over its index in increasing order, whatever stands beside it: no bit of a row or of a chain depends on the others.
 */

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
#define MOST_ROWS 6 /* six rows of two vectors: 12 of the 16 registers of AVX2 */

typedef REAL vec __attribute__((vector_size(BYTES), aligned(sizeof(REAL))));
typedef __typeof__((vec){0} < (vec){0}) mask;

static long padded(long n) { return (n + LANES - 1) / LANES * LANES; }

/* Zero where v < 0; NaN stays. */
static inline vec rectified(vec v) { return (vec)((mask)v & ~(v < (vec){0})); }

/* c[r, :] = start + sum_k a[r, k] b[k, :] for a few rows and one or two vectors of columns; start may be null. */
static inline __attribute__((always_inline)) void tile(const int rows, const int vectors, long depth, const REAL *a, long a_row,
                                                       long a_col, const REAL *b, long b_row, const REAL *start, int relu, REAL *c,
                                                       long c_row) {
    vec sum[MOST_ROWS][2];
    for (int r = 0; r < rows; r++)
        for (int v = 0; v < vectors; v++) sum[r][v] = start ? *(const vec *)(start + v * LANES) : (vec){0};
    for (long k = 0; k < depth; k++) {
        vec right[2];
        for (int v = 0; v < vectors; v++) right[v] = *(const vec *)(b + k * b_row + v * LANES);
        for (int r = 0; r < rows; r++) {
            const REAL left = a[r * a_row + k * a_col];
            for (int v = 0; v < vectors; v++) sum[r][v] += left * right[v];
        }
    }
    for (int r = 0; r < rows; r++)
        for (int v = 0; v < vectors; v++) *(vec *)(c + r * c_row + v * LANES) = relu ? rectified(sum[r][v]) : sum[r][v];
}

#define TILE(R, V) tile(R, V, depth, a, a_row, a_col, b, b_row, start, relu, c, c_row)
#define BY_ROWS(V)                      \
    switch (rows) {                     \
    case 6: TILE(6, V); break;          \
    case 5: TILE(5, V); break;          \
    case 4: TILE(4, V); break;          \
    case 3: TILE(3, V); break;          \
    case 2: TILE(2, V); break;          \
    default: TILE(1, V);                \
    }

static void some(long rows, int vectors, long depth, const REAL *a, long a_row, long a_col, const REAL *b, long b_row,
                 const REAL *start, int relu, REAL *c, long c_row) {
    if (vectors == 2) {
        BY_ROWS(2)
    } else {
        BY_ROWS(1)
    }
}

/* out[r * out_row + j * out_col] = start[j] + sum_k a[r, k] b[k, j]. The rows of b, and start, are padded to whole vectors; so are
 * those of out where out_row is. */
static void product(long n_rows, long n_columns, long depth, const REAL *a, long a_row, long a_col, const REAL *b, const REAL *start,
                    int relu, REAL *out, long out_row, long out_col) {
    const long b_row = padded(n_columns);
    REAL aside[MOST_ROWS * 2 * LANES];
    for (long j = 0; j < n_columns; j += 2 * LANES) {
        const int vectors = j + LANES < n_columns ? 2 : 1;
        const long width = n_columns - j < vectors * LANES ? n_columns - j : vectors * LANES;
        const int direct = out_col == 1 && (width == vectors * LANES || out_row == b_row);
        for (long r = 0; r < n_rows; r += MOST_ROWS) {
            const long rows = n_rows - r < MOST_ROWS ? n_rows - r : MOST_ROWS;
            REAL *to = out + r * out_row + j * out_col;
            some(rows, vectors, depth, a + r * a_row, a_row, a_col, b + j, b_row, start ? start + j : 0, relu, direct ? to : aside,
                 direct ? out_row : 2 * LANES);
            if (direct) continue;
            for (long i = 0; i < rows; i++, to += out_row) {
                const REAL *from = aside + 2 * i * LANES;
                if (out_col == 1)
                    memcpy(to, from, width * sizeof(REAL));
                else
                    for (long k = 0; k < width; k++) to[k * out_col] = from[k];
            }
        }
    }
}

/* to[r, j] = from[r * row + j * col]; each row is padded with zeros to whole vectors. */
static void pack(long n_rows, long n_columns, const REAL *from, long row, long col, REAL *to) {
    const long width = padded(n_columns);
    for (long r = 0; r < n_rows; r++, from += row, to += width) {
        if (col == 1)
            memcpy(to, from, n_columns * sizeof(REAL));
        else
            for (long j = 0; j < n_columns; j++) to[j] = from[j * col];
        for (long j = n_columns; j < width; j++) to[j] = 0;
    }
}

/* Numbers per vector: the rows of hidden layers are padded to a multiple of it. */
long lanes(void) { return LANES; }

/* The outputs z of a layer: (n_chains, n_rows, padded n_out), through a relu if asked, or (n_chains, n_out, n_rows) of the output
 * layer. The rows of x have unit stride. Returns 1 if memory is short. */
int affine(long n_chains, long n_rows, long n_in, long n_out, int last, int relu, const REAL *block, long block_chain, const REAL *x,
           long x_chain, long x_row, REAL *z) {
    const long width = padded(n_out);
    REAL *w = malloc((n_in + 1) * width * sizeof(REAL));
    if (!w) return 1;
    for (long c = 0; c < n_chains; c++, block += block_chain, x += x_chain, z += n_rows * (last ? n_out : width)) {
        pack(n_in + 1, n_out, block, last ? 1 : n_out, last ? n_in + 1 : 1, w);
        product(n_rows, n_out, n_in, x, x_row, 1, w, w + n_in * width, relu, z, last ? 1 : width, last ? n_rows : 1);
    }
    free(w);
    return 0;
}

/* The gradient block from dz, and dx unless it is null; dz is shaped like z, dx like the z of the layer below. Where h, shaped like
 * z, is given, dz is set to 0 where h is: a relu's derivative. Returns 1 if memory is short. */
int affine_pullback(long n_chains, long n_rows, long n_in, long n_out, int last, const REAL *block, long block_chain, const REAL *x,
                    long x_chain, long x_row, REAL *dz, const REAL *h, REAL *gradient, long gradient_chain, REAL *dx) {
    const long width = padded(n_out), width_in = padded(n_in);
    const long by_in = last ? 1 : n_out, by_out = last ? n_in + 1 : 1; /* strides within a block */
    REAL *w = malloc((n_out * width_in + width + (last ? n_rows * width : 0)) * sizeof(REAL));
    if (!w) return 1;
    REAL *total = w + n_out * width_in, *d = total + width;
    for (long c = 0; c < n_chains; c++, block += block_chain, x += x_chain, gradient += gradient_chain) {
        if (last)
            pack(n_rows, n_out, dz + c * n_rows * n_out, 1, n_rows, d);
        else
            d = dz + c * n_rows * width;
        if (h) {
            const REAL *active = h + c * n_rows * width;
            for (long i = 0; i < n_rows * width; i++) d[i] = active[i] > 0 ? d[i] : 0;
        }
        product(n_in, n_out, n_rows, x, 1, x_row, d, 0, 0, gradient, by_in, by_out);
        for (long j = 0; j < n_out; j += LANES) {
            vec sum = {0};
            for (long r = 0; r < n_rows; r++) sum += *(const vec *)(d + r * width + j);
            *(vec *)(total + j) = sum;
        }
        for (long j = 0; j < n_out; j++) gradient[n_in * by_in + j * by_out] = total[j];
        if (dx) {
            pack(n_out, n_in, block, by_out, by_in, w);
            product(n_rows, n_in, n_out, d, width, 1, w, 0, 0, dx + c * n_rows * width_in, width_in, 1);
        }
    }
    free(w);
    return 0;
}
