/* Rows of a large table, fetched by number, scaled in float64 and cast. REAL = double. */

#include "vectors.h"

#define AHEAD 8 /* rows that are asked of the memory before their turn */

typedef float narrow __attribute__((vector_size(BYTES / 2), aligned(4)));

INLINE vec load_number(const void *from, int is_float) {
    return is_float ? __builtin_convertvector(*(const narrow *)from, vec) : load(from);
}
INLINE void store_number(void *to, int is_float, vec v) {
    if (is_float) *(narrow *)to = __builtin_convertvector(v, narrow);
    else store(to, v);
}
INLINE REAL number(const void *from, int is_float) { return is_float ? (REAL) * (const float *)from : *(const REAL *)from; }
INLINE void put(void *to, int is_float, REAL value) {
    if (is_float) *(float *)to = (float)value;
    else *(REAL *)to = value;
}

INLINE void scale_rows(const int from_float, const int to_float, long n_rows, long n_columns, const int64_t *index, const char *from,
                       long from_row, long from_column, const REAL *mean, const REAL *scale, char *to, long to_row) {
    const long in = from_float ? 4 : 8, out = to_float ? 4 : 8;
    for (long r = 0; r < n_rows; r++, to += to_row * out) {
        const char *row = from + index[r] * from_row * in;
        if (r + AHEAD < n_rows)
            for (long byte = 0; byte < n_columns * in; byte += 64) __builtin_prefetch(from + index[r + AHEAD] * from_row * in + byte);
        long j = 0;
        for (; from_column == 1 && j + LANES <= n_columns; j += LANES)
            store_number(to + j * out, to_float, (load_number(row + j * in, from_float) - load(mean + j)) / load(scale + j));
        for (; j < n_columns; j++)
            put(to + j * out, to_float, (number(row + j * from_column * in, from_float) - mean[j]) / scale[j]);
        put(to + n_columns * out, to_float, 1);
    }
}

/* to[r] = (from[index[r]] - mean) / scale and, in one column more, the constant 1; strides in numbers. */
void scaled_rows(long n_rows, long n_columns, const int64_t *index, long from_float, const void *from, long from_row, long from_column,
                 const REAL *mean, const REAL *scale, long to_float, void *to, long to_row) {
#define CASE(FROM, TO) scale_rows(FROM, TO, n_rows, n_columns, index, from, from_row, from_column, mean, scale, to, to_row)
    if (from_float && to_float) CASE(1, 1);
    else if (from_float) CASE(1, 0);
    else if (to_float) CASE(0, 1);
    else CASE(0, 0);
}
