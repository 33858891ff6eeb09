// Forward and backward passes of k networks of linear layers, with LayerNorm and relu (see compiled.py).
//
//   z = x W + b,   y = (z - mean z) / sqrt(var z + eps),   h = relu(gain y + shift)
//
// Matrix, begin, product and end are those of product_float32.cpp or product_bfloat16.cpp.

constexpr float EPS = 1e-5f;

struct Layer {  // strides of the gradients equal those of the parameters
    long inputs, outputs, norm, relu;
    long weight_head, weight_row, weight_column, bias_head;
    const float *weight, *bias, *gain, *shift;         // gain, shift: null where the norm has none
    float *d_weight, *d_bias, *d_gain, *d_shift;       // null where nothing learns
    float *y, *scale, *h;                              // (k, b, o), (k, b), (k, b, o); y is h without a norm
};

struct Network {
    long heads, rows, layers;
    const Layer* layer;
    float *x, *packed, *first, *second;  // input; memory for a product and for two gradients
};

// c = a b for one column b.
static void product_with_column(Matrix a, Matrix b, long rows, long depth, float* c) {
    for (long i = 0; i < rows; i++) {
        float sum = 0.0f;
        const float* row = a.at + i * a.row;
        for (long p = 0; p < depth; p++) sum += row[p] * b.at[p * b.row];
        c[i] = sum;
    }
}

// z in h -> y and h.
static void finish(const Layer& l, long rows, const float* bias, float* y, float* scale, float* h) {
    const long n = l.outputs;
    for (long i = 0; i < rows; i++, y += n, h += n) {
        for (long j = 0; j < n; j++) h[j] += bias[j];
        if (l.norm) {
            float mean = 0.0f, square = 0.0f;
            for (long j = 0; j < n; j++) mean += h[j];
            mean /= n;
            for (long j = 0; j < n; j++) square += (h[j] - mean) * (h[j] - mean);
            scale[i] = 1.0f / __builtin_sqrtf(square / n + EPS);
            for (long j = 0; j < n; j++) h[j] = y[j] = (h[j] - mean) * scale[i];
            if (l.gain)
                for (long j = 0; j < n; j++) h[j] = h[j] * l.gain[j] + l.shift[j];
        }
        if (l.relu)
            for (long j = 0; j < n; j++) h[j] = h[j] < 0.0f ? 0.0f : h[j];
    }
}

static void add_row(float* to, const float* row, long n) {
    for (long j = 0; j < n; j++) to[j] += row[j];
}

static void clear(float* to, long n) {
    for (long j = 0; j < n; j++) to[j] = 0.0f;
}

// dh -> dz in place; with `learn` the gradients of bias, gain and shift.
static void finish_backward(const Layer& l, long rows, float* d_bias, const float* y, const float* scale,
                            const float* h, float* d, bool learn) {
    const long n = l.outputs;
    const bool affine = l.norm && l.gain;
    if (learn) clear(d_bias, n);
    if (learn && affine) clear(l.d_gain, n), clear(l.d_shift, n);
    for (long i = 0; i < rows; i++, y += n, h += n, d += n) {
        if (l.relu)
            for (long j = 0; j < n; j++) d[j] = h[j] <= 0.0f ? 0.0f : d[j];
        if (affine && learn) {
            add_row(l.d_shift, d, n);
            for (long j = 0; j < n; j++) l.d_gain[j] += d[j] * y[j];
        }
        if (affine)
            for (long j = 0; j < n; j++) d[j] *= l.gain[j];
        if (l.norm) {
            float mean = 0.0f, along = 0.0f;
            for (long j = 0; j < n; j++) mean += d[j], along += d[j] * y[j];
            mean /= n, along /= n;
            for (long j = 0; j < n; j++) d[j] = (d[j] - mean - y[j] * along) * scale[i];
        }
        if (learn) add_row(d_bias, d, n);
    }
}

extern "C" void join(const Network* net, long at, const float* part, long width, long row) {
    const long inputs = net->layer[0].inputs;
    for (long i = 0; i < net->rows; i++)
        for (long j = 0; j < width; j++) net->x[i * inputs + at + j] = part[i * row + j];
}

extern "C" void forward(const Network* net) {
    const long rows = net->rows;
    begin();
    for (long k = 0; k < net->heads; k++) {
        const float* x = net->x;
        for (long n = 0; n < net->layers; n++) {
            const Layer& l = net->layer[n];
            float* h = l.h + k * rows * l.outputs;
            const Matrix weight = {l.weight + k * l.weight_head, l.weight_row, l.weight_column};
            if (l.outputs == 1)
                product_with_column({x, l.inputs, 1}, weight, rows, l.inputs, h);
            else
                product({x, l.inputs, 1}, weight, rows, l.inputs, l.outputs, h, l.outputs, false, net->packed);
            finish(l, rows, l.bias + k * l.bias_head, l.y + k * rows * l.outputs, l.scale + k * rows, h);
            x = h;
        }
    }
    end();
}

// Gradients of the parameters (learn), or of the inputs from column `first` on, summed over heads.
extern "C" void backward(const Network* net, float* d_out, bool learn, float* d_x, long first) {
    const long rows = net->rows;
    begin();
    for (long k = 0; k < net->heads; k++) {
        float* d = d_out + k * rows * net->layer[net->layers - 1].outputs;
        for (long n = net->layers - 1; n >= 0; n--) {
            const Layer& l = net->layer[n];
            const long in = l.inputs, out = l.outputs, at = k * rows * out;
            const float* x = n ? net->layer[n - 1].h + k * rows * in : net->x;
            finish_backward(l, rows, l.d_bias + k * l.bias_head, l.y + at, l.scale + k * rows, l.h + at, d, learn);
            if (learn) {
                float* to = l.d_weight + k * l.weight_head;
                if (l.weight_column == 1 && out > 1)
                    product({x, 1, in}, {d, out, 1}, in, rows, out, to, l.weight_row, false, net->packed);
                else
                    product({d, 1, out}, {x, in, 1}, out, rows, in, to, l.weight_column, false, net->packed);
            }
            const Matrix back = {l.weight + k * l.weight_head, l.weight_column, l.weight_row};  // W^T
            if (n) {
                float* next = n % 2 ? net->first : net->second;
                product({d, out, 1}, back, rows, out, in, next, in, false, net->packed);
                d = next;
            } else if (!learn) {
                const Matrix part = {back.at + first * back.column, back.row, back.column};
                product({d, out, 1}, part, rows, out, in - first, d_x, in - first, k > 0, net->packed);
            }
        }
    }
    end();
}
