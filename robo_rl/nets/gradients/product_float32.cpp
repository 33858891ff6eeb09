// Products of matrices in float32, in front of stack.cpp. A matrix has strides for rows and columns, so that
// a transposed matrix is a matrix. NaN passes through, as in torch.

#ifdef __AVX512F__
constexpr int LANES = 16, ROWS = 6, VECTORS = 4;  // sums take 24 of 32 registers
#else
constexpr int LANES = 8, ROWS = 6, VECTORS = 2;  // 12 of 16
#endif
typedef float Vector __attribute__((vector_size(4 * LANES), aligned(4), may_alias));

struct Matrix {
    const float* at;
    long row, column;
};

static void begin() {}

static void end() {}

// M x (N LANES) numbers of a b in registers. b is packed: N vectors for each step of depth.
template <int M, int N>
static void tile(Matrix a, const float* b, long depth, float* c, long c_row, long width, bool add) {
    Vector sum[M][N] = {};
    for (long p = 0; p < depth; p++, b += N * LANES)
#pragma GCC unroll 8
        for (int i = 0; i < M; i++)
#pragma GCC unroll 8
            for (int j = 0; j < N; j++)
                sum[i][j] += a.at[i * a.row + p * a.column] * *(const Vector*)(b + j * LANES);
#pragma GCC unroll 8
    for (int i = 0; i < M; i++) {
        float* to = c + i * c_row;
        if (width == N * LANES && !add) {
#pragma GCC unroll 8
            for (int j = 0; j < N; j++) *(Vector*)(to + j * LANES) = sum[i][j];
        } else {
            for (long j = 0; j < width; j++) to[j] = (add ? to[j] : 0.0f) + sum[i][j / LANES][j % LANES];
        }
    }
}

template <int N>
static void panel(Matrix a, const float* b, long rows, long depth, float* c, long c_row, long width,
                  bool add) {
    long i = 0;
    for (; i + ROWS <= rows; i += ROWS)
        tile<ROWS, N>({a.at + i * a.row, a.row, a.column}, b, depth, c + i * c_row, c_row, width, add);
    for (; i + 2 <= rows; i += 2)
        tile<2, N>({a.at + i * a.row, a.row, a.column}, b, depth, c + i * c_row, c_row, width, add);
    for (; i < rows; i++)
        tile<1, N>({a.at + i * a.row, a.row, a.column}, b, depth, c + i * c_row, c_row, width, add);
}

static void pack(Matrix b, long depth, long width, long padded, float* to) {
    for (long p = 0; p < depth; p += LANES) {  // few rows at a time stay in cache where columns are read
        const long end = p + LANES < depth ? p + LANES : depth;
        if (b.column == 1)
            for (long q = p; q < end; q++)
                for (long j = 0; j < width; j++) to[q * padded + j] = b.at[q * b.row + j];
        else
            for (long j = 0; j < width; j++)
                for (long q = p; q < end; q++) to[q * padded + j] = b.at[q * b.row + j * b.column];
        for (long q = p; q < end; q++)
            for (long j = width; j < padded; j++) to[q * padded + j] = 0.0f;
    }
}

// c = a b of (rows, depth) and (depth, columns), or c + a b.
static void product(Matrix a, Matrix b, long rows, long depth, long columns, float* c, long c_row, bool add,
                    float* packed) {
    for (long j = 0; j < columns; j += VECTORS * LANES) {
        const long width = columns - j < VECTORS * LANES ? columns - j : VECTORS * LANES;
        const long vectors = (width + LANES - 1) / LANES;
        pack({b.at + j * b.column, b.row, b.column}, depth, width, vectors * LANES, packed);
        if (vectors == 1) panel<1>(a, packed, rows, depth, c + j, c_row, width, add);
        if (vectors == 2) panel<2>(a, packed, rows, depth, c + j, c_row, width, add);
        if (vectors == 3) panel<3>(a, packed, rows, depth, c + j, c_row, width, add);
        if (vectors == 4) panel<4>(a, packed, rows, depth, c + j, c_row, width, add);
    }
}
