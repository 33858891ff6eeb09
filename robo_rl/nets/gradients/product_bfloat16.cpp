// Products of matrices whose numbers are rounded to bfloat16 first, by the tiles of AMX, in front of
// stack.cpp. Sums are float32, and so are all other operations. A matrix has strides for rows and columns,
// one of which is 1.

#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>

constexpr long SIDE = 16, DEPTH = 32;  // rows or columns of a tile, and the depth that it covers
constexpr int TILE_BYTES = 64;         // of one row
typedef unsigned Tile[SIDE][SIDE];     // each word holds two numbers of consecutive depth

struct Matrix {
    const float* at;
    long row, column;
};

// Ask the system for the registers of tiles.
extern "C" bool allow() {
    constexpr long REQUEST_PERMISSION = 0x1023, TILE_DATA = 18;
    return syscall(SYS_arch_prctl, REQUEST_PERMISSION, TILE_DATA) == 0;
}

static void begin() {
    struct {
        unsigned char palette, start_row, reserved[14];
        unsigned short bytes[16];
        unsigned char rows[16];
    } shapes = {1};
    for (int i = 0; i < 8; i++) shapes.bytes[i] = TILE_BYTES, shapes.rows[i] = SIDE;
    __asm__ volatile("" ::"r"(&shapes) : "memory");  // headers of GCC may say that only 8 bytes are read
    _tile_loadconfig(&shapes);
}

static void end() { _tile_release(); }

static long blocks(long size, long of) { return (size + of - 1) / of; }

// Bits of the nearest bfloat16, ties to even; NaN stays NaN.
static unsigned rounded(float number) {
    unsigned bits;
    __builtin_memcpy(&bits, &number, 4);
    return (bits & 0x7fffffff) > 0x7f800000 ? 0x7fc0 : (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}

// SIDE x DEPTH numbers in the order of memory: words[depth][side] where `side` is the stride 1, else
// words[side][depth].
static void read(const float* at, long side, long deep, Tile words) {
    if (side == 1)
        for (long p = 0; p < SIDE; p++) {
            const float *low = at + 2 * p * deep, *high = low + deep;
            for (long i = 0; i < SIDE; i++) words[p][i] = rounded(low[i]) | rounded(high[i]) << 16;
        }
    else
        for (long i = 0; i < SIDE; i++) {
            const float* low = at + i * side;
            for (long p = 0; p < SIDE; p++) words[i][p] = rounded(low[2 * p]) | rounded(low[2 * p + 1]) << 16;
        }
}

static void transpose(const Tile from, Tile to) {
    for (long i = 0; i < SIDE; i++)
        for (long j = 0; j < SIDE; j++) to[i][j] = from[j][i];
}

// Tiles of a factor, filled up with zeros: for each block of its sides all blocks of depth. left:
// words[side][depth], as the left factor needs them; else words[depth][side].
static void pack(const float* at, long sides, long depth, long side, long deep, bool left, Tile* to) {
    float edge[SIDE * DEPTH];
    Tile words;
    for (long i = 0; i < sides; i += SIDE)
        for (long p = 0; p < depth; p += DEPTH, to++) {
            const float* from = at + i * side + p * deep;
            long along = side, across = deep;
            if (i + SIDE > sides || p + DEPTH > depth) {
                along = side == 1 ? 1 : DEPTH, across = side == 1 ? SIDE : 1;
                for (float& number : edge) number = 0.0f;
                for (long a = 0; a < SIDE && i + a < sides; a++)
                    for (long b = 0; b < DEPTH && p + b < depth; b++)
                        edge[a * along + b * across] = from[a * side + b * deep];
                from = edge;
            }
            if ((along == 1) != left) {
                read(from, along, across, *to);
            } else {
                read(from, along, across, words);
                transpose(words, *to);
            }
        }
}

static void store(float (*sum)[2 * SIDE], long rows, long columns, float* c, long c_row, bool add) {
    for (long i = 0; i < rows; i++)
        for (long j = 0; j < columns; j++) c[i * c_row + j] = (add ? c[i * c_row + j] : 0.0f) + sum[i][j];
}

static long least(long a, long b) { return a < b ? a : b; }

// c = a b of (rows, depth) and (depth, columns), or c + a b. packed: memory of the tiles of both factors.
static void product(Matrix a, Matrix b, long rows, long depth, long columns, float* c, long c_row, bool add,
                    float* packed) {
    const long deep = blocks(depth, DEPTH);
    Tile *left = (Tile*)packed, *right = left + blocks(rows, SIDE) * deep;
    pack(a.at, rows, depth, a.row, a.column, true, left);
    pack(b.at, columns, depth, b.column, b.row, false, right);
    __asm__ volatile("" ::: "memory");  // the compiler does not know that a tile is loaded from memory
    for (long j = 0; j < columns; j += 2 * SIDE, right += 2 * deep)
        for (long i = 0; i < rows; i += 2 * SIDE) {
            const Tile* above = left + i / SIDE * deep;
            const Tile* below = i + SIDE < rows ? above + deep : above;  // any tile beyond the last row
            const Tile* next = j + SIDE < columns ? right + deep : right;
            _tile_zero(0);
            _tile_zero(1);
            _tile_zero(2);
            _tile_zero(3);
            for (long p = 0; p < deep; p++) {
                _tile_loadd(4, above + p, TILE_BYTES);
                _tile_loadd(5, below + p, TILE_BYTES);
                _tile_loadd(6, right + p, TILE_BYTES);
                _tile_loadd(7, next + p, TILE_BYTES);
                _tile_dpbf16ps(0, 4, 6);
                _tile_dpbf16ps(1, 4, 7);
                _tile_dpbf16ps(2, 5, 6);
                _tile_dpbf16ps(3, 5, 7);
            }
            float sum[2 * SIDE][2 * SIDE];
            const bool fits = !add && i + 2 * SIDE <= rows && j + 2 * SIDE <= columns;
            float* to = fits ? c + i * c_row + j : sum[0];
            const long row = fits ? c_row : 2 * SIDE;
            _tile_stored(0, to, row * sizeof(float));
            _tile_stored(1, to + SIDE, row * sizeof(float));
            _tile_stored(2, to + SIDE * row, row * sizeof(float));
            _tile_stored(3, to + SIDE * row + SIDE, row * sizeof(float));
            if (fits) continue;
            const long high = least(rows - i, 2 * SIDE), wide = least(columns - j, 2 * SIDE);
            store(sum, high, wide, c + i * c_row + j, c_row, add);
        }
}
