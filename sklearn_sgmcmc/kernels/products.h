/* Products of small matrices of REAL. The rows of a matrix, unless said otherwise, are padded to whole vectors. */

#include "vectors.h"

#if defined(__AVX512F__)
#define TALLEST 8 /* rows of a tile: its 8 x 2 sums take half of the registers */
#define ACROSS 4  /* most vectors of columns of a tile */
#else
#define TALLEST 6
#define ACROSS 2
#endif
#define PANEL 6  /* rows of a tile of more than two vectors of columns */
#define DEEP 144 /* most rows of b that are multiplied before the next panel's turn */

/* Length of rows of n numbers: whole vectors, and no multiple of 256 bytes, of which a cache holds few. */
INLINE long padded(long n) {
    const long whole = (n + LANES - 1) / LANES * LANES;
    return whole * sizeof(REAL) % 256 ? whole : whole + LANES;
}

/* c[r, :] = (relu of) sum_k a[r, k] b[k, :], plus c[r, :] if asked to add, for a few rows and vectors of columns.
 * Every sum runs over k in increasing order: its bits depend on nothing that stands beside it. */
INLINE void tile(const int rows, const int vectors, long depth, const REAL *a, long a_row, long a_col, const REAL *b, long b_row,
                 int add, int relu, REAL *c, long c_row) {
    vec sum[TALLEST][ACROSS];
    UNROLLED for (int r = 0; r < rows; r++)
        UNROLLED for (int v = 0; v < vectors; v++) sum[r][v] = add ? load(c + r * c_row + v * LANES) : all(0);
    for (long k = 0; k < depth; k++) {
        vec right[ACROSS];
        UNROLLED for (int v = 0; v < vectors; v++) right[v] = load(b + k * b_row + v * LANES);
        UNROLLED for (int r = 0; r < rows; r++)
            UNROLLED for (int v = 0; v < vectors; v++) sum[r][v] += a[r * a_row + k * a_col] * right[v];
    }
    UNROLLED for (int r = 0; r < rows; r++)
        UNROLLED for (int v = 0; v < vectors; v++) store(c + r * c_row + v * LANES, relu ? rectified(sum[r][v]) : sum[r][v]);
}

#define TILE(ROWS, MOST) \
    case ROWS: if (vectors <= MOST) tile(ROWS, vectors, depth, a, a_row, a_col, b, b_row, add, relu, c, c_row); break;
INLINE void some_rows(long rows, const int vectors, long depth, const REAL *a, long a_row, long a_col, const REAL *b, long b_row,
                      int add, int relu, REAL *c, long c_row) {
    switch (rows) {
#if TALLEST > 6
        TILE(8, 2) TILE(7, 2)
#endif
        TILE(6, 4) TILE(5, 4) TILE(4, 4) TILE(3, 4) TILE(2, 4) TILE(1, 4)
    }
}

#define TILES(VECTORS) \
    case VECTORS: some_rows(rows, VECTORS, depth, a, a_row, a_col, b, b_row, add, relu, c, c_row); break;
INLINE void some_columns(long rows, long vectors, long depth, const REAL *a, long a_row, long a_col, const REAL *b, long b_row, int add,
                         int relu, REAL *c, long c_row) {
    switch (vectors) {
#if ACROSS > 2
        TILES(4) TILES(3)
#endif
        TILES(2) TILES(1)
    }
}

/* The same where a has unit stride along its rows, and along its columns. All sizes of tiles are compiled once for each. */
static __attribute__((noinline)) void tile_by_rows(long rows, long vectors, long depth, const REAL *a, long a_row, const REAL *b,
                                                   long b_row, int add, int relu, REAL *c, long c_row) {
    some_columns(rows, vectors, depth, a, a_row, 1, b, b_row, add, relu, c, c_row);
}
static __attribute__((noinline)) void tile_by_columns(long rows, long vectors, long depth, const REAL *a, long a_col, const REAL *b,
                                                      long b_row, int add, int relu, REAL *c, long c_row) {
    some_columns(rows, vectors, depth, a, 1, a_col, b, b_row, add, relu, c, c_row);
}

/* Vectors of columns of a tile when so many are left. */
INLINE long across(long left) { return left <= ACROSS ? left : left < 2 * ACROSS - 1 ? (left + 1) / 2 : ACROSS; }

/* out = (relu of) a b, plus what is there if asked to add. a is (n_rows, depth) with one stride of 1; the rows of b and out are padded. Of b,
 * at most DEEP rows of a tile's columns are multiplied at a time: they stay in the nearest cache. */
INLINE void products(long n_rows, long n_columns, long depth, const REAL *a, long a_row, long a_col, const REAL *b, long b_row,
                     int add, int relu, REAL *out, long out_row) {
    const long n_vectors = (n_columns + LANES - 1) / LANES, n_parts = (depth + DEEP - 1) / DEEP;
    for (long part = 0; part < n_parts; part++) {
        const long k = part * depth / n_parts, some = (part + 1) * depth / n_parts - k;
        const int adding = add || k > 0, last = k + some == depth;
        for (long v = 0, vectors; v < n_vectors; v += vectors) {
            vectors = across(n_vectors - v);
            const long tallest = vectors > 2 ? PANEL : TALLEST, n_tiles = (n_rows + tallest - 1) / tallest;
            const REAL *right = b + k * b_row + v * LANES;
            for (long i = 0, r = 0, next; i < n_tiles; i++, r = next) {
                next = (i + 1) * n_rows / n_tiles; /* tiles of equal height */
                const REAL *left = a + r * a_row + k * a_col;
                REAL *to = out + r * out_row + v * LANES;
                if (a_col == 1)
                    tile_by_rows(next - r, vectors, some, left, a_row, right, b_row, adding, relu && last, to, out_row);
                else
                    tile_by_columns(next - r, vectors, some, left, a_col, right, b_row, adding, relu && last, to, out_row);
            }
        }
    }
}

/* out = (relu of) a b, plus what is there if asked to add; the rows of a have unit stride. */
static void product(long n_rows, long n_columns, long depth, const REAL *a, long a_row, const REAL *b, long b_row, int add, int relu,
                    REAL *out, long out_row) {
    products(n_rows, n_columns, depth, a, a_row, 1, b, b_row, add, relu, out, out_row);
}

/* Panels, of at most PANEL columns and about equal width, of a matrix with so many columns. */
INLINE long panels(long n_columns) { return (n_columns + PANEL - 1) / PANEL; }

/* Copy each panel of a (depth, n_columns) matrix that ends before `end` to where its rows lie close together. */
static void copy_panels(long depth, long n_columns, const REAL *from, const REAL *end, REAL *to) {
    for (long i = 0, j = 0, next; i < panels(n_columns); i++, j = next) {
        next = (i + 1) * n_columns / panels(n_columns);
        const REAL *row = from + j;
        for (long k = 0; k < depth; k++, row += n_columns, to += PANEL)
            if (row + PANEL <= end) memcpy(to, row, PANEL * sizeof(REAL));
            else memcpy(to, row, (next - j) * sizeof(REAL));
    }
}

/* out = (relu of) a' b, a being in panels. Rows of b and out hold a multiple of ACROSS vectors, of which the first n_columns numbers
 * have a meaning. Of b, some rows of ACROSS vectors stay in the nearest cache while all panels pass. */
static void panel_product(long n_rows, long n_columns, long depth, const REAL *a, const REAL *b, long row, int relu, REAL *out) {
    const long n_parts = (depth + DEEP - 1) / DEEP;
    for (long part = 0; part < n_parts; part++) {
        const long k = part * depth / n_parts, some = (part + 1) * depth / n_parts - k;
        for (long j = 0; j < n_columns; j += ACROSS * LANES)
            for (long i = 0, r = 0, next; i < panels(n_rows); i++, r = next) {
                next = (i + 1) * n_rows / panels(n_rows);
                tile_by_columns(next - r, ACROSS, some, a + (i * depth + k) * PANEL, PANEL, b + k * row + j, row, k > 0,
                                relu && k + some == depth, out + r * row + j, row);
            }
    }
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

/* to[r, j] = from[j, r] for a square of four by four. */
INLINE void transpose_square(const REAL *from, long from_row, REAL *to, long to_row) {
    const quad a = *(const quad *)from, b = *(const quad *)(from + from_row);
    const quad c = *(const quad *)(from + 2 * from_row), d = *(const quad *)(from + 3 * from_row);
    const quad ab = FROM_TWO(a, b, 0, 4, 1, 5), AB = FROM_TWO(a, b, 2, 6, 3, 7);
    const quad cd = FROM_TWO(c, d, 0, 4, 1, 5), CD = FROM_TWO(c, d, 2, 6, 3, 7);
    *(quad *)to = FROM_TWO(ab, cd, 0, 1, 4, 5);
    *(quad *)(to + to_row) = FROM_TWO(ab, cd, 2, 3, 6, 7);
    *(quad *)(to + 2 * to_row) = FROM_TWO(AB, CD, 0, 1, 4, 5);
    *(quad *)(to + 3 * to_row) = FROM_TWO(AB, CD, 2, 3, 6, 7);
}

/* to[r, j] = from[j, r], the rows of `to` padded with zeros. */
static void copy_transposed(long n_rows, long n_columns, const REAL *from, long from_row, REAL *to, long to_row) {
    for (long r = 0; r < n_rows; r += 4)
        for (long j = 0; j < n_columns; j += 4)
            if (r + 4 <= n_rows && j + 4 <= n_columns)
                transpose_square(from + j * from_row + r, from_row, to + r * to_row + j, to_row);
            else
                for (long s = r; s < r + 4 && s < n_rows; s++)
                    for (long i = j; i < j + 4 && i < n_columns; i++) to[s * to_row + i] = from[i * from_row + s];
    for (long r = 0; r < n_rows; r++)
        for (long j = n_columns; j < to_row; j++) to[r * to_row + j] = 0;
}
