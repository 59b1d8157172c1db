/* Products of small matrices of REAL. The rows of a matrix, unless said otherwise, are padded to whole vectors. */

#include "vectors.h"

#if defined(__AVX512F__)
#define TALLEST 8 /* rows of a tile: its 8 x 2 sums take half of the registers */
#else
#define TALLEST 6
#endif

/* Length of rows of n numbers: whole vectors, and no multiple of 256 bytes, of which a cache holds few. */
INLINE long padded(long n) {
    const long whole = (n + LANES - 1) / LANES * LANES;
    return whole * sizeof(REAL) % 256 ? whole : whole + LANES;
}

/* c[r, :] = (relu of) sum_k a[r, k] b[k, :], plus c[r, :] if asked to add, for a few rows and one or two vectors of columns.
 * Every sum runs over k in increasing order: its bits depend on nothing that stands beside it. */
INLINE void tile(const int rows, const int vectors, long depth, const REAL *a, long a_row, long a_col, const REAL *b, long b_row,
                 int add, int relu, REAL *c, long c_row) {
    vec sum[TALLEST][2];
    UNROLLED for (int r = 0; r < rows; r++)
        UNROLLED for (int v = 0; v < vectors; v++) sum[r][v] = add ? load(c + r * c_row + v * LANES) : all(0);
    for (long k = 0; k < depth; k++) {
        vec right[2];
        UNROLLED for (int v = 0; v < vectors; v++) right[v] = load(b + k * b_row + v * LANES);
        UNROLLED for (int r = 0; r < rows; r++)
            UNROLLED for (int v = 0; v < vectors; v++) sum[r][v] += a[r * a_row + k * a_col] * right[v];
    }
    UNROLLED for (int r = 0; r < rows; r++)
        UNROLLED for (int v = 0; v < vectors; v++) store(c + r * c_row + v * LANES, relu ? rectified(sum[r][v]) : sum[r][v]);
}

#define TILE(ROWS) \
    case ROWS: tile(ROWS, vectors, depth, a, a_row, a_col, b, b_row, add, relu, c, c_row); break;
INLINE void some_rows(long rows, const int vectors, long depth, const REAL *a, long a_row, long a_col, const REAL *b, long b_row,
                      int add, int relu, REAL *c, long c_row) {
    switch (rows) {
#if TALLEST > 6
        TILE(8) TILE(7)
#endif
        TILE(6) TILE(5) TILE(4) TILE(3) TILE(2) TILE(1)
    }
}

/* out = (relu of) a b, plus what is there if asked to add. a is (n_rows, depth) of any strides, one of which is 1; the rows of b and
 * out are padded. */
INLINE void products(long n_rows, long n_columns, long depth, const REAL *a, long a_row, long a_col, const REAL *b, long b_row,
                     int add, int relu, REAL *out, long out_row) {
    const long n_tiles = (n_rows + TALLEST - 1) / TALLEST;
    for (long j = 0; j < n_columns; j += 2 * LANES)
        for (long i = 0, r = 0, next; i < n_tiles; i++, r = next) {
            next = (i + 1) * n_rows / n_tiles; /* tiles of equal height */
            const REAL *left = a + r * a_row;
            REAL *to = out + r * out_row + j;
            if (j + LANES < n_columns)
                some_rows(next - r, 2, depth, left, a_row, a_col, b + j, b_row, add, relu, to, out_row);
            else
                some_rows(next - r, 1, depth, left, a_row, a_col, b + j, b_row, add, relu, to, out_row);
        }
}

/* out = (relu of) a b, plus what is there if asked to add; the rows of a have unit stride. */
static void product(long n_rows, long n_columns, long depth, const REAL *a, long a_row, const REAL *b, long b_row, int add, int relu,
                    REAL *out, long out_row) {
    products(n_rows, n_columns, depth, a, a_row, 1, b, b_row, add, relu, out, out_row);
}

/* out = a' b, plus what is there if asked to add; the rows of a, as many as the depth, have unit stride. */
static void transposed_product(long n_rows, long n_columns, long depth, const REAL *a, long a_row, const REAL *b, long b_row, int add,
                               REAL *out, long out_row) {
    products(n_rows, n_columns, depth, a, 1, a_row, b, b_row, add, 0, out, out_row);
}

/* Copy rows of any length below `end` into rows of whole vectors; what fills them up has no meaning. */
INLINE void copy_rows(long n_rows, long n_columns, const REAL *from, long from_row, const REAL *end, REAL *to, long to_row) {
    for (long r = 0; r < n_rows; r++, from += from_row, to += to_row) {
        if (from + (n_columns + LANES - 1) / LANES * LANES <= end)
            for (long j = 0; j < n_columns; j += LANES) store(to + j, load(from + j));
        else
            for (long j = 0; j < to_row; j++) to[j] = j < n_columns ? from[j] : 0;
    }
}

/* to[r, j] = from[j, r], the rows of `to` padded with zeros; in squares, so that both are read and written by lines. */
static void copy_transposed(long n_rows, long n_columns, const REAL *from, long from_row, REAL *to, long to_row) {
    const long side = 64 / sizeof(REAL);
    for (long R = 0; R < n_rows; R += side)
        for (long J = 0; J < n_columns; J += side)
            for (long r = R; r < R + side && r < n_rows; r++)
                for (long j = J; j < J + side && j < n_columns; j++) to[r * to_row + j] = from[j * from_row + r];
    for (long r = 0; r < n_rows; r++)
        for (long j = n_columns; j < to_row; j++) to[r * to_row + j] = 0;
}
