/* What predictions need of many draws: class probabilities, and means and variances over draws. REAL = double. */

#include "vectors.h"

INLINE vec load_some(const REAL *from, long n) {
    if (n >= LANES) return load(from);
    vec v = all(0);
    memcpy(&v, from, n * sizeof(REAL));
    return v;
}

INLINE void store_some(REAL *to, vec v, long n) {
    if (n >= LANES) store(to, v);
    else memcpy(to, &v, n * sizeof(REAL));
}

/* p = softmax of z over classes, both (n_draws, n_classes, n_rows). */
void softmax(long n_draws, long n_classes, long n_rows, const REAL *z, REAL *p) {
    for (long d = 0; d < n_draws; d++, z += n_classes * n_rows, p += n_classes * n_rows)
        for (long r = 0; r < n_rows; r += LANES) {
            vec largest = load_some(z + r, n_rows - r), total = all(0);
            for (long k = 1; k < n_classes; k++) {
                const vec v = load_some(z + k * n_rows + r, n_rows - r);
                largest = where(v > largest, v, largest);
            }
            for (long k = 0; k < n_classes; k++) {
                const vec e = exponential(load_some(z + k * n_rows + r, n_rows - r) - largest);
                store_some(p + k * n_rows + r, e, n_rows - r);
                total += e;
            }
            const vec share = 1 / total;
            for (long k = 0; k < n_classes; k++)
                store_some(p + k * n_rows + r, load_some(p + k * n_rows + r, n_rows - r) * share, n_rows - r);
        }
}

/* Add values (n_draws, n) to the means (n) and the sums of squared deviations (n) of `count` draws before them (Welford 1962): draw after
 * draw, so that no bit depends on how draws are divided among calls. */
void add_draws(long count, long n_draws, long n, const REAL *values, REAL *mean, REAL *squares) {
    for (long d = 0; d < n_draws; d++, values += n) {
        const REAL share = (REAL)1 / ++count;
        for (long i = 0; i < n; i += LANES) {
            const vec value = load_some(values + i, n - i), before = load_some(mean + i, n - i);
            const vec after = before + (value - before) * share;
            store_some(mean + i, after, n - i);
            store_some(squares + i, load_some(squares + i, n - i) + (value - before) * (value - after), n - i);
        }
    }
}
