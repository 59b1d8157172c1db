/* Outputs of a multilayer perceptron, and the gradient of its negative log likelihood, chain after chain.
 *
 * Compiled with REAL = float and REAL = double. The numbers of a chain are those of `network.py` and `likelihoods.py`: the block of a
 * hidden layer holds (n_in + 1, n_out) parameters, biases last, that of the output layer (n_out, n_in + 1); the likelihood's come last.
 * Inputs and hidden layers have a constant unit, through which biases are weights like others.
 *
 * No chain looks at another, and sums over rows run in increasing order whatever their blocks: no bit depends on the company.
 */

#include "products.h"

enum { RELU, TANH, LOGISTIC, IDENTITY, SILU, GELU };
enum { CATEGORICAL, FIXED_NOISE, HOMOSCEDASTIC, HETEROSCEDASTIC };

#define MOST_LAYERS 64
#define BLOCK 128 /* rows that go through the layers together: what they leave behind stays in the cache */

/* What Python hands over; all strides in numbers. */
typedef struct {
    long activation, likelihood, n_layers, n_targets;
    long widths[MOST_LAYERS + 1];
    double constants[MOST_LAYERS]; /* of the likelihood: precisions of the targets, or the noise floor */
} Model;

/* A layer's blocks, packed for one chain, and what its rows leave behind. */
typedef struct {
    long n_in, n_out, block;         /* block: where its parameters start */
    long in_row, out_row;            /* padded rows of the inputs with their constant unit, and of the outputs with theirs */
    REAL *forward, *backward;        /* (n_in + 1, out_row), (n_out, in_row) */
    REAL *gradient;                  /* like the block, rows padded */
    REAL *z, *h;                     /* (rows, out_row); the same but for silu and gelu */
} Layer;

typedef struct {
    Layer layers[MOST_LAYERS];
    REAL *outputs, *d_outputs, *target; /* (n_out, BLOCK), (n_targets, BLOCK) */
    REAL *weight;                       /* (BLOCK) */
    REAL *x;                            /* (rows, in_row of the first layer), where they lie scattered */
    REAL *d, *d_below;                  /* derivatives by the outputs of a hidden layer, and of the one below */
} Workspace;

INLINE long at_most(long a, long b) { return a < b ? a : b; }

/* Lay out the workspace in `memory`; return the numbers that it takes, and in `cleared` how many of the first must be 0: what fills up
 * rows is computed with, and chance numbers can be so small that processors are slow with them. Without memory it only counts. */
static long lay_out(const Model *model, long n_rows, Workspace *work, REAL *memory, long *cleared) {
    const long n_layers = model->n_layers, last = n_layers - 1, n_outputs = model->widths[n_layers], height = at_most(n_rows, BLOCK);
    const int own_z = model->activation == SILU || model->activation == GELU;
    long used = 0, block = 0, widest = 0;
#define TAKE(N) (used += (N), memory ? memory + used - (N) : 0)
    for (long l = 0; l < n_layers; l++) {
        Layer *layer = &work->layers[l];
        layer->n_in = model->widths[l];
        layer->n_out = model->widths[l + 1];
        layer->in_row = padded(layer->n_in + 1);
        layer->out_row = padded(layer->n_out + 1);
        layer->block = block;
        block += (layer->n_in + 1) * layer->n_out;
        layer->z = layer->h = TAKE(height * layer->out_row);
        if (own_z) layer->h = TAKE(height * layer->out_row);
        if (l < last && layer->out_row > widest) widest = layer->out_row;
    }
    work->d = TAKE(height * widest);
    work->d_below = TAKE(height * widest);
    *cleared = used;
    for (long l = 0; l < n_layers; l++) {
        Layer *layer = &work->layers[l];
        layer->forward = TAKE((layer->n_in + 1) * layer->out_row);
        layer->backward = TAKE(layer->n_out * layer->in_row);
        layer->gradient = TAKE(l < last ? (layer->n_in + 1) * layer->out_row : layer->n_out * layer->in_row);
    }
    work->x = TAKE(height * work->layers[0].in_row);
    work->outputs = TAKE(n_outputs * BLOCK);
    work->d_outputs = TAKE(n_outputs * BLOCK);
    work->target = TAKE(model->n_targets * BLOCK);
    work->weight = TAKE(BLOCK);
    return used;
}

static void pack(const Model *model, Workspace *work, const REAL *theta, const REAL *end) {
    for (long l = 0; l < model->n_layers; l++) {
        const Layer *layer = &work->layers[l];
        const REAL *block = theta + layer->block;
        const long n_in = layer->n_in, n_out = layer->n_out;
        if (l < model->n_layers - 1) {
            copy_rows(n_in + 1, n_out, block, n_out, end, layer->forward, layer->out_row);
            if (l > 0) copy_transposed(n_out, n_in, block, n_out, layer->backward, layer->in_row);
        } else {
            copy_transposed(n_in + 1, n_out, block, n_in + 1, layer->forward, layer->out_row);
            if (l > 0) copy_rows(n_out, n_in, block, n_in + 1, end, layer->backward, layer->in_row);
        }
    }
}

/* h (n_rows, n_columns) from z, in rows of whole vectors. */
static void activate(long activation, long n_rows, long n_columns, long row, const REAL *z, REAL *h) {
#define EACH(H)                                                      \
    for (long r = 0; r < n_rows; r++)                                \
        for (long i = r * row; i < r * row + n_columns; i += LANES) { \
            const vec v = load(z + i);                               \
            vec density;                                             \
            (void)density;                                           \
            store(h + i, H);                                         \
        }                                                            \
    break;
    switch (activation) {
    case TANH: EACH(tangent(v))
    case LOGISTIC: EACH(logistic(v))
    case SILU: EACH(v * logistic(v))
    case GELU: EACH(v * normal_cdf(v, &density))
    default: break; /* relu is part of the product */
    }
}

/* d (n_rows, n_columns), the derivative by h, becomes that by z. */
static void derive(long activation, long n_rows, long n_columns, long row, const REAL *z, const REAL *h, REAL *d) {
#define BELOW(D)                                                     \
    for (long r = 0; r < n_rows; r++)                                \
        for (long i = r * row; i < r * row + n_columns; i += LANES) { \
            const vec v = load(z + i), y = load(h + i), above = load(d + i); \
            vec share, density;                                      \
            (void)v, (void)y, (void)share, (void)density;            \
            store(d + i, D);                                         \
        }                                                            \
    break;
    switch (activation) {
    case RELU: BELOW((vec)((mask)above & ~(y <= all(0))))
    case TANH: BELOW(above * (1 - y * y))
    case LOGISTIC: BELOW(above * (y * (1 - y)))
    case SILU: BELOW(above * (share = logistic(v), share + y * (1 - share)))
    case GELU: BELOW(above * (share = normal_cdf(v, &density), share + v * density))
    default: break;
    }
}

/* The outputs (n_outputs, BLOCK) of some rows. */
static void go_forward(const Model *model, Workspace *work, long n_rows, const REAL *x, long x_row) {
    const long last = model->n_layers - 1;
    for (long l = 0; l <= last; l++) {
        const Layer *layer = &work->layers[l];
        const int relu = l < last && model->activation == RELU;
        product(n_rows, layer->n_out, layer->n_in + 1, x, x_row, layer->forward, layer->out_row, 0, relu, layer->z, layer->out_row);
        if (l == last) break;
        activate(model->activation, n_rows, layer->n_out, layer->out_row, layer->z, layer->h);
        for (long r = 0; r < n_rows; r++) layer->h[r * layer->out_row + layer->n_out] = 1;
        x = layer->h;
        x_row = layer->out_row;
    }
    const Layer *top = &work->layers[last];
    for (long o = 0; o < top->n_out; o++) {
        for (long r = 0; r < n_rows; r++) work->outputs[o * BLOCK + r] = top->z[r * top->out_row + o];
        for (long r = n_rows; r < BLOCK && r % LANES; r++) work->outputs[o * BLOCK + r] = 0;
    }
}

static REAL sum_of(vec v) {
    REAL sum = 0;
    for (int i = 0; i < LANES; i++) sum += v[i];
    return sum;
}

/* Add -sum weight log f of a vector of rows to *value. */
INLINE void add_value(double *value, vec weight, vec log_density) {
    REAL of_weight[BYTES / sizeof(REAL)], of_density[BYTES / sizeof(REAL)];
    store(of_weight, weight);
    store(of_density, log_density);
    double sum = 0;
    for (int i = 0; i < LANES; i++) sum += (double)of_weight[i] * of_density[i];
    *value -= sum;
}

/* The derivatives of -sum weight log f by the outputs of some rows, what they add to those by the likelihood's own parameters and, unless
 * it is null, to *value, which is -sum weight log f. */
static void derive_likelihood(const Model *model, Workspace *work, long n_rows, const REAL *extra, REAL *d_extra, double *value) {
    const long K = model->widths[model->n_layers], T = model->n_targets;
    for (long r = 0; r < n_rows; r += LANES) {
        const vec weight = load(work->weight + r);
        const REAL *z = work->outputs + r, *y = work->target + r;
        REAL *d = work->d_outputs + r;
        if (model->likelihood == CATEGORICAL) {
            vec largest = load(z), total = all(0), of_class = all(0);
            for (long k = 1; k < K; k++) largest = where(load(z + k * BLOCK) > largest, load(z + k * BLOCK), largest);
            for (long k = 0; k < K; k++) {
                const vec below = load(z + k * BLOCK) - largest, e = exponential(below);
                store(d + k * BLOCK, e);
                total += e;
                of_class += load(y + k * BLOCK) * below;
            }
            if (value) add_value(value, weight, of_class - logarithm(total));
            const vec share = 1 / total;
            for (long k = 0; k < K; k++) store(d + k * BLOCK, weight * (load(d + k * BLOCK) * share - load(y + k * BLOCK)));
            continue;
        }
        vec log_density = all((REAL)(-0.91893853320467274 * T)); /* -log(2 pi) / 2 per target */
        for (long t = 0; t < T; t++) {
            const vec residual = load(z + t * BLOCK) - load(y + t * BLOCK);
            if (model->likelihood == FIXED_NOISE) {
                store(d + t * BLOCK, residual * (weight * (REAL)model->constants[t]));
                if (value) log_density += all((REAL)(0.5 * log(model->constants[t]))) - (REAL)(0.5 * model->constants[t]) * residual * residual;
            } else if (model->likelihood == HOMOSCEDASTIC) {
                const double learned = exp(2.0 * extra[t]), precision = 1.0 / (learned + model->constants[0] * model->constants[0]);
                const vec slope = residual * (weight * (REAL)precision);
                store(d + t * BLOCK, slope);
                d_extra[t] += sum_of(weight - slope * residual) * (REAL)(learned * precision);
                if (value) log_density += all((REAL)(0.5 * log(precision))) - (REAL)(0.5 * precision) * residual * residual;
            } else {
                const vec raw = load(z + (T + t) * BLOCK);
                const vec sd = softplus(raw) + (REAL)model->constants[0], inverse_sd = 1 / sd, standardised = residual * inverse_sd;
                store(d + t * BLOCK, weight * inverse_sd * standardised);
                store(d + (T + t) * BLOCK, weight * inverse_sd * (1 - standardised * standardised) * logistic(raw));
                if (value) log_density -= logarithm(sd) + (REAL)0.5 * standardised * standardised;
            }
        }
        if (value) add_value(value, weight, log_density);
    }
}

/* Add what some rows contribute to the gradient blocks, which the first of them begin. */
static void go_backward(const Model *model, Workspace *work, long n_rows, const REAL *x, long x_row, int add) {
    const long last = model->n_layers - 1;
    REAL *d = work->d, *d_below = work->d_below;
    for (long l = last; l >= 0; l--) {
        const Layer *layer = &work->layers[l], *below = layer - 1;
        const REAL *inputs = l ? below->h : x;
        const long row = l ? below->out_row : x_row, n_in = layer->n_in;
        if (l == last) {
            product(layer->n_out, n_in + 1, n_rows, work->d_outputs, BLOCK, inputs, row, add, 0, layer->gradient, layer->in_row);
            if (!l) return;
            transposed_product(n_rows, n_in, layer->n_out, work->d_outputs, BLOCK, layer->backward, layer->in_row, 0, d, row);
        } else {
            transposed_product(n_in + 1, layer->n_out, n_rows, inputs, row, d, layer->out_row, add, layer->gradient, layer->out_row);
            if (!l) return;
            product(n_rows, n_in, layer->n_out, d, layer->out_row, layer->backward, layer->in_row, 0, 0, d_below, row);
            REAL *other = d;
            d = d_below;
            d_below = other;
        }
        derive(model->activation, n_rows, below->n_out, row, below->z, below->h, d);
    }
}

/* Inputs and targets of all chains; strides in numbers, 0 where chains share them. With an index, rows are taken by number. */
typedef struct {
    const REAL *x, *x_end, *target;
    long x_chain, x_row, target_chain, target_row;
} Rows;

/* The number of a row, of 4 or 8 bytes. */
INLINE long number_at(const void *index, long bytes, long at) {
    return bytes == 8 ? (long)((const int64_t *)index)[at] : ((const int32_t *)index)[at];
}

/* Fetch the rows first ... first + n_rows of a chain into the workspace; return where their inputs stand, and their stride. */
static const REAL *fetch(const Model *model, Workspace *work, const Rows *rows, const void *index, long index_bytes,
                         long at, const REAL *weight, long weight_row, long chain, long first, long n_rows, long *x_row) {
    const long width = model->widths[0] + 1, padded_row = work->layers[0].in_row;
    const REAL *x = rows->x + chain * rows->x_chain, *y = rows->target + chain * rows->target_chain;
    const int direct = !index && model->n_layers > 1;
    for (long r = 0; r < n_rows; r++) {
        const long number = index ? number_at(index, index_bytes, at + r) : first + r;
        if (!direct) copy_rows(1, width, x + number * rows->x_row, 0, rows->x_end, work->x + r * padded_row, padded_row);
        for (long t = 0; t < model->n_targets; t++) work->target[t * BLOCK + r] = y[number * rows->target_row + t];
        work->weight[r] = weight[(first + r) * weight_row];
    }
    for (long r = n_rows; r < BLOCK && r % LANES; r++) {
        for (long t = 0; t < model->n_targets; t++) work->target[t * BLOCK + r] = 0;
        work->weight[r] = 0;
    }
    *x_row = direct ? rows->x_row : padded_row;
    return direct ? x + first * rows->x_row : work->x;
}

/* gradient = the packed blocks + precision theta, precision being that of normal priors; of stride 0 where it is shared. Rows are written
 * in their order, so that a whole vector may reach into the next one. */
static void unpack(const Model *model, const Workspace *work, const REAL *theta, const REAL *precision, long precision_param,
                   long n_weights, REAL *gradient) {
    for (long l = 0; l < model->n_layers; l++) {
        const Layer *layer = &work->layers[l];
        const int last = l == model->n_layers - 1;
        const long n_rows = last ? layer->n_out : layer->n_in + 1, n_columns = last ? layer->n_in + 1 : layer->n_out;
        const REAL *from = layer->gradient;
        for (long r = 0, at = layer->block; r < n_rows; r++, at += n_columns, from += last ? layer->in_row : layer->out_row) {
            const long whole = at + padded(n_columns) <= n_weights ? n_columns : n_columns / LANES * LANES;
            for (long j = 0; j < whole; j += LANES) {
                vec g = load(from + j);
                if (precision) g += (precision_param ? load(precision + at + j) : all(*precision)) * load(theta + at + j);
                store(gradient + at + j, g);
            }
            for (long j = whole; j < n_columns; j++)
                gradient[at + j] = precision ? from[j] + precision[(at + j) * precision_param] * theta[at + j] : from[j];
        }
    }
}

/* Write the gradient of sum -weight log f + precision theta^2 / 2 over the parameters, and sum -weight log f of each chain. The values,
 * precision and index may be null. Returns 1 if memory is short. */
int gradient(const Model *model, long n_chains, long n_rows, const REAL *theta, long theta_chain, const Rows *rows,
             const void *index, long index_bytes, const REAL *weight, long weight_chain, long weight_row, const REAL *precision,
             long precision_chain, long precision_param, double *values, REAL *of_chain, long gradient_chain) {
    Workspace work;
    long cleared;
    REAL *memory = aligned_alloc(64, (lay_out(model, n_rows, &work, 0, &cleared) * sizeof(REAL) + 63) / 64 * 64);
    if (!memory) return 1;
    lay_out(model, n_rows, &work, memory, &cleared);
    memset(memory, 0, cleared * sizeof(REAL));
    const Layer *top = &work.layers[model->n_layers - 1];
    const long n_weights = top->block + (top->n_in + 1) * top->n_out;
    for (long c = 0; c < n_chains; c++, theta += theta_chain, of_chain += gradient_chain) {
        pack(model, &work, theta, theta + n_weights);
        if (values) values[c] = 0;
        if (model->likelihood == HOMOSCEDASTIC) memset(of_chain + n_weights, 0, model->n_targets * sizeof(REAL));
        for (long first = 0; first < n_rows; first += BLOCK) {
            const long some = at_most(BLOCK, n_rows - first);
            long x_row;
            const REAL *x = fetch(model, &work, rows, index, index_bytes, c * n_rows + first, weight + c * weight_chain, weight_row,
                                  c, first, some, &x_row);
            go_forward(model, &work, some, x, x_row);
            derive_likelihood(model, &work, some, theta + n_weights, of_chain + n_weights, values ? values + c : 0);
            go_backward(model, &work, some, x, x_row, first > 0);
        }
        unpack(model, &work, theta, precision ? precision + c * precision_chain : 0, precision_param, n_weights, of_chain);
    }
    free(memory);
    return 0;
}

#define SIDE 128 /* rows that stand side by side where outputs alone are computed */

/* Write the outputs (n_chains, n_outputs, n_rows) alone, to the same bits. Units are the rows of the products here and rows their columns:
 * no vector has a part that nobody needs, and inputs that chains share are transposed once. Returns 1 if memory is short. */
int outputs(const Model *model, long n_chains, long n_rows, const REAL *theta, long theta_chain, const Rows *rows, REAL *outputs) {
    const long side = padded(SIDE), last = model->n_layers - 1, d = model->widths[0] + 1, K = model->widths[last + 1];
    const long n_blocks = rows->x_chain ? 1 : (n_rows + SIDE - 1) / SIDE;
    long highest = K, n_panels = 0, n_weights = (model->widths[last] + 1) * K;
    for (long l = 0; l < last; l++) {
        if (model->widths[l + 1] >= highest) highest = model->widths[l + 1] + 1;
        n_panels += panels(model->widths[l + 1]) * PANEL * (model->widths[l] + 1);
        n_weights += (model->widths[l] + 1) * model->widths[l + 1];
    }
    REAL *memory = aligned_alloc(64, (((n_blocks * d + 2 * highest) * side + n_panels) * sizeof(REAL) + 63) / 64 * 64);
    if (!memory) return 1;
    REAL *const two[2] = {memory, memory + highest * side}, *const inputs = two[1] + highest * side;
    REAL *const packed = inputs + n_blocks * d * side;
    for (long c = 0; c < n_chains; c++) {
        const REAL *const of_chain = theta + c * theta_chain, *block = of_chain;
        REAL *to = packed;
        for (long l = 0; l < last; l++) {
            const long n_in = model->widths[l] + 1, n_out = model->widths[l + 1];
            copy_panels(n_in, n_out, block, of_chain + n_weights, to);
            to += panels(n_out) * PANEL * n_in;
            block += n_in * n_out;
        }
        for (long first = 0; first < n_rows; first += SIDE) {
            const long some = at_most(SIDE, n_rows - first);
            REAL *x = rows->x_chain ? inputs : inputs + first / SIDE * d * side, *z = two[last % 2];
            if (c == 0 || rows->x_chain)
                copy_transposed(d, some, rows->x + c * rows->x_chain + first * rows->x_row, rows->x_row, x, side);
            const REAL *below = x, *from = packed;
            for (long l = 0; l < last; l++) {
                const long n_in = model->widths[l] + 1, n_out = model->widths[l + 1];
                REAL *h = two[l % 2];
                panel_product(n_out, some, n_in, from, below, side, model->activation == RELU, h);
                activate(model->activation, n_out, some, side, h, h);
                for (long r = 0; r < side; r++) h[n_out * side + r] = 1;
                from += panels(n_out) * PANEL * n_in;
                below = h;
            }
            product(K, some, model->widths[last] + 1, block, model->widths[last] + 1, below, side, 0, 0, z, side);
            for (long k = 0; k < K; k++) memcpy(outputs + (c * K + k) * n_rows + first, z + k * side, some * sizeof(REAL));
        }
    }
    free(memory);
    return 0;
}

/* -log p of each chain and each parameter's precision, its derivative over theta, if the weights of a layer have a multivariate t law and
 * its biases are normal. Groups are the weights, then the biases, of each layer; what the laws hold says `hierarchical` in _network.py. */
void hierarchical(long n_chains, const REAL *theta, long theta_chain, long n_runs, const int64_t *starts, const int64_t *group,
                  long n_layers, const double *laws, long laws_chain, double *value, REAL *precision) {
    double squares[2 * n_layers], rate[2 * n_layers];
    for (long c = 0; c < n_chains; c++, theta += theta_chain, laws += laws_chain, precision += starts[n_runs]) {
        memset(squares, 0, sizeof squares);
        for (long i = 0; i < n_runs; i++) {
            double part[4] = {0, 0, 0, 0};
            for (long j = starts[i]; j < starts[i + 1]; j++) part[j & 3] += (double)theta[j] * theta[j];
            squares[group[i]] += (part[0] + part[1]) + (part[2] + part[3]);
        }
        value[c] = laws[3 * n_layers];
        for (long l = 0, b = n_layers; l < n_layers; l++, b++) {
            const double spread = laws[l], power = laws[b], of_biases = laws[n_layers + b];
            value[c] += 0.5 * (power * log1p(squares[l] / spread) + of_biases * squares[b]);
            rate[l] = power / (spread + squares[l]), rate[b] = of_biases;
        }
        for (long i = 0; i < n_runs; i++)
            for (long j = starts[i]; j < starts[i + 1]; j++) precision[j] = rate[group[i]];
    }
}

/* Numbers per vector. */
long lanes(void) { return LANES; }
