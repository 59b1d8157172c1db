/* Directions of motion of length one: how a force turns them, for each chain by itself. */

#include "vectors.h"

typedef double wide __attribute__((vector_size(BYTES / sizeof(REAL) * sizeof(double))));

/* Sums of a[i] b[i] and of b[i]^2 in double: float overflows at 1e19. */
static void sums(long n, const REAL *a, const REAL *b, double *product, double *square) {
    wide of_both = {0}, of_one = {0};
    long i = 0;
    for (; i + LANES <= n; i += LANES) {
        const wide left = __builtin_convertvector(load(a + i), wide), right = __builtin_convertvector(load(b + i), wide);
        of_both += left * right;
        of_one += right * right;
    }
    *product = *square = 0;
    for (int j = 0; j < LANES; j++) {
        *product += of_both[j];
        *square += of_one[j];
    }
    for (; i < n; i++) {
        *product += (double)a[i] * b[i];
        *square += (double)b[i] * b[i];
    }
}

/* to = u after a kick by the gradient g over `time`, both (n_chains, n), and the change of the kinetic energy of each chain.
 * samplers/microcanonical.py has the formulas. */
void kick(long n_chains, long n, const REAL *u, long u_chain, const REAL *g, long g_chain, const double *time, REAL *to,
          double *change) {
    for (long chain = 0; chain < n_chains; chain++, u += u_chain, g += g_chain, to += n) {
        double along, square;
        sums(n, u, g, &along, &square);
        const double norm = sqrt(square), length = norm < 1e-300 ? 1e-300 : norm; /* without force c = 0 and q = 1 */
        const double d = time[chain] * length / (n - 1), c = along / -length, q = exp(-d), r = 1 + c + (1 - c) * q * q;
        const REAL kept = 2 * q / r, turned = (1 - q) * (1 + q + c * (1 - q)) / (-length * r);
        for (long i = 0; i < n; i++) to[i] = kept * u[i] + turned * g[i];
        change[chain] = (n - 1) * (d - log(2) + log(r));
    }
}

/* to = v / |v| for each chain. */
void unit(long n_chains, long n, const REAL *v, REAL *to) {
    for (long chain = 0; chain < n_chains; chain++, v += n, to += n) {
        double same, square;
        sums(n, v, v, &same, &square);
        const REAL length = sqrt(square);
        for (long i = 0; i < n; i++) to[i] = v[i] / length;
    }
}
