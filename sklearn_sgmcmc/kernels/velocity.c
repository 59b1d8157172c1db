/* Directions of motion of length one: how a force turns them, for each chain by itself. */

#include "vectors.h"

typedef double wide __attribute__((vector_size(BYTES / sizeof(REAL) * sizeof(double))));

/* Forces below are none: their squares underflow, or their inverse does not fit into REAL. As in samplers/microcanonical.py. */
static const double WEAKEST = sizeof(REAL) == 4 ? 1e-36 : 1e-150, LEAST_SUM = 1e-32, AGAINST = -0.999;

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

/* to = v / |v| for each chain. */
void unit(long n_chains, long n, const REAL *v, REAL *to) {
    for (long chain = 0; chain < n_chains; chain++, v += n, to += n) {
        double same, square;
        sums(n, v, v, &same, &square);
        const REAL length = sqrt(square);
        for (long i = 0; i < n; i++) to[i] = v[i] / length;
    }
}

/* to = u after a kick by the gradient g over `time`, both (n_chains, n), and the change of the kinetic energy of each chain.
 * samplers/microcanonical.py has the formulas. */
void kick(long n_chains, long n, const REAL *u, long u_chain, const REAL *g, long g_chain, const double *time, REAL *to,
          double *change) {
    for (long chain = 0; chain < n_chains; chain++, u += u_chain, g += g_chain, to += n) {
        double along, square;
        sums(n, u, g, &along, &square);
        const double norm = sqrt(square), length = norm < WEAKEST ? 1 : norm; /* without force c = 0 and q = 1 */
        const double d = time[chain] * norm / (n - 1), c = fmax(along / -length, -1), q = exp(-d);
        double r;
        if (c > AGAINST) {
            r = 1 + c + (1 - c) * q * q;
            const REAL kept = 2 * q / r, turned = (1 - q) * (1 + q + c * (1 - q)) / (-length * r);
            for (long i = 0; i < n; i++) to[i] = kept * u[i] + turned * g[i];
        } else { /* against the force 1 + c is lost to rounding: take it from p = u - c e, whose square it is */
            const REAL along_g = c / length;
            for (long i = 0; i < n; i++) to[i] = u[i] + along_g * g[i];
            double same, of_p;
            sums(n, to, to, &same, &of_p);
            const double sum = fmax(of_p / (1 - c), LEAST_SUM);
            r = sum + (2 - sum) * q * q;
            const REAL kept = 2 * q / r, turned = (sum - (2 - sum) * q * q) / (-length * r);
            for (long i = 0; i < n; i++) to[i] = kept * to[i] + turned * g[i];
            unit(1, n, to, to); /* p is at right angles to e but for its rounding */
        }
        change[chain] = (n - 1) * (d - log(2) + log(r));
    }
}
